"""Number of rows, for a single Gaussian."""

from deconflow.trust.check import Case, Check, Finding
from deconflow.xd import n_parameters

#: Fewer rows per parameter of a single Gaussian are few.
ROWS_PER_PARAMETER = 10


def _test(case: Case) -> Finding:
    parameters = n_parameters(1, case.data.latent_dim)
    enough = case.n_rows >= ROWS_PER_PARAMETER * parameters
    numbers = {"rows": case.n_rows, "columns": case.data.dim, "parameters": parameters}
    return Finding(p=float(enough), numbers={name: float(n) for name, n in numbers.items()})


def _caution(finding: Finding) -> str:
    numbers = finding.numbers
    return (
        f"{numbers['rows']:.0f} rows are few for {numbers['columns']:.0f} "
        f"column{'s' if numbers['columns'] > 1 else ''}: a single Gaussian has "
        f"{numbers['parameters']:.0f} parameters. Expect the density to be rough; use fewer columns"
    )


CHECK = Check(
    "number of rows", "at least ten per parameter of one Gaussian", _test, _caution,
    "{rows:.0f}", kind="count",
)  # fmt: skip
