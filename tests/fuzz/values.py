"""What the fuzz hands over: expressions of Python, good ones and bad ones.

In these ``n`` and ``d`` are the numbers of rows and columns, ``g`` a generator of numpy, ``w`` the
measurements and ``sd`` standard deviations of that shape.
"""

ROWS = ("24", "24", "24", "12", "5", "3", "2", "1", "0", "60")
COLUMNS = ("2", "2", "1", "1", "3", "6", "0")

TRUTHS = (
    "g.normal(size=(n, d))",
    "g.normal(size=(n, d)) + 4.0 * g.integers(2, size=(n, 1))",
    "g.exponential(size=(n, d))",
    "g.standard_cauchy(size=(n, d))",
    "g.integers(3, size=(n, d)).astype(float)",
    "np.ones((n, d))",
    "np.zeros((n, d))",
    "np.repeat(g.normal(size=(1, d)), n, 0)",
    "np.repeat(g.normal(size=(n, 1)), d, 1)",
    "g.normal(size=(n, 1)) * np.arange(1.0, d + 1)",
    "np.where(g.random((n, d)) < 0.5, -1.0, 1.0)",
)

#: Above 1e100 answers need not exist; NaN there is counted apart.
SCALES = (
    "1e3", "1e-3", "1e-12", "1e12", "1e-80", "1e80", "1e100", "1e-100", "1e-150", "1e-300",
    "5e-324", "0.0", "-1.0", "1e150", "1e160", "1e300", "1e308",
)  # fmt: skip

NUMBERS = (*SCALES, "np.nan", "np.inf", "-np.inf", "1.0")

#: Where a bad number goes.
CELLS = (
    "{x}[{row}, 0] = {number}",
    "{x}[{row}] = {number}",
    "{x}[:, 0] = {number}",
    "{x}[::3] = {number}",
    "{x}[:] = {number}",
)

SHIFTS = ("1e9", "-1e9", "1e15", "1e100", "1e160")

GOOD_TABLES = (
    "{x}.tolist()",
    "{x}.astype(np.float32)",
    "np.asfortranarray({x})",
    "{x}[::-1]",
    "torch.from_numpy({x}.copy())",
    "torch.tensor({x}, dtype=torch.float32, requires_grad=True)",
    "pd.DataFrame({x}, columns=names)",
    "pd.DataFrame({x}, columns=names, index=range(7, 7 + n))",
    "pd.DataFrame({x}, columns=names, dtype='Float64')",
    "pl.DataFrame({x}, schema=names)",
    "Table({x}, names=names)",
    "QTable([column * u.mas for column in {x}.T], names=names)",
    "np.ma.masked_array({x}, mask=np.zeros({x}.shape, bool))",
    "np.ma.masked_array({x}, mask=g.random({x}.shape) < 0.2)",
    "[tuple(row) for row in {x}]",
    "torch.tensor({x}, dtype=torch.float16)",
    "torch.tensor({x}, dtype=torch.bfloat16)",
)


ODD_TABLES = (
    "None",
    "'text'",
    "b'bytes'",
    "3.0",
    "np.float64(2.0)",
    "[]",
    "[[]]",
    "{{}}",
    "set()",
    "object()",
    "len",
    "range(24)",
    "True",
    "{x}[0]",
    "{x}[:, 0]",
    "{x}[None]",
    "{x}[:-1]",
    "{x}[:, :1]",
    "np.hstack([{x}, {x}])",
    "{x}.T",
    "{x}.astype(complex)",
    "{x} + 1j",
    "{x} > 0",
    "np.zeros({x}.shape, 'datetime64[s]')",
    "np.zeros({x}.shape, 'timedelta64[s]')",
    "{x}.astype(object)",
    "np.full({x}.shape, None)",
    "np.full({x}.shape, {{}})",
    "np.full({x}.shape, 'a')",
    "np.full({x}.shape, '1.5')",
    "np.full({x}.shape, Decimal('1.5'))",
    "np.full({x}.shape, Fraction(1, 3))",
    "np.full({x}.shape, pd.NA)",
    "np.full({x}.shape, 10**400, dtype=object)",
    "np.zeros(n, dtype=[(name, float) for name in names])",
    "np.zeros({x}.shape, dtype='S3')",
    "[row.tolist()[: i % 2 + 1] for i, row in enumerate({x})]",
    "[[1.0, 2.0], [3.0]]",
    "(row for row in {x})",
    "iter({x})",
    "map(list, {x})",
    "dict(zip(names, {x}.T))",
    "[dict(zip(names, row)) for row in {x}]",
    "sparse.csr_array(np.nan_to_num({x}))",
    "np.matrix(np.nan_to_num({x}))",
    "memoryview(np.ascontiguousarray({x}))",
    "pd.Series(np.arange(float(n)))",
    "pd.DataFrame(np.nan_to_num({x})).astype(str)",
    "pd.DataFrame({x}).assign(name='a')",
    "pd.DataFrame({x}, columns=[0] * d)",
    "pd.DataFrame({x}, columns=['a'] * d)",
    "pd.DataFrame({x}, columns=names[::-1])",
    "pd.DataFrame({x}, columns=[*'pqrstuvw'][:d])",
    "pd.DataFrame({x}).astype(object).where({x} > 0, None)",
    "pl.DataFrame({x}, schema=names).with_columns(pl.lit('a').alias('t'))",
    "pl.DataFrame({x}, schema=names[::-1])",
    "pl.Series(np.arange(float(n)))",
    "QTable([column * u.s for column in {x}.T], names=names)",
    "QTable([column * u.mag for column in {x}.T], names=names)",
    "Table({x}, names=names[::-1])",
    "{x}[:1] * u.mas",
    "{x} * u.mas",
    "Table([[[1.0, 2.0]] * n], names=['x'])",
    "Table([['a'] * n] * max(d, 1), names=names or ['x'])",
    "torch.zeros((n, d), dtype=torch.int64)",
    "torch.zeros((n, d), dtype=torch.bool)",
    "torch.zeros((n, d), dtype=torch.complex64)",
    "torch.zeros((n, d), device='meta')",
    "torch.zeros((n, d)).to_sparse()",
    "torch.quantize_per_tensor(torch.zeros((n, d)), 0.1, 0, torch.qint8)",
    "np.zeros((n, d), dtype=np.float16)",
    "np.zeros((n, d), dtype=np.longdouble)",
    "np.zeros((n, d), dtype=np.int8)",
    "np.ma.masked_array({x}, mask=True)",
)

