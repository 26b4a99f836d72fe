"""Activation ranges, scales and where they came from, as values; making them in float32."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log2

#: The largest float32 / 128: with a larger scale a code stands for infinity.
LARGEST_SCALE = float.fromhex("0x1.fffffep+120")


@dataclass(frozen=True, eq=False)
class Ranges:
    """Clipping magnitudes as measured, each tensor by itself.

    Attributes:
        amax: By method ("entropy", "minmax", "percentile", "mse"), then by tensor name, in the
            unit of the tensor; 0 for a tensor that was always zero. Also of ONNX tensors that no
            layer has: reshaped ones, where TensorRT merges the reshape with the next.
        data: What they were measured on, for people.
        samples: Inputs measured.
        warnings: Warnings about the data (a tensor that never changes, ...).
        masked: Tensors in which masked values lie far below all others, so that no scale suits
            both.
    """

    amax: Mapping[str, Mapping[str, float]]
    data: str
    samples: int
    warnings: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A scale that a constraint of the hardware changed.

    Attributes:
        tensor: Its name.
        old: Scale before, None if it had none.
        new: Scale after.
        rule: The rule that requires it, by its id in ``edgekit explain``.
        layers: The layers that tie it to others, in graph order.
        widest: The tensor whose range all that are tied together take.
    """

    tensor: str
    old: float | None
    new: float
    rule: str
    layers: tuple[str, ...]
    widest: str = ""

    @property
    def bits(self) -> float:
        """Resolution lost, in bits: log2 of new over old; 0 if there was no scale before."""
        return log2(self.new / self.old) if self.old else 0.0


@dataclass(frozen=True, eq=False)
class Scales:
    """Symmetric per-tensor INT8 scales: ``scale = amax / 127``.

    Attributes:
        scales: By tensor name; graph inputs and every activation tensor of the layer graph, those
            between layers that TensorRT's parser puts in too. ONNX tensors that no layer has take
            the scale of the tensor whose values they hold.
        method: "entropy", "minmax", "percentile", "mse", "cache" or "qdq".
        data: What they were measured on, for people ("16 synthetic inputs, seed 0").
        digest: SHA-256 (hex) of names and values.
        missing: Float tensors of the network without a scale (a calibration cache may lack
            some, and none may suit what was measured); layers that need them run in FP16.
        changes: What the hardware's constraints changed.
        warnings: What a person should know.
        quantised: Tensors that Q/DQ nodes stand on, where the network is lowered to a strongly
            typed one; None if the builder decides what it rounds to INT8.
    """

    scales: Mapping[str, float]
    method: str
    data: str
    digest: str
    missing: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    quantised: frozenset[str] | None = None


def is_scale(value: float) -> bool:
    """Whether a number can be a tensor's INT8 scale: above 0, in float32 too, and not too large.

    Measuring, calibration caches, Q/DQ nodes and the reference build all use this.
    """
    return 0 < value <= LARGEST_SCALE and float32(value) > 0


def float32(value: float) -> float:
    """Returns the nearest single-precision value (what engines and caches hold)."""
    return float(struct.unpack(">f", struct.pack(">f", value))[0])


def hex_of(scale: float) -> str:
    """Returns the big-endian float32 bits as TensorRT's caches write them, no zero padding."""
    return f"{int.from_bytes(struct.pack('>f', scale), 'big'):x}"


def make_scales(
    scales: Mapping[str, float], *, method: str, data: str, missing: Iterable[str] = ()
) -> Scales:
    """Returns ``Scales`` with float32 values and their digest."""
    rounded = {name: float32(value) for name, value in scales.items()}
    digest = hashlib.sha256()
    for name in sorted(rounded):
        digest.update(f"{name}\0{hex_of(rounded[name])}\n".encode())
    return Scales(rounded, method, data, digest.hexdigest(), tuple(missing))
