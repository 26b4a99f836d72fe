"""Checks of one set of inputs against the model's: names, shapes, types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network import Model

__all__ = ["check_feed", "input_specs"]


def input_specs(model: Model) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Returns NumPy type and static shape by input name."""
    return {value.name: _spec(value) for value in model.proto.graph.input}


def _spec(value: onnx.ValueInfoProto) -> tuple[np.dtype, tuple[int, ...]]:
    from onnx import helper

    tensor = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    return helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape


def check_feed(
    feed: Mapping[str, np.ndarray], model: Model, *, where: str = ""
) -> dict[str, np.ndarray]:
    """Returns the inputs in the model's order, in its types, contiguous.

    Types are converted within a kind (float64 to float32) and from integers to floats.

    Raises:
        DataError: A name is unknown or missing, a shape differs, or a type cannot be converted.
    """
    import numpy as np

    specs = input_specs(model)
    unknown = [name for name in feed if name not in specs]
    missing = [name for name in specs if name not in feed]
    if unknown or missing:
        parts = []
        if unknown:
            parts.append("unknown inputs " + ", ".join(map(repr, unknown)))
        if missing:
            parts.append("missing inputs " + ", ".join(map(repr, missing)))
        raise DataError(
            "; ".join(parts),
            code="data.inputs",
            where=where,
            hint="the model's inputs are " + ", ".join(map(repr, specs)),
        )
    checked = {}
    for name, (dtype, shape) in specs.items():
        array = np.asarray(feed[name])
        if array.shape != shape:
            raise DataError(
                f"input {name!r} has shape {list(array.shape)}",
                code="data.shape",
                where=where,
                hint=f"the model expects {list(shape)}",
            )
        if not np.can_cast(array.dtype, dtype, casting="same_kind"):
            raise DataError(
                f"input {name!r} has type {array.dtype}",
                code="data.dtype",
                where=where,
                hint=f"the model expects {dtype}",
            )
        checked[name] = np.ascontiguousarray(array, dtype).reshape(shape)
    return checked
