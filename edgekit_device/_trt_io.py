"""An engine's inputs and outputs, as TensorRT tells them and as the manifest has them."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ._errors import DeviceError
from ._packing import four, stored_shape
from ._types import DTYPES, IoEntry

__all__ = ["NUMPY_TYPES", "check_io", "check_strides", "io_bytes", "io_of", "names_of"]

#: NumPy's names by DataType's; NumPy has none for the others.
NUMPY_TYPES = {
    "FLOAT": "float32", "HALF": "float16", "INT8": "int8", "INT32": "int32", "INT64": "int64",
    "BOOL": "bool", "UINT8": "uint8",
}  # fmt: skip
# get_tensor_format_desc: the name in brackets where it has one, else how it begins
_NAMED = re.compile(r"\(k([A-Z0-9_]+)\)")
_BEGINNINGS = {
    "Row major linear": "LINEAR",
    "Two wide channel": "CHW2",
    "Four wide channel": "CHW4",
    "Sixteen wide channel": "CHW16",
    "Thirty-two wide channel": "CHW32",
}

# formats whose channels lie beside each other
_INNERMOST = ("HWC", "HWC8", "HWC16", "DLA_HWC4")


def names_of(engine: Any) -> Tuple[List[str], List[str]]:
    """Names of inputs and of outputs, in the engine's order."""
    inputs: List[str] = []
    outputs: List[str] = []
    for index in range(int(engine.num_io_tensors)):
        name = str(engine.get_tensor_name(index))
        (inputs if engine.get_tensor_mode(name).name == "INPUT" else outputs).append(name)
    return inputs, outputs


def io_of(engine: Any, context: Any, name: str, scale: Optional[float] = None) -> IoEntry:
    """Describes one input or output of an engine that no manifest describes.

    Raises:
        DeviceError: "engine.io" for a type or format that this loader cannot handle.
    """
    kind = engine.get_tensor_dtype(name).name
    if kind not in NUMPY_TYPES:
        raise DeviceError(
            "{!r} is of TensorRT's type {}, which NumPy lacks".format(name[:80], kind),
            code="engine.io",
            where=name[:80],
            hint="build the engine with float32 inputs and outputs",
        )
    dtype = NUMPY_TYPES[kind]
    format = _format(engine, name) or "LINEAR"
    shape = tuple(int(size) for size in engine.get_tensor_shape(name))
    if format == "LINEAR" or -1 in shape:
        return IoEntry(name, dtype, shape, format, _dense(dtype, shape), scale)
    strides = _strides(engine, context, name, dtype, format)
    return IoEntry(name, dtype, shape, format, strides, scale)


def io_bytes(io: IoEntry) -> int:
    """Bytes that a tensor takes in its format, padding included.

    Raises:
        DeviceError: "format.*".
    """
    size = DTYPES[io.dtype]
    return math.prod(stored_shape(io.shape, size, io.format, io.strides)) * size


def check_io(engine: Any, wanted: Sequence[IoEntry], where: str) -> None:
    """Compares the manifest's inputs and outputs with the engine's.

    Raises:
        DeviceError: "engine.io", naming every difference.
    """
    inputs, outputs = names_of(engine)
    faults = []
    known = {io.name for io in wanted}
    for name in inputs + outputs:
        if name not in known:
            faults.append("the manifest lacks {!r}".format(name[:80]))
    for io in wanted:
        if io.name not in inputs + outputs:
            faults.append("the engine lacks {!r}".format(io.name[:80]))
            continue
        kind = engine.get_tensor_dtype(io.name).name
        shape = tuple(int(size) for size in engine.get_tensor_shape(io.name))
        found: Dict[str, Any] = {"type": NUMPY_TYPES.get(kind, kind), "shape": shape}
        told: Dict[str, Any] = {"type": io.dtype, "shape": io.shape}
        format = _format(engine, io.name)
        if format is not None:
            found["format"], told["format"] = format, io.format
        if -1 in shape and len(shape) == len(io.shape):
            # a dynamic axis takes what the manifest says, within the profile
            told["shape"] = tuple(-1 if s == -1 else w for s, w in zip(shape, io.shape))  # noqa: B905
        for what, value in found.items():
            if value != told[what]:
                faults.append(
                    "{!r} has the {} {}, the manifest says {}".format(
                        io.name[:80], what, value, told[what]
                    )
                )
    if faults:
        raise DeviceError(
            "the engine's inputs or outputs are not the manifest's: {}".format("; ".join(faults)),
            code="engine.io",
            where=where,
            hint="build the bundle again",
        )


