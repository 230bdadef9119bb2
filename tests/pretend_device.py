"""A device that is not there: tensors on it compute on the processor, and mix with no others.

For tests that code keeps to its device, on machines that have only one. Tensors on it say that
their device is ``meta``, which torch knows on every machine; an operation on tensors of this device
and of the processor fails, as it would with a GPU, but for what torch lets one mix there: numbers
(tensors without dimensions), indices, and copies.
"""

from contextlib import contextmanager

import torch
from torch.nn.utils import clip_grad
from torch.optim import optimizer
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from deconflow.randomness import Draws

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