GOOD_NOISE = (
    "None",
    "0.0",
    "0.3",
    "np.full(d, 0.3)",
    "sd",
    "sd[0]",
    "np.eye(d)",
    "sd[:, :, None] * sd[:, None, :] * np.eye(d)",
    "sd[:, :, None] * sd[:, None, :] * (0.5 + 0.5 * np.eye(d))",
    "sd[:, :, None] * sd[:, None, :]",
    "np.ones((d, d))",
    "np.zeros((n, d))",
    "np.zeros((n, d, d))",
    "1e-100",
    "1e100",
    "1e-12 * sd",
    "1e12 * sd",
    "np.where(np.arange(n)[:, None] % 3, sd, 30.0)",
    "np.where(np.arange(n)[:, None] % 3, sd, 1e100)",
    "np.where(np.arange(n)[:, None] % 3, sd, 0.0)",
    "Independent(Normal(torch.zeros(d), torch.ones(d)), 1)",
    "Laplace(torch.zeros(d), torch.ones(d))",
    "Cauchy(torch.zeros(d), torch.ones(d))",
    "Gumbel(torch.zeros(d), torch.ones(d))",
    "Uniform(-torch.ones(d), torch.ones(d))",
    "Gamma(torch.ones(d), torch.ones(d))",
)

BAD_NOISE = (
    "-0.3",
    "-sd",
    "np.nan",
    "np.inf",
    "True",
    "1e150",
    "1e308 * sd",
    "np.full(d, np.nan)",
    "np.ones(d + 1)",
    "np.ones((n + 1, d))",
    "np.ones((n, d + 1))",
    "np.ones((n, d, d + 1))",
    "np.ones((1, n, d, d))",
    "-np.eye(d)",
    "np.eye(d) + np.triu(np.ones((d, d)), 1)",
    "np.where(g.random((n, d)) < 0.2, np.nan, sd)",
    "np.where(g.random((n, d)) < 0.2, np.inf, sd)",
    "np.full((n, d, d), np.nan)",
    "np.full((n, d, d), 1e200)",
    "Normal(torch.zeros(n, d), torch.ones(n, d))",
    "Poisson(torch.ones(d))",
    "Normal(0.0, 1.0)",
    "Normal",
    "lambda scale: Normal(0.0, scale)",
    "noise.gaussian",
    "stats.norm(0, 1)",
)

LAWS = (
    "noise.gaussian(sd={a})",
    "noise.gaussian(covariance={a})",
    "noise.gaussian(sd={a}, covariance={b})",
    "noise.laplace({a})",
    "noise.uniform({a})",
    "noise.student_t({a}, df={b})",
    "noise.split_normal({a}, {b})",
    "noise.gaussian_mixture({a}, {b}, {c})",
    "noise.same_for_all({a})",
    "noise.from_law(lambda scale: Normal(0 * scale, scale), scale={a})",
    "noise.from_law(lambda scale: Gumbel(0 * scale, scale), scale={a})",
    "noise.from_law(lambda a, b: StudentT(a, 0.0, b), a={b}, b={a})",
    "noise.from_law({a}, scale={b})",
    "noise.as_noise({a}, n, d)",
)

READY_MADE = (
    "noise.gaussian(sd=sd)",
    "noise.gaussian(sd=np.full(d, 0.3))",
    "noise.gaussian(covariance=np.eye(d))",
    "noise.laplace(sd)",
    "noise.uniform(2 * sd)",
    "noise.uniform(np.full(d, 5.0))",
    "noise.student_t(sd, df=4.0)",
    "noise.student_t(np.full(d, 0.3), df=1.0)",
    "noise.split_normal(0.7 * sd, 1.3 * sd)",
    "noise.gaussian_mixture([0.7, 0.3], np.zeros((2, d)), np.stack([np.eye(d), 4 * np.eye(d)]))",
    "noise.from_law(lambda scale: Gumbel(0 * scale, scale), scale=np.full((1, d), 0.3))",
    "noise.from_law(lambda scale: Normal(0 * scale, scale), scale=sd)",
)

