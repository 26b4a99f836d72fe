"""Types and shapes of tensors as onnx writes them, each made once."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["FLOAT", "STRING", "dtype_name", "elem_of", "tensor_type"]

# of onnx.TensorProto
FLOAT, STRING = 1, 8


@cache
def dtype_name(elem: int) -> str:
    """Returns NumPy's name of an ONNX element type."""
    from onnx import helper

    return str(helper.tensor_dtype_to_np_dtype(elem).name)


@lru_cache(maxsize=256)
def elem_of(dtype: np.dtype) -> int:
    """Returns ONNX's element type of a NumPy type."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


@lru_cache(maxsize=4096)
def tensor_type(elem: int, shape: tuple[int, ...]) -> onnx.TypeProto:
    """Returns the type of a tensor; it is shared, so do not change it."""
    from onnx import helper

    return helper.make_tensor_type_proto(elem, shape)
