"""Devices other than the processor: a pretended one, and a GPU where there is one."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from short_fits import let_flows_win, shorten
from signing import edit_json
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from toy import draw

from deconflow import (
    Deconvolver,
    FlowDeconvolver,
    GaussianMixture,
    Observations,
    engines,
    estimators,
    noise,
)
from deconflow.auto import flows
from deconflow.guests import check_device, device_here
from deconflow.randomness import Draws

ROWS = 40
TINY = {
    "epochs": 1, "batch_size": 32, "hidden": 8,
    "n_draws": 2, "random_state": 0,
}  # fmt: skip
ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def values():
    return draw(ROWS, 0)[1]


@pytest.fixture
def known(monkeypatch):
    """Let estimators take the pretended device by its name."""
    for module in (estimators.base, engines.flow):
        monkeypatch.setattr(module, "check_device", str)
    return monkeypatch


def answers(model, some, **rows):
    """Everything that computes with networks."""
    return (
        model.sample(3, random_state=0),
        model.score_samples(values()[:3]),
        model.score_observations(some, **rows),
        model.posterior(some, n_samples=2, **rows).mean,
    )


def same_on_the_device(known, fitted):
    there = fitted("cpu")
    with pretended(known):
        found = fitted(DEVICE.type)
    for one, other in zip(there, found, strict=True):
        np.testing.assert_array_equal(one, other)


LIMITS = np.zeros((ROWS, 2))
LIMITS[::5, 1] = 1
FITS = {
    "iw": ({}, {}),
    "limits": ({}, {"limits": LIMITS}),
    "poisson": ({}, {"noise": noise.poisson()}),
    "roulette": ({"objective": "roulette"}, {}),
    "coupled": ({"objective": "coupled"}, {}),
    "exact": ({"flow": "gaussian_mixture", "posterior_family": "exact"}, {}),
    "spline": ({"flow": "spline"}, {}),
    "bounded": ({"bounds": [(-9, 9), None]}, {}),
    "given": ({}, {"given": np.arange(ROWS)[:, None] / ROWS}),
    "covariances": ({}, {"noise": np.tile([[0.2, 0.1], [0.1, 0.3]], (ROWS, 1, 1))}),
    "student_t": ({}, {"noise": noise.student_t([0.3, 0.4], 4.0)}),
    "split_normal": ({}, {"noise": noise.split_normal([0.2, 0.3], [0.4, 0.5])}),
}
QUICK = ("iw", "limits", "poisson")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in FITS]
)
def test_networks_and_rows_keep_to_their_device(name, known):
    settings, rows = FITS[name]
    w, rows = np.abs(values()).round(), {"noise": [0.3, 0.6]} | rows
    if name == "limits":
        w[::7, 0] = np.nan
    some = {key: each[:3] if isinstance(each, np.ndarray) else each for key, each in rows.items()}

    def fitted(device):
        model = FlowDeconvolver(device=device, **TINY, **settings).fit(w, **rows)
        assert next(model.fit_.own.density.parameters()).device.type == device
        return answers(model, w[:3], **some)

    same_on_the_device(known, fitted)


def test_chains_and_their_proposals_keep_to_the_device(known):
    shorten(known)
    for name, value in {"POOR": 2.0, "NETWORK_ROWS": 20, "NETWORK_EPOCHS": 1}.items():
        known.setattr(flows, name, value)  # so that a network proposes, too
    rows = Observations.from_arrays(values(), [0.3, 0.6])
    mixture = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.diag([2.0, 3.0])[None])
    seen, refit = [], flows.refit

    def note(chains):
        refit(chains)
        seen.append(chains.network is not None and chains.latents.device.type)

    known.setattr(flows, "refit", note)

    def fitted(device):
        training = flows.training_of(ROWS, 2)
        members = flows.train(rows, mixture, 2, training, seed=0, device=device)
        assert seen[-1] == device
        return [weight for member in members for weight in member.state.values()]

    same_on_the_device(known, fitted)


def test_the_pretended_device_mixes_with_no_other(monkeypatch):
    with pretended(monkeypatch):
        there = torch.ones(3).to(DEVICE)
        assert (there + 1).device == DEVICE
        with pytest.raises(RuntimeError, match="one device"):
            there + torch.ones(3)
        with pytest.raises((RuntimeError, TypeError)):
            there.numpy()


def test_a_gpu_for_each_process_of_a_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [check_device(name) for name in ("cuda", "auto", "cuda:1", "cpu")] == [
        "cuda", "cuda", "cuda:1", "cpu",
    ]  # fmt: skip
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert [check_device(name) for name in ("cuda", "auto", "cuda:0")] == [
        "cuda:1", "cuda:1", "cuda:0",
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"that is there; got .cuda:2. and 2 GPUs"):
        check_device("cuda:2")


@pytest.mark.parametrize("estimator", [FlowDeconvolver, Deconvolver])
@pytest.mark.parametrize("device", ["tpu", "meta", 0, None, "cpu:x"])
def test_unknown_devices_are_refused(estimator, device):
    with pytest.raises(ValueError, match=r"Expected (a )?device"):
        estimator(device=device).fit(values(), noise=0.3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_model_of_a_gpu_loads_without_one(tmp_path):
    name = "cuda:1"
    model = FlowDeconvolver(**TINY).fit(values(), noise=0.3)
    model.save(tmp_path / "model")
    edit_json(tmp_path / "model", "parameters.device", name)
    loaded = FlowDeconvolver.load(tmp_path / "model")
    assert loaded.device == device_here(name) == "cpu"
    np.testing.assert_array_equal(loaded.sample(3, random_state=0), model.sample(3, random_state=0))
    with pytest.raises(ValueError, match="and 0 GPUs"):
        FlowDeconvolver.load(tmp_path / "model", device=name)


@ON_GPU
@pytest.mark.filterwarnings("ignore::deconflow.UntrustedFitWarning")
def test_fits_on_a_gpu(monkeypatch, tmp_path):
    w = draw(300, 0)[1]
    model = FlowDeconvolver(device="cuda", **{**TINY, "epochs": 5}).fit(w, noise=[0.3, 0.6])
    assert next(model.fit_.own.density.parameters()).is_cuda
    model.save(tmp_path / "model")
    loaded = FlowDeconvolver.load(tmp_path / "model", device="cpu")
    # float32, in products of another order
    np.testing.assert_allclose(model.score_samples(w), loaded.score_samples(w), atol=1e-3)
    shorten(monkeypatch)
    let_flows_win(monkeypatch)
    ensemble = Deconvolver(device="cuda", random_state=0).fit(w, noise=[0.3, 0.6])
    assert np.isfinite(ensemble.score_samples(w)).all()


# -- the device that is not there -----------------------------------------------------------------
#
# Tensors on it compute on the processor, and mix with no others: for tests that code keeps to its
# device, on machines that have only one. Tensors on it say that their device is ``meta``, which
# torch knows on every machine; an operation on tensors of this device and of the processor fails,
# as it would with a GPU, but for what torch lets one mix there: numbers (tensors without
# dimensions), indices, and copies.


DEVICE = torch.device("meta")
INDEXING = (
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default,
    torch.ops.aten._index_put_impl_.default,
)


class OnDevice(torch.Tensor):
    """A tensor on the pretended device; ``inside`` has its numbers."""

    inside: torch.Tensor

    @staticmethod
    def __new__(cls, inside):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inside.shape, strides=inside.stride(), storage_offset=inside.storage_offset(),
            dtype=inside.dtype, device="cpu", dispatch_device=True,
        )  # fmt: skip
        made.inside = inside
        return made

    def __repr__(self):
        return f"OnDevice({self.inside})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


class Pretending(TorchDispatchMode):
    """Catches what makes tensors on the device out of none."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return computed(func, args, kwargs or {})


