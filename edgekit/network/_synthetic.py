"""Seeded inputs for any model: natural-looking images where it takes images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from edgekit.network._types import Model

__all__ = ["synthetic_description", "synthetic_inputs"]


def synthetic_inputs(
    model: Model, count: int, seed: int = 0, *, first: int = 0
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yields ``count`` seeded sets of inputs that fit ``model``.

    Float inputs of four dimensions with 1 to 4 channels and at least 16 rows and columns get
    images (mean 0, variance 1 over the image); other floats are standard normal; integers are
    row numbers of the table that they index, or 0 and 1; booleans are coin flips. Item i depends
    only on (seed, i, input name, shape).

    Args:
        model: Gives the inputs' names, types and static shapes.
        count: Number of items.
        seed: Another seed gives other data.
        first: Number of the first item.

    Yields:
        Arrays by input name, with the types and shapes of the model.

    Raises:
        ModelError: An input has no static shape or a type without a NumPy counterpart.
    """
    from edgekit.network._synthetic_data import stream, values

    graph = model.proto.graph
    limits = _index_limits(graph)
    specs = [_spec(value) for value in graph.input]
    for index in range(first, first + count):
        yield {
            name: values(stream("input", seed, index, name, shape), shape, dtype, limits.get(name))
            for name, shape, dtype in specs
        }


def synthetic_description(count: int, seed: int) -> str:
    """Says for people what ``synthetic_inputs(model, count, seed)`` yields."""
    noun = "image" if count == 1 else "images"
    return f"{count} synthetic {noun}, seed {seed}"


def _index_limits(graph: onnx.GraphProto) -> Mapping[str, int]:
    """Exclusive upper bounds for inputs that index a weight's rows (Gather)."""
    dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    limits: dict[str, int] = {}
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in dims:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            size = dims[node.input[0]][axis]
            limits[node.input[1]] = min(size, limits.get(node.input[1], size))
    return limits


def _spec(value: onnx.ValueInfoProto) -> tuple[str, tuple[int, ...], np.dtype[Any]]:
    import numpy as np
    from onnx import helper

    tensor = value.type.tensor_type
    shape = tuple(d.dim_value for d in tensor.shape.dim)
    if not value.type.HasField("tensor_type") or not all(
        d.HasField("dim_value") for d in tensor.shape.dim
    ):
        raise ModelError(
            f"input {value.name!r} has no static shape",
            code="model.dynamic",
            where=value.name,
            hint="give its sizes under model.shapes",
        )
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if dtype.kind not in "biuf":
        raise ModelError(
            f"input {value.name!r} has type {dtype}, for which there is no synthetic data",
            code="model.input_type",
            where=value.name,
            hint="give data under calibration.data",
        )
    return value.name, shape, dtype
