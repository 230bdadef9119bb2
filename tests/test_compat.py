import numpy as np
import pytest

from deconflow.compat import extreme_deconvolution


def one_gaussian(n=3001, dim=1, seed=2, noise=0.5):
    rng = np.random.RandomState(seed)
    y = rng.normal(size=(n, dim)) + np.arange(1, dim + 1)
    variance = noise * rng.uniform(size=(n, dim))
    return y + rng.normal(size=(n, dim)) * np.sqrt(variance), variance


def two_gaussians(n=3001, seed=2, share=0.3, noise=0.0):
    rng = np.random.RandomState(seed)
    first = rng.uniform(size=n) < share
    y = np.where(first, rng.normal(size=n) - 2, 2 * rng.normal(size=n) + 1)[:, None]
    return y + rng.normal(size=y.shape) * np.sqrt(noise), np.full_like(y, noise)


def wide_start(y, means):
    K = len(means)
    covariances = np.full((K, 1, 1), 3 * y.var())
    return np.full(K, 1 / K), np.array(means, dtype=float).reshape(K, 1), covariances


def published_run(order="C"):
    """The run in the library's own documentation, with what it prints."""
    y = 1 + np.random.RandomState(1).standard_normal((200, 1))
    projection = np.zeros((200, 1, 2))
    projection[::2, 0, 0] = projection[1::2, 0, 1] = 1
    xamp = np.ones(2) / 2
    xmean = np.array([[0.86447943, 0.322681], [0.67078879, 0.45087394]], order=order)
    xcovar = np.array(  # neither symmetric nor positive definite
        [
            [[0.03821028, 0.04108113], [0.04014796, 0.03173839]],
            [[0.06219194, 0.04302473], [0.09738021, 0.06778009]],
        ],
        order=order,
    )
    value = extreme_deconvolution(
        np.array(y, order=order),
        np.full((200, 1), 0.01),
        xamp,
        xmean,
        xcovar,
        projection=projection,
    )
    return value, xamp, xmean, xcovar


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_published_run_comes_out(order):
    value, xamp, xmean, xcovar = published_run(order)
    assert value == pytest.approx(-1.3114744655258121, abs=1e-4)
    expected = [[2.30368235, 1.70701517], [1.08009397, 0.8888667]]
    np.testing.assert_allclose(xmean, expected, atol=3e-3)
    np.testing.assert_allclose(xamp, [0.11968415, 0.880315852981], atol=3e-3)
    assert xcovar[0, 0, 0] == pytest.approx(0.445645987259, abs=3e-3)
    np.testing.assert_array_equal(xcovar, np.swapaxes(xcovar, 1, 2))


@pytest.mark.parametrize("noise", [0.0, 0.25, 1.0])
def test_one_gaussian_is_recovered(noise):
    y, variance = one_gaussian(noise=noise)
    xamp, xmean, xcovar = wide_start(y, [y.mean() + 1])
    extreme_deconvolution(y, variance, xamp, xmean, xcovar)
    assert xmean[0, 0] == pytest.approx(1.0, abs=0.1)
    assert xcovar[0, 0, 0] == pytest.approx(1.0, abs=0.18)


@pytest.mark.parametrize("fixmean", [True, [True], [True, True]])
def test_fixed_means_stay(fixmean):
    y, variance = two_gaussians()
    xamp, xmean, xcovar = wide_start(y, [-2, 1])
    extreme_deconvolution(y, variance, xamp, xmean, xcovar, fixmean=fixmean)
    np.testing.assert_array_equal(xmean[:, 0], [-2, 1])
    np.testing.assert_allclose(xcovar[:, 0, 0], [1, 4], atol=0.45)


def test_regularisation_is_the_conjugate_prior():
    y, variance = one_gaussian(noise=0.0)
    xamp, xmean, xcovar = np.ones(1), y.mean(0)[None].copy(), y.var(0).reshape(1, 1, 1).copy()
    extreme_deconvolution(y, variance, xamp, xmean, xcovar, w=100.0, maxiter=1)
    assert xcovar[0, 0, 0] == pytest.approx((len(y) * y.var() + 100) / (len(y) + 1), rel=1e-10)