def check_strides(engine: Any, context: Any, wanted: Sequence[IoEntry], where: str = "") -> None:
    """Compares the strides of inputs and outputs with the context's.

    The manifest has them by formulas: wrong ones would have the engine read or write elsewhere.
    Axes of one element have no stride that counts; shapes that are not set yet have none.

    Raises:
        DeviceError: "engine.io", naming every difference.
    """
    faults = []
    for io in wanted:
        if -1 in tuple(engine.get_tensor_shape(io.name)):
            continue
        sizes = list(io.shape)
        if io.format != "LINEAR":
            sizes = list(four(io.shape))
            stored = stored_shape(io.shape, DTYPES[io.dtype], io.format, io.strides)
            sizes[1] = 1 if io.format in _INNERMOST else stored[1]
        found = _strides(engine, context, io.name, io.dtype, io.format)
        pairs = zip(sizes, io.strides, found)  # noqa: B905
        if len(found) != len(io.strides) or any(n > 1 and a != b for n, a, b in pairs):
            faults.append(
                "{!r} has the strides {} as {}, the manifest says {}".format(
                    io.name[:80], list(found), io.format, list(io.strides)
                )
            )
    if faults:
        raise DeviceError(
            "the engine's inputs or outputs lie otherwise in memory: {}".format("; ".join(faults)),
            code="engine.io",
            where=where,
            hint="build with LINEAR inputs and outputs, and report this: the board's layout of the "
            "format is another one than its documentation says",
        )


def _strides(engine: Any, context: Any, name: str, dtype: str, format: str) -> Tuple[int, ...]:
    """A context's strides in bytes, as manifests have them.

    TensorRT counts vectors "for a vectorized format": "for TensorFormat::kHWC8, a stride of one
    spans 8 scalars" (getTensorStrides, NvInferRuntime.h); along C we count channels where they
    lie beside each other.
    """
    size = DTYPES[dtype]
    parts = int(engine.get_tensor_components_per_element(name))
    step = size * parts if parts > 0 and format != "LINEAR" else size
    told = [int(each) for each in context.get_tensor_strides(name)]
    if format == "DLA_HWC4" and told[-1] != 1:
        step = size  # nobody says whether this one counts as vectorized: then it does not
    found = [each * step for each in told]
    if format == "LINEAR":
        return tuple(found)
    # leading axes that the tensor lacks have one element: any stride is right
    found = [0] * (4 - len(found)) + found[-4:]
    if format in _INNERMOST:
        found[1] = size
    return tuple(found)


def _format(engine: Any, name: str) -> Optional[str]:
    """TensorRT's name of a format; None where this runtime does not say it."""
    try:
        return str(engine.get_tensor_format(name).name)
    except TypeError:
        pass  # the lean runtime's module lacks the enum's type
    text = str(engine.get_tensor_format_desc(name))
    match = _NAMED.search(text)
    if match:
        return match.group(1)
    for beginning, format in _BEGINNINGS.items():
        if text.startswith(beginning):
            return format
    return None


def _dense(dtype: str, shape: Sequence[int]) -> Tuple[int, ...]:
    found: List[int] = []
    step = DTYPES[dtype]
    for size in reversed(shape):
        found.insert(0, step)
        step *= max(size, 1)
    return tuple(found)
