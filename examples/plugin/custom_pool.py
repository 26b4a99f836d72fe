"""Custom pooling of linear NCHW tensors in FP32, FP16 and INT8.

:func:`pool` computes it in NumPy; ``custom_pool.cu`` gives the same bits on a GPU. Where TensorRT
is 10.9 or newer, importing this file registers the plugin ``edgekit::CustomPool``. It is an
ahead-of-time plugin: the builder takes PTX into the engine, which then runs without Python.
"""

# no "from __future__ import annotations": tensorrt.plugin reads the annotations as types
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PLUGIN", "THREADS", "compile_ptx", "kernel_of", "launch_numbers", "output_size", "pool"]

PLUGIN = "edgekit::CustomPool"  # tensorrt.plugin allows no "." in a namespace
THREADS = 256  # of a block; one computes one output
Pair = Sequence[int] | npt.NDArray[np.int32]
_KERNELS = {"float32": "pool_fp32", "float16": "pool_fp16", "int8": "pool_int8"}
# PTX for 8.0 runs on every newer GPU, too (Orin: 8.7)
_ARCHITECTURE = "compute_80"


def pool(
    x: npt.NDArray[Any],
    *,
    kernel: Pair,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    mode: str = "max",
    count_include_pad: int = 1,
    input_scale: float = 0.0,
    output_scale: float = 0.0,
) -> npt.NDArray[Any]:
    """Pools over height and width.

    A sum is FP32, added row by row (FP32 and FP16), or exact (INT8). An FP16 result is rounded half
    to even. An INT8 result is multiplied by float32(input_scale) / float32(output_scale), rounded
    half to even and saturated to -128..127. A NaN in a window gives NaN.

    Args:
        x: [batch, channels, height, width] of float32, float16 or int8.
        kernel: Height and width of a window.
        stride: Steps from one window to the next, down and to the right.
        padding: Lines above and below, and columns left and right. A maximum ignores padding.
        mode: "max" or "average".
        count_include_pad: 0: an average divides by the number of the window's values inside the
            input. 1: by the window's area, with zeros as padding.
        input_scale: The value of an INT8 input of 1. FP32 and FP16 need no scales.
        output_scale: The value of an INT8 output of 1.

    Returns:
        [batch, channels, (height + 2 * padding - kernel) // stride + 1, ...], of the type of ``x``.

    Raises:
        ValueError: Another type or mode, a padding that is not less than the kernel, or INT8
            without scales.
    """
    kernel_of(x.dtype.name)
    out = (*x.shape[:2], *output_size(x.shape[2:], kernel, stride, padding))
    whole = x.dtype == np.int8
    values = x.astype(np.int32 if whole else np.float32)
    if mode == "max":
        lowest = -128 if whole else -np.inf
        found = np.full(out, lowest, values.dtype)
        for part in _window_parts(values, out, kernel, stride, padding, lowest):
            found = np.where((part > found) | np.isnan(part), part, found)
        result = found.astype(np.float32)
    elif mode == "average":
        total, count = np.zeros(out, values.dtype), np.zeros(out[2:], np.int32)
        with np.errstate(over="ignore", invalid="ignore"):
            for part in _window_parts(values, out, kernel, stride, padding, 0):
                total += part
        inside = np.ones((1, 1, *x.shape[2:]), np.int32)
        for part in _window_parts(inside, (1, 1, *out[2:]), kernel, stride, padding, 0):
            count += 1 if count_include_pad else part[0, 0]
        result = total.astype(np.float32) / count.astype(np.float32)
    else:
        raise ValueError(f"mode {mode!r} is neither 'max' nor 'average'")
    if whole:
        scaled = result * _ratio(input_scale, output_scale)
        return np.clip(np.rint(scaled), -128, 127).astype(np.int8)
    with np.errstate(over="ignore"):
        return result.astype(x.dtype)


