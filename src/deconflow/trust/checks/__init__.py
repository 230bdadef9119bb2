"""Checks of a fit, one file each: the test, the noise that may be the cause, and the words."""
