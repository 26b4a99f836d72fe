"""A batch normalisation as scale and bias, to the bit as TensorRT's ONNX importer folds it.

BuiltinOp BatchNormalization and ModelRefitter.cpp of onnx-tensorrt compute, in the parameters' type
if all four have one narrow type and in float32 otherwise::

    scale'[i] = scale[i] / sqrtf(variance[i] + epsilon)
    bias'[i] = bias[i] - mean[i] * scale'[i]

There epsilon, scale' and bias' have that type; what lies between is float32, for neither of their
narrow types has arithmetic of its own: BFloat16 (bfloat16.hpp) converts to float, and half (ieee/
half.h 1.12 of NVIDIA/TensorRT) computes with float until it is assigned, rounding ties away from
zero. A compiler may fuse float32's last line, so there the last bit of a bias is not certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Dict, Optional, Sequence, Tuple

if TYPE_CHECKING:
    import numpy as np

__all__ = ["folded"]


def folded(
    arrays: Sequence[np.ndarray], kinds: Sequence[Optional[str]], epsilon: float
) -> Tuple[np.ndarray, np.ndarray]:
    """Returns scale and bias.

    Args:
        arrays: Scale, bias, mean and variance, one value per channel; bfloat16 as bit patterns.
        kinds: Their types: "float32", "float16", "bfloat16", ...
        epsilon: The node's.

    Raises:
        ValueError: The parameters differ in size.
    """
    import numpy as np

    if len({array.size for array in arrays}) != 1:
        raise ValueError("a BatchNormalization's parameters differ in size")
    kind = kinds[0] if len(set(kinds)) == 1 else None
    narrow = _NARROW.get(kind or "", _single)
    scale, bias, mean, variance = (_wide(*pair) for pair in zip(arrays, kinds))  # noqa: B905
    with np.errstate(all="ignore"):
        small = _wide(narrow(np.array(epsilon, np.float32)), kind)
        factor = narrow(scale / np.sqrt(variance + small))
        return factor, narrow(bias - mean * _wide(factor, kind))


def _wide(array: np.ndarray, kind: Optional[str]) -> np.ndarray:
    import numpy as np

    if kind == "bfloat16":
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float32)


def _single(array: np.ndarray) -> np.ndarray:
    import numpy as np

    return array.astype(np.float32)


def _half(array: np.ndarray) -> np.ndarray:
    """Nearest float16; ties away from zero."""
    import numpy as np

    sizes = np.abs(array.astype(np.float64))
    # of the last bit: 10 bits below the first one, and 2**-24 for subnormal numbers
    bits = np.ldexp(1.0, np.maximum(np.frexp(sizes)[1] - 11, -24))
    rounded: np.ndarray = np.copysign(np.floor(sizes / bits + 0.5) * bits, array)
    return rounded.astype(np.float16)


def _bfloat16(array: np.ndarray) -> np.ndarray:
    """Bit patterns, rounded to nearest even."""
    import numpy as np

    bits = np.ascontiguousarray(array).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + even) >> np.uint32(16)
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


_NARROW: Dict[str, Callable[[np.ndarray], np.ndarray]] = {"float16": _half, "bfloat16": _bfloat16}
