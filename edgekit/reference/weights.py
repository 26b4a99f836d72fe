"""Weights: their transforms, their digests, and the same transforms on other values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.dla.scales import LEVELS, channel_blocks, weight_scales
from edgekit.errors import DataError
from edgekit.files import forget_pages
from edgekit.reference.artefacts import Weight
from edgekit.text import counted, listed

if TYPE_CHECKING:
    from edgekit.network.model import Model


Keep = Callable[[str, np.ndarray], np.ndarray]

_LISTED = 20


def weight_digest(value: np.ndarray) -> str:
    """Returns the SHA-256 (hex) of the value's little-endian C-order bytes."""
    array = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False)
    # without a copy: tobytes() would take the size of the weight again
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def transform_value(value: np.ndarray, transform: str) -> np.ndarray:
    """Applies a ``Weight.transform``: "none", "fp16", "int8:AXIS" or "int8-scale:AXIS".

    INT8 is TensorRT's symmetric scheme per output channel: scale = amax / 127, code = round half
    to even of value / scale, in [-127, 127]. A channel of zeros has scale 1 and codes 0; so has a
    channel whose scale would be below the normal float32 numbers (amax below 1.5e-36).

    Raises:
        DataError: Code ``weight.not_finite``; INT8 of a weight with NaN or infinities.
    """
    kind, _, axis = transform.partition(":")
    if kind == "none":
        return np.ascontiguousarray(value)
    if kind == "fp16":
        # magnitudes above 65504 become infinite, as on the hardware
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(value, np.float16)
    if kind == "int8-scale":
        return _channel_scales(value, int(axis))
    scales = _channel_scales(value, int(axis))
    codes = np.empty(value.shape, np.int8)
    source, target = np.moveaxis(value, int(axis), 0), np.moveaxis(codes, int(axis), 0)
    # in blocks: float copies of a whole large weight would double its memory
    for block in channel_blocks(source):
        scale = scales[block].reshape(-1, *[1] * (value.ndim - 1))
        rounded = np.rint(source[block] / scale)
        target[block] = np.clip(rounded, -LEVELS, LEVELS, out=rounded)
    return codes


def _channel_scales(value: np.ndarray, axis: int) -> np.ndarray:
    scales = weight_scales(value, axis)
    if not np.isfinite(scales).all():
        channel = int(np.flatnonzero(~np.isfinite(scales))[0])
        raise DataError(
            f"a weight has NaN or infinite values, the first in output channel {channel}",
            code="weight.not_finite",
            hint="export the model again from a valid checkpoint; INT8 needs finite weights",
        )
    return scales


class WeightStore:
    """Collects the weights that a build's engines lack; each transform is computed once.

    Args:
        model: The model with the weights.
        keep: Stores a value under its digest and returns it, such as a map of a file; by default
            the values stay in memory.
    """

    def __init__(self, model: Model, keep: Keep | None = None) -> None:
        self._model, self._keep = model, keep
        self._made: dict[tuple[str, str], Weight] = {}
        self.weights: dict[str, Weight] = {}
        self.values: dict[str, np.ndarray] = {}

    def get(self, source: str, transform: str) -> Weight:
        """Returns the weight for a source and transform, computed at first use."""
        key = (source, transform)
        if key not in self._made:
            name = self._weight_name(source, transform)
            weight = _make(name, source, transform, self._model, self.values, self._keep)
            self._made[key] = weight
            self.weights[weight.name] = weight
        return self._made[key]

    def _weight_name(self, source: str, transform: str) -> str:
        kind, _, axis = transform.partition(":")
        suffix = {"none": "", "fp16": "#fp16", "int8": "#int8", "int8-scale": "#scale"}[kind]
        name = source + suffix
        # a weight that two layers read along different channel axes
        return f"{name}@{axis}" if name in self.weights else name


def _make(
    name: str,
    source: str,
    transform: str,
    model: Model,
    values: dict[str, np.ndarray],
    keep: Keep | None,
) -> Weight:
    """Computes a weight and puts its value into ``values``."""
    original = model.weights[source]
    try:
        value = transform_value(original, transform)
    except DataError as error:
        raise DataError(
            f"{source!r}: {error.message}", code=error.code, where=source, hint=error.hint
        ) from None
    digest = weight_digest(value)
    shape = tuple(int(size) for size in value.shape)
    made = Weight(name, source, transform, digest, str(value.dtype), shape)
    # tied weights are kept once
    if digest not in values:
        values[digest] = value if keep is None else keep(digest, value)
    # the weight is a mapped file, and the next weights need the memory
    forget_pages(original)
    return made


def derive_weights(
    weights: Mapping[str, Weight], model: Model, keep: Keep | None = None
) -> tuple[dict[str, Weight], dict[str, np.ndarray]]:
    """Applies the transforms of a build to another model's weights: refit without a build.

    Args:
        weights: ``Artefacts.weights`` (or a bundle's) of the build.
        model: The model with the new values.
        keep: As in ``WeightStore``.

    Returns:
        The weights by name with new digests, and the values by digest.

    Raises:
        DataError: Code ``refit.mismatch``; weights are missing, extra, or differ in shape or
            type; the hint lists them.
    """
    _check_same(weights, model)
    derived: dict[str, Weight] = {}
    values: dict[str, np.ndarray] = {}
    for name, weight in weights.items():
        derived[name] = _make(name, weight.source, weight.transform, model, values, keep)
    return derived, values


def _check_same(weights: Mapping[str, Weight], model: Model) -> None:
    sources: dict[str, Weight] = {}
    for weight in weights.values():
        # scales do not have the source's shape, but the codes do, and always exist
        if not weight.transform.startswith("int8-scale"):
            sources[weight.source] = weight
    faults = [f"{name} (missing)" for name in sources if name not in model.weights]
    faults += [f"{name} (not in the build)" for name in model.weights if name not in sources]
    for name, weight in sources.items():
        if name not in model.weights:
            continue
        value = model.weights[name]
        if tuple(value.shape) != weight.shape:
            faults.append(f"{name} (shape {list(value.shape)}, built with {list(weight.shape)})")
        dtype = weight.dtype if weight.transform == "none" else "float32"
        if str(value.dtype) != dtype:
            faults.append(f"{name} (type {value.dtype}, built with {dtype})")
    if faults:
        raise DataError(
            f"{counted(len(faults), 'weight')} with another name, type or shape than in the build",
            code="refit.mismatch",
            where=model.source,
            hint="build again, or give the same network with other values: "
            + listed(faults, _LISTED),
        )


def hint_for_other_weights(weights: Path, *, calibrated: bool) -> str:
    """Returns a hint for a board whose engines deviate with the weights of another file.

    Args:
        weights: The file.
        calibrated: True if the engines have INT8 scales.
    """
    built = f"build engines from {weights} itself: set it as the model and use edgekit run"
    if not calibrated:
        return f"these weights may exceed the range or precision of FP16; {built}"
    return (
        "activations with these weights may not match the calibrated ranges; calibrate "
        f"again and {built}"
    )
