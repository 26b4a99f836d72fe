"""Whether tensors pass between edgekit_device, PyTorch and CuPy on a GPU without a copy.

    python benchmarks/gpu_tensors.py

Needs a GPU, a driver, NVRTC, PyTorch and pydantic; CuPy is tried if it is installed. Every line is
one check; exit status 1 when one fails. No TensorRT is needed: the tensors are edgekit_device's own
memory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgekit_device.arrays.formats import convert, pack
from edgekit_device.cuda.driver import open_cuda
from edgekit_device.cuda.memory import DeviceTensor, Feeder
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import IoEntry

_TYPES = ("float32", "float16", "int8", "uint8", "int32", "int64", "bool")
_SHAPES = ((1, 3, 17, 31), (5,), (2, 64, 8, 16))
_SCALE = 0.25


def main() -> int:
    """Runs the checks; returns the exit status."""
    import torch

    feeder = Feeder(open_cuda())
    failed = 0

    def say(text: str, ok: bool) -> None:
        nonlocal failed
        failed += not ok
        print(f"{'ok    ' if ok else 'FAILED'} {text}")

    for shape in _SHAPES:
        for dtype in _TYPES:
            array = (np.random.default_rng(1).uniform(-90, 90, shape)).astype(dtype)
            ours = _to_gpu(feeder, array)
            theirs = torch.as_tensor(ours, device="cuda")
            same = theirs.data_ptr() == ours.ptr
            say(f"to PyTorch {dtype} {shape}", same and bool((theirs.cpu().numpy() == array).all()))
            back = feeder.borrow(theirs * 1 if dtype != "bool" else theirs.clone())
            say(f"from PyTorch {dtype} {shape}", bool((back.numpy() == array).all()))
    stream = torch.cuda.Stream()
    large = torch.ones(1 << 26, device="cuda")
    late = large.cumsum(0)  # runs for a while on the default stream
    found = feeder.borrow(late).numpy()
    say("from PyTorch while its default stream works", found[-1] == np.float32(late[-1].item()))
    with torch.cuda.stream(stream):
        late = large.cumsum(0) + 1
    stream.synchronize()
    say("from another stream after its end", feeder.borrow(late).numpy()[0] == 2)
    try:
        feeder.borrow(torch.ones(4, 6, device="cuda").t())
        say("a transposed tensor is refused", False)
    except DeviceError as error:
        say(f"a transposed tensor is refused: {error.code}", error.code == "input.strides")
    _check_formats(feeder, say)
    _check_lifetime(feeder, say)
    _check_network(say)
    try:
        import cupy
    except ImportError:
        print("CuPy is not installed")
    else:
        array = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
        ours = _to_gpu(feeder, array)
        seen = cupy.asarray(ours)
        say("to CuPy", seen.data.ptr == ours.ptr and bool((cupy.asnumpy(seen) == array).all()))
        say("from CuPy", bool((feeder.borrow(seen * 2).numpy() == array * 2).all()))
    return int(failed > 0)


def _to_gpu(feeder: Feeder, array: np.ndarray) -> DeviceTensor:
    """Returns the array in memory of edgekit_device's pool."""
    lease = feeder.device.take(array.nbytes)
    lease.cuda.copy(lease.ptr, array.ctypes.data, array.nbytes, "h2d")
    lease.cuda.synchronize()
    return DeviceTensor(
        lease.ptr, array.nbytes, str(array.dtype), array.shape, "LINEAR", (), None, lease
    )


def _check_formats(feeder: Feeder, say: Any) -> None:
    """Compares outputs in a DLA's formats, made plain on the GPU, with NumPy's."""
    import torch

    shape = (1, 40, 9, 13)
    array = np.random.default_rng(2).uniform(-40, 40, shape).astype(np.float32)
    for format, dtype, strides, scale in (
        ("CHW32", "int8", (2 * 9 * 13 * 32, 9 * 13 * 32, 13 * 32, 32), _SCALE),
        ("CHW16", "float16", (3 * 9 * 13 * 32, 9 * 13 * 32, 13 * 32, 32), None),
        ("DLA_LINEAR", "int8", (40 * 9 * 32, 9 * 32, 32, 1), _SCALE),
    ):
        stored = convert(array, dtype, None, scale)
        memory = pack(stored, format, strides)
        lease = _to_gpu(feeder, np.ascontiguousarray(memory))
        there = DeviceTensor(
            lease.ptr, memory.nbytes, dtype, shape, format, strides, scale, lease.owner
        )
        plain = feeder.as_linear(there, "float32")
        wanted = convert(stored, "float32", scale, None)
        found = torch.as_tensor(plain, device="cuda").cpu().numpy()
        say(f"{format} {dtype} becomes planes of float32", bool((found == wanted).all()))
        io = IoEntry("x", dtype, shape, format, strides, scale)
        retained: list[Any] = []
        source = torch.from_numpy(array).cuda()
        with feeder.device.stream() as stream:
            address = feeder.put(io, feeder.borrow(source), stream, retained)
            lease.owner.cuda.synchronize(stream)
        made = np.empty(memory.nbytes, np.uint8)
        lease.owner.cuda.copy(made.ctypes.data, address, made.nbytes, "d2h")
        lease.owner.cuda.synchronize()
        same = bool((made == memory.reshape(-1).view(np.uint8)).all())
        say(f"PyTorch's float32 becomes {format} {dtype}", same)


def _check_lifetime(feeder: Feeder, say: Any) -> None:
    """A result keeps its memory as long as PyTorch's tensor lives, and no longer."""
    import gc

    import torch

    array = np.full((1 << 20,), 7, np.float32)
    theirs = torch.as_tensor(_to_gpu(feeder, array), device="cuda")
    gc.collect()
    before = feeder.device.allocated
    other = _to_gpu(feeder, np.zeros(1 << 20, np.float32))
    say("a tensor in use keeps its memory", bool((theirs == 7).all()) and other.ptr != 0)
    del theirs
    gc.collect()
    _to_gpu(feeder, array)
    say("memory goes back with its last user", feeder.device.allocated == before + 1)


def _check_network(say: Any) -> None:
    """Checks ``edgekit.load`` with tensors on the GPU; the engine doubles them."""
    import torch

    from benchmarks.cuda_stand_in import stand_in
    from edgekit.compiled.calls import convert_outputs, run_on_gpu
    from edgekit.pytorch.document import Tensor

    model, given = stand_in(open_cuda(), 0.01), {}
    made: dict[str, DeviceTensor] = {}

    def run(feed: dict[str, Any]) -> dict[str, DeviceTensor]:
        given.update(feed)
        made.update(model.on_gpu(feed))
        return made

    for kind in ("float32", "bfloat16"):
        shape = list(model.inputs[0].shape)
        source, goal = (
            Tensor(name=name, shape=shape, type="float32", torch_type=kind) for name in "xy"
        )
        x = torch.randn(shape, device="cuda").to(getattr(torch, kind))
        known = run_on_gpu([source], run, {"x": x})
        found = torch.as_tensor(convert_outputs([goal], known, x.device)["y"])
        say(f"a network of {kind}", found.dtype == x.dtype and bool((found == 2 * x).all()))
        if kind == "float32":
            same = given["x"].data_ptr() == x.data_ptr() and found.data_ptr() == made["y"].ptr
            say("neither its input nor its output is copied", same)


if __name__ == "__main__":
    sys.exit(main())