LAW_ARGUMENTS = (
    "sd", "sd[0]", "np.full(d, 0.3)", "4.0", "np.ones((n, 1))", "np.eye(d)", "np.ones(2) / 2",
    "np.zeros((2, d))", "np.stack([np.eye(d)] * 2)", "np.ones((4, 2))", "0.0", "-sd", "np.nan",
    "1e-300 * sd", "1e100 * sd", "1e300 * sd", "np.ones((n, d, d))", "np.full((n, d), np.inf)",
    "Laplace(torch.zeros(d), torch.ones(d))", "Normal", "lambda scale: scale", "np.ones((d, d))",
    "lambda scale: Gamma(scale, scale)", "lambda scale: Normal(0.0, scale.sum())",
    "Normal(torch.zeros(n, d), torch.ones(n, d))", "[]",
)  # fmt: skip

PROJECTIONS = (
    "np.eye(d)",
    "g.normal(size=(n, d, d))",
    "g.normal(size=(n, d, d + 1))",
    "g.normal(size=(d, 1))",
    "np.ones((n, d, d))",
    "np.zeros((d, d))",
    "1e100 * np.eye(d)",
    "1e-100 * np.eye(d)",
    "1e200 * np.eye(d)",
    "np.full((n, d, d), np.nan)",
    "np.full((d, d), np.inf)",
    "np.ones((d + 1, d))",
    "np.ones((n + 1, d, d))",
    "np.ones(d)",
    "np.ones((n, d, 0))",
    "2.0",
    "'a'",
    "[[1.0], [1.0, 2.0]]",
    "np.eye(d) + 1j",
    "torch.eye(d, dtype=torch.bfloat16)",
    "pd.DataFrame(np.eye(d))",
)

WEIGHTS = (
    "np.ones(n)",
    "g.uniform(size=n)",
    "np.arange(n)",
    "1e100 * g.uniform(size=n)",
    "1e-100 * g.uniform(size=n)",
    "1e300 * np.ones(n)",
    "5e-324 * np.ones(n)",
    "(np.arange(n) == 0) * 1.0",
    "np.zeros(n)",
    "-np.ones(n)",
    "np.full(n, np.nan)",
    "np.full(n, np.inf)",
    "np.ones(n + 1)",
    "np.ones((n, 1))",
    "1.0",
    "'a'",
    "['a'] * n",
    "np.ones(n) + 1j",
    "np.ones(n) > 0",
    "pd.Series(np.ones(n))",
    "torch.ones(n, dtype=torch.bfloat16)",
    "(1.0 for _ in range(n))",
)

GOOD_STATES = ("0", "3", "None", "np.random.RandomState(3)", "np.int64(4)", "np.random")
BAD_STATES = (
    "-1", "2**33", "'x'", "1.5", "True", "[1, 2]", "np.nan", "np.random.default_rng(0)",
    "torch.Generator()", "object()",
)  # fmt: skip

BAD_COUNTS = ("0", "-1", "1.5", "'a'", "None", "True", "[3]", "np.nan", "np.inf", "np.float64(2)")
BAD_NUMBERS = ("-1.0", "np.nan", "np.inf", "'a'", "None", "[]", "[1.0, 'a']", "1j", "True", "{}")
BAD_WORDS = ("'unknown'", "''", "None", "3", "['em']", "True", "np.nan", "b'em'")
FLAGS = ("True", "False")
NO_FLAGS = ("'yes'", "3", "np.nan", "[True]")

COLUMNS_ASKED = (
    "[0]", "0", "'x'", "['x']", "[1, 0]", "['y', 'x']", "list(range(model.density_.dim))", "[]",
    "None", "99", "[-1]", "'nothing'", "[0, 0]", "1.5", "True", "[None]", "[[0]]", "slice(0, 1)",
    "np.array([0])", "np.array([True, False])", "{'x'}", "pd.Index(['x'])", "object()",
)  # fmt: skip

SHARES = (
    "0.5", "[0.1, 0.9]", "np.array([0.3])", "1e-9", "1 - 1e-12", "0.0", "1.0", "-1", "2", "np.nan",
    "'a'", "None", "[]", "[[0.5]]", "[0.5, 'a']", "1j", "True", "5e-324",
)  # fmt: skip

INDICES = (
    "0", "-1", "[0, 0]", "slice(0, 2)", "np.arange(len(answers)) > 0", "99", "1.5", "'a'", "None",
    "[]", "[True]", "(0, 0)", "[-99]", "object()", "np.array([0.0])", "...",
)  # fmt: skip

PATHS = (
    "folder / 'model'", "str(folder / 'model')", "folder / 'no' / 'model'", "folder", "''", "None",
    "3", "'/proc/nothing/model'", "folder / ('x' * 300)", "'\\0'", "b'model'", "folder / 'a file'",
)  # fmt: skip
