"""Compiled arithmetic over rows, for the E-step.

``passes`` runs over rows and components; ``codegen`` writes the arithmetic of one row for a given
dimension, ``generic`` holds it for any; ``vector_math`` has the functions that both need, and
``compile`` says how all of this is compiled. Modules are imported, and so compiled, when needed.
"""