def test_weights_enter_raw_and_as_logarithms():
    y, variance = one_gaussian()
    weight = np.random.RandomState(0).uniform(0.1, 5, len(y))

    def run(**more):
        xamp, xmean, xcovar = np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1))
        arguments = (y, variance, xamp, xmean, xcovar)
        return extreme_deconvolution(*arguments, likeonly=True, **more)

    T = 1 + variance
    log_p = -0.5 * (y**2 / T + np.log(2 * np.pi * T))[:, 0]
    assert run() == pytest.approx(log_p.mean(), rel=1e-12)
    assert run(weight=weight) == pytest.approx((weight @ log_p) / len(y), rel=1e-12)
    assert run(weight=np.log(weight), logweight=True) == pytest.approx(run(weight=weight))


def test_stops_when_the_gain_is_at_most_tol(tmp_path):
    y, variance = two_gaussians(noise=0.25)
    name = str(tmp_path / "run")
    value = extreme_deconvolution(
        y, variance, *wide_start(y, [-1, 2]), tol=1e-4, maxiter=1e9, logfile=name
    )
    lines = (tmp_path / "run_loglike.log").read_text().split("\n")
    assert lines[-3:] == ["", "", ""]
    path = np.array([float(line) for line in lines[:-3]])
    assert path[-1] == pytest.approx(value, abs=1e-6)
    gains = np.diff(path)
    assert (gains[:-1] > 1e-4 - 2e-6).all()
    assert gains[-1] <= 1e-4 + 2e-6
    assert (tmp_path / "run_c.log").stat().st_size > 0


def test_split_and_merge_leaves_a_bad_start(tmp_path):
    rng = np.random.RandomState(2)
    which = rng.choice(3, p=[0.1, 0.3, 0.6], size=3001)
    y = np.choose(which, [-4, 1, 8])[:, None] + rng.normal(size=(3001, 1)) * np.choose(
        which, [1, 2, 1.5]
    ).reshape(-1, 1)
    variance = rng.uniform(size=y.shape)
    y += rng.normal(size=y.shape) * np.sqrt(variance)
    values = []
    for maxsnm in (False, True):
        xamp, xmean, xcovar = wide_start(y, [-1, 0, 1])
        name = str(tmp_path / f"run{maxsnm}")
        values.append(
            extreme_deconvolution(y, variance, xamp, xmean, xcovar, maxsnm=maxsnm, logfile=name)
        )
    assert values[1] >= values[0]
    order = np.argsort(xmean[:, 0])
    np.testing.assert_allclose(xamp[order], [0.1, 0.3, 0.6], atol=0.2)
    np.testing.assert_allclose(xmean[order, 0], [-4, 1, 8], atol=1.0)


BAD = {
    "integer start": ({"xmean": np.zeros((1, 1), int)}, "xmean as an array of floats"),
    "list start": ({"xamp": [1.0]}, "xamp as an array of floats"),
    "negative noise": ({"ycovar": -np.ones((5, 1))}, "at least zero"),
    "no noise": ({"ycovar": np.full((5, 1), np.nan)}, r"\bycovar\b"),
    "infinite value": ({"ydata": np.full((5, 1), np.inf)}, r"finite.*\bydata\b"),
    "too many flags": ({"fixmean": [True, False]}, "one flag or 1"),
    "negative weights": ({"weight": -np.ones(5)}, r"\bweight\b"),
    "no steps": ({"maxiter": np.nan}, "maxiter"),
    "broken steps": ({"maxiter": 1.5}, "maxiter"),
    "no folder": ({"logfile": "/no/where/log"}, r"to write .*_loglike\.log"),
    **{
        f"odd {name}": ({name: value}, rf"\b{name}\b")
        for name, value in {
            "w": -1, "tol": np.nan, "maxiter": "a", "splitnmerge": "a", "xamp": np.array(1.0),
            "weight": "a", "fixamp": "a", "logfile": 3, "xcovar": np.ma.masked_all((1, 1, 1)),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    change, message = BAD[name]
    arguments = {
        "ydata": np.arange(5.0)[:, None], "ycovar": np.ones((5, 1)), "xamp": np.ones(1),
        "xmean": np.zeros((1, 1)), "xcovar": np.ones((1, 1, 1)),
    }  # fmt: skip
    with pytest.raises((TypeError, ValueError, OSError), match=f"Expected.*{message}.*; got"):
        extreme_deconvolution(**(arguments | change))