def output_size(size: Pair, kernel: Pair, stride: Pair, padding: Pair) -> tuple[int, int]:
    """Returns height and width of the output; ValueError where no window fits."""
    found = []
    for whole, window, step, pad in zip(size, kernel, stride, padding, strict=True):
        if not (0 <= pad < window <= whole + 2 * pad and step > 0):
            raise ValueError(
                f"kernel {window}, stride {step} and padding {pad} do not fit a size of {whole}: "
                "the padding must be less than the kernel, and a window must fit"
            )
        found.append(int((whole + 2 * pad - window) // step + 1))
    return found[0], found[1]


def _window_parts(
    values: npt.NDArray[Any],
    out: tuple[int, ...],
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    outside: float,
) -> Iterator[npt.NDArray[Any]]:
    """For each place in the window, row by row, that value of every window."""
    sides = [(0, 0), (0, 0), *((int(pad), int(pad)) for pad in padding)]
    padded = np.pad(values, sides, constant_values=outside)
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = padded[:, :, i :: stride[0], j :: stride[1]]
            yield part[:, :, : out[2], : out[3]]


def _ratio(input_scale: float, output_scale: float) -> np.float32:
    if not (input_scale > 0 and output_scale > 0):
        raise ValueError("INT8 needs 'input_scale' and 'output_scale' above 0")
    return np.float32(input_scale) / np.float32(output_scale)


def kernel_of(dtype: str) -> str:
    """Returns the name of the type's kernel in ``custom_pool.cu``; ValueError for other types."""
    if dtype not in _KERNELS:
        raise ValueError(f"CustomPool takes {', '.join(_KERNELS)}, not {dtype}")
    return _KERNELS[dtype]


def launch_numbers(
    dtype: str,
    shape: Sequence[Any],
    out: Sequence[Any],
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    mode: str,
    count_include_pad: int,
    input_scale: float,
    output_scale: float,
) -> tuple[Any, ...]:
    """Returns a kernel's parameters between input and output: int32, in the kernel's order.

    Args:
        dtype: The tensors' type.
        shape: The input's four dimensions: numbers, or TensorRT's expressions.
        out: The output's, likewise.
        kernel: This and the next arguments are as for :func:`pool`.
    """
    ratio = _ratio(input_scale, output_scale) if dtype == "int8" else np.float32(1)
    pairs = (int(value) for pair in (kernel, stride, padding) for value in pair)
    flags = int(mode == "average"), int(count_include_pad)
    sizes = shape[0] * shape[1], shape[2], shape[3], out[2], out[3]
    return (*sizes, *pairs, *flags, int(ratio.view(np.int32)))


def compile_ptx() -> bytes:
    """Compiles ``custom_pool.cu`` to PTX by NVRTC, from cuda-python; no GPU is needed.

    Raises:
        RuntimeError: With NVRTC's log.
    """
    from cuda.bindings import nvrtc

    def call(name: str, *arguments: Any) -> Any:
        status, *found = getattr(nvrtc, name)(*arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"{name}: {status.name}{log()}")
        return found[0] if found else None

    def read(kind: str) -> bytes:
        buffer = b" " * call(f"nvrtcGet{kind}Size", program)
        call(f"nvrtcGet{kind}", program, buffer)
        return buffer.rstrip(b"\0")

    def log() -> str:
        return "\n" + read("ProgramLog").decode() if program is not None else ""

    program = None
    source = Path(__file__).with_name("custom_pool.cu").read_bytes()
    program = call("nvrtcCreateProgram", source, b"custom_pool.cu", 0, [], [])
    try:
        options = [f"--gpu-architecture={_ARCHITECTURE}".encode(), b"--std=c++17"]
        call("nvrtcCompileProgram", program, len(options), options)
        return read("PTX")
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _register(trtp: ModuleType) -> None:
    """Registers the plugin with ``tensorrt.plugin``. Its attributes are the ONNX node's."""
    import tensorrt as trt

    pair = npt.NDArray[np.int32]
    names = {trt.float32: "float32", trt.float16: "float16", trt.int8: "int8"}

    @trtp.register(PLUGIN)
    def describe(
        x: trtp.TensorDesc,
        kernel: pair,
        stride: pair,
        padding: pair,
        mode: str,
        count_include_pad: int,
        input_scale: float,
        output_scale: float,
    ) -> trtp.TensorDesc:
        y = x.like()
        for axis in range(2):
            room = x.shape_expr[2 + axis] + int(2 * padding[axis]) - int(kernel[axis])
            y.shape_expr[2 + axis] = room // int(stride[axis]) + 1
        return y

    @trtp.autotune(PLUGIN)
    def combinations(
        x: trtp.TensorDesc, outputs: tuple[trtp.TensorDesc]
    ) -> list[trtp.AutoTuneCombination]:
        return [trtp.AutoTuneCombination("FP32|FP16|INT8, FP32|FP16|INT8", "LINEAR")]

    @trtp.aot_impl(PLUGIN)
    def implement(
        x: trtp.TensorDesc,
        kernel: pair,
        stride: pair,
        padding: pair,
        mode: str,
        count_include_pad: int,
        input_scale: float,
        output_scale: float,
        outputs: tuple[trtp.TensorDesc],
        tactic: int,
    ) -> tuple[str | bytes, str | bytes, trtp.KernelLaunchParams, trtp.SymExprs]:
        (y,) = outputs
        dtype = names[x.dtype]
        numbers = launch_numbers(
            dtype,
            x.shape_expr,
            y.shape_expr,
            kernel=kernel,
            stride=stride,
            padding=padding,
            mode=mode,
            count_include_pad=count_include_pad,
            # TensorRT knows none in a network with Q/DQ nodes
            input_scale=input_scale if input_scale > 0 else x.scale,
            output_scale=output_scale if output_scale > 0 else y.scale,
        )
        launch = trtp.KernelLaunchParams()
        launch.grid_x = trtp.cdiv(y.shape_expr.numel(), THREADS)
        launch.block_x = THREADS
        extra = trtp.SymIntExprs.from_tuple([trtp.SymInt32(one) for one in numbers])
        return kernel_of(dtype), compile_ptx(), launch, extra


try:
    import tensorrt.plugin as _trtp
except ImportError:
    _trtp = None
if hasattr(_trtp, "aot_impl"):
    _register(_trtp)