class MakingHere(TorchFunctionMode):
    """Makes tensors of plain numbers on the processor first: torch does so past all dispatch."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.tensor and kwargs.get("device") is not None:
            return func(*args, **{**kwargs, "device": "cpu"}).to(kwargs["device"])
        if func is torch.Tensor.new_tensor:
            return func(args[0].cpu(), *args[1:], **kwargs).to(args[0].device)
        return func(*args, **kwargs)


def computed(func, args, kwargs):
    """Compute on the processor; the answer is on the device if what it is made of is."""
    given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
    there = [isinstance(each, OnDevice) for each in given]
    if func is torch.ops.prim.device.default:
        return DEVICE if any(there) else torch.device("cpu")
    if func is not torch.ops.aten.copy_.default and _mixed(func, given, there):
        raise RuntimeError(f"Expected all tensors on one device; got two for {func}.")
    device = kwargs.get("device")
    on = any(there) if device is None else torch.device(device) == DEVICE
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inner = tree_map(lambda x: x.inside if isinstance(x, OnDevice) else x, (args, kwargs))
    out = func(*inner[0], **inner[1])
    if func._schema.is_mutable:
        return _same(given, out)
    return tree_map(lambda x: OnDevice(x) if on and isinstance(x, torch.Tensor) else x, out)


def _mixed(func, given, there):
    """Whether devices meet that may not: indices of what is on the device may be in memory."""
    if func in INDEXING:
        return any(there) and not there[0]
    return any(there) and any(x.dim() for x, on in zip(given, there, strict=True) if not on)


def _same(given, out):
    """Return the tensors that an operation in place was given, for those that it has changed."""
    own = {id(each.inside): each for each in given if isinstance(each, OnDevice)}
    return tree_map(lambda x: own.get(id(x), x) if isinstance(x, torch.Tensor) else x, out)


@contextmanager
def pretended(monkeypatch):
    """Have the device inside the block, with generators, and an optimiser that knows it."""
    generator = Draws.generator
    monkeypatch.setattr(Draws, "generator", lambda self, device: generator(self, "cpu"))
    monkeypatch.setattr(
        optimizer, "_get_fused_kernels_supported_devices", lambda: ["cpu", DEVICE.type]
    )
    monkeypatch.setattr(clip_grad, "_device_has_foreach_support", lambda device: True)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with Pretending(), MakingHere():
            yield DEVICE
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
