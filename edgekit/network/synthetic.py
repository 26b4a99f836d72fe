"""Seeded inputs for any model: natural-looking images for image inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from edgekit.errors import ModelError
from edgekit.text import counted

if TYPE_CHECKING:
    from edgekit.network.model import Model


# cells along the short side of the colour fields, coarse to fine: amplitudes fall with frequency,
# as in the spectra of photographs
_FIELDS = ((2, 1.0), (5, 0.8), (11, 0.6), (28, 0.5), (60, 0.4), (110, 0.3))
_SHAPES = 9
_NOISE = 0.2
# values saturate smoothly at this number of standard deviations, as in sensors
_LIMIT = 1.8


def stream(*parts: object) -> np.random.Generator:
    """Returns a random stream that depends only on ``parts``, not on the order of use."""
    # hash() differs from process to process, SHA-256 does not
    text = "\x1f".join(str(part) for part in parts)
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
    return np.random.Generator(np.random.PCG64(seed))


def values(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], limit: int | None
) -> np.ndarray[Any, Any]:
    """Draws an input of ``shape``: see ``synthetic_inputs``; ``limit`` bounds integers."""
    image = len(shape) == 4 and 1 <= shape[1] <= 4 and min(shape[2:]) >= 16
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu" and not (image and dtype == np.uint8):
        return rng.integers(0, limit or 2, shape).astype(dtype)
    if not image:
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    batch = np.stack(
        [synthetic_image(rng, (shape[1], shape[2], shape[3])) for _ in range(shape[0])]
    )
    if dtype == np.uint8:
        # three standard deviations of 48 around 128 just exceed the range of uint8
        batch = np.clip(np.rint(128 + 48 * batch), 0, 255)
    return batch.astype(dtype)


def synthetic_image(
    rng: np.random.Generator, shape: tuple[int, int, int]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Draws an image: colour fields at several scales, overlapping shapes, and grain.

    Args:
        rng: The source of randomness.
        shape: Channels, rows, columns.

    Returns:
        float32 of ``shape``, mean 0 and variance 1 over the whole image.
    """
    channels, rows, columns = shape
    image = np.zeros(shape, np.float32)
    for cells, amplitude in _FIELDS:
        weight = amplitude * rng.uniform(0.3, 1.3)
        image += np.float32(weight) * _draw_field(rng, shape, cells)
    y, x = np.meshgrid(np.linspace(-1, 1, rows), np.linspace(-1, 1, columns), indexing="ij")
    for _ in range(_SHAPES):
        mask = _draw_mask(rng, y, x)
        colour = rng.normal(0, 1.4, (channels, 1, 1))
        texture = rng.uniform(0.0, 0.5)
        image = np.where(mask, texture * image + colour, image).astype(np.float32)
    image += np.float32(_NOISE) * rng.standard_normal(shape, dtype=np.float32)
    return _standardise(_LIMIT * np.tanh(_standardise(image) / _LIMIT))


def _standardise(image: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
    centred = image - image.mean()
    return np.asarray(centred / max(float(centred.std()), 1e-6), np.float32)


def _draw_field(
    rng: np.random.Generator, shape: tuple[int, int, int], cells: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    channels, rows, columns = shape
    grid = rng.standard_normal((channels, cells + 1, cells + 1), dtype=np.float32)
    smooth = _interpolation(rows, cells) @ grid @ _interpolation(columns, cells).T
    return np.asarray(smooth, np.float32)


def _interpolation(size: int, cells: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns the matrix [size, cells + 1] that blends grid points with a smooth step."""
    place = (np.arange(size) + 0.5) / size * cells
    left = np.minimum(place.astype(np.int64), cells - 1)
    t = place - left
    t = t * t * (3 - 2 * t)
    matrix = np.zeros((size, cells + 1), np.float32)
    matrix[np.arange(size), left] = 1 - t
    matrix[np.arange(size), left + 1] = t
    return matrix


def _draw_mask(
    rng: np.random.Generator, y: np.ndarray[Any, Any], x: np.ndarray[Any, Any]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Draws a disc, a rectangle, a grating or a half plane with random position and angle."""
    kind = rng.integers(4)
    cy, cx = rng.uniform(-0.9, 0.9, 2)
    angle = rng.uniform(0, np.pi)
    long, short = rng.uniform(0.15, 0.7), rng.uniform(0.08, 0.5)
    u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
    v = (y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)
    if kind == 0:
        return np.asarray((u / long) ** 2 + (v / short) ** 2 < 1)
    if kind == 1:
        return np.asarray((np.abs(u) < long) & (np.abs(v) < short))
    if kind == 2:
        waves = np.sin(u * rng.uniform(8, 60)) > 0
        return np.asarray(waves & ((u / 0.8) ** 2 + (v / long) ** 2 < 1))
    return np.asarray(u > rng.uniform(0.2, 0.9))


def synthetic_inputs(
    model: Model, count: int, seed: int = 0, *, first: int = 0
) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """Yields ``count`` seeded sets of inputs that fit ``model``.

    Float inputs of four dimensions with 1 to 4 channels and at least 16 rows and columns get
    images (mean 0, variance 1 over the image); other floats are standard normal; integers are
    row numbers of the table that they index, or 0 and 1; booleans are True or False with equal
    probability. Item i depends only on (seed, i, input name, shape).

    Args:
        model: The model, with the inputs' names, types and static shapes.
        count: Number of items.
        seed: Another seed gives other data.
        first: Number of the first item.

    Yields:
        Arrays by input name, with the types and shapes of the model.

    Raises:
        ModelError: An input has no static shape or a type without a NumPy counterpart.
    """
    graph = model.proto.graph
    limits = _index_limits(graph)
    specs = [_input_spec(value) for value in graph.input]
    for index in range(first, first + count):
        yield {
            name: values(stream("input", seed, index, name, shape), shape, dtype, limits.get(name))
            for name, shape, dtype in specs
        }


def synthetic_description(count: int, seed: int) -> str:
    """Returns a description of ``synthetic_inputs(model, count, seed)`` for users."""
    return f"{counted(count, 'synthetic image')}, seed {seed}"


def _index_limits(graph: onnx.GraphProto) -> Mapping[str, int]:
    """Returns exclusive upper bounds for inputs that index a weight's rows (Gather)."""
    dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    limits: dict[str, int] = {}
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in dims:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            size = dims[node.input[0]][axis]
            # two tables with different numbers of rows may have the same indices
            limits[node.input[1]] = min(size, limits.get(node.input[1], size))
    return limits


def _input_spec(value: onnx.ValueInfoProto) -> tuple[str, tuple[int, ...], np.dtype[Any]]:
    tensor = value.type.tensor_type
    shape = tuple(d.dim_value for d in tensor.shape.dim)
    if not value.type.HasField("tensor_type") or not all(
        d.HasField("dim_value") for d in tensor.shape.dim
    ):
        raise ModelError(
            f"input {value.name!r} has no static shape",
            code="model.dynamic",
            where=value.name,
            hint="give its sizes with model.shapes (--shape)",
        )
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if dtype.kind not in "biuf":
        raise ModelError(
            f"edgekit cannot generate synthetic data for input {value.name!r} of type {dtype}",
            code="model.input_type",
            where=value.name,
            hint="give data in calibration.data",
        )
    return value.name, shape, dtype
