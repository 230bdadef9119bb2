"""Refusals of facts that do not go together: the only place that makes them, and its words."""

from collections.abc import Set

#: For each trait of rows and of true values its noun, and what to do where it is not taken.
WORDS: dict[str, tuple[str, str]] = {
    "beyond memory": ("rows beyond memory", "Fit a sample: stream.overview(100_000).sample"),
    "projected": ("projection", "Use XDGMM, which takes projections"),
    "limits": ("limits in place of values", "Leave those rows out, or use XDGMM"),
    "missing": ("missing values (NaN)", "Drop those rows, or use XDGMM"),
    "counts": ("values with a likelihood, such as counts", "Use XDGMM or Deconvolver"),
    "covariates": ("covariates", "Leave out given, or put them in w with errors of zero"),
    "errors to learn": ("errors to learn", "Give errors that are known"),
    "selected": ("selection", "Leave out the selection"),
    "bounds": ("bounds", "Leave them out"),
    "atoms": ("atoms", "Leave them out"),
    "background": ("background", "Leave it out"),
}
EVERYTHING = frozenset(WORDS)


def refuse(who: str, takes: Set[str], traits: Set[str]) -> None:
    """Raise for the first trait that ``who`` does not take."""
    for trait, (noun, remedy) in WORDS.items():
        if trait in traits and trait not in takes:
            raise ValueError(f"Expected no {noun} with {who}; got some. {remedy}.")


def refuse_other_traits(fitted: Set[str], asked: Set[str], must_match: Set[str]) -> None:
    """Raise for rows that lack a trait which the rows of the fit had, or have one more."""
    for trait, (noun, _) in WORDS.items():
        if trait not in must_match or (trait in fitted) == (trait in asked):
            continue
        had, got = (noun, "none") if trait in fitted else (f"no {noun}", "some")
        raise ValueError(f"Expected {had}, as in the fit; got {got}. Describe these rows so, too.")
