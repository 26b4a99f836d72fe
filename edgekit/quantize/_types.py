"""The values of this floor: activation ranges, scales and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Change", "Ranges", "Scales"]


@dataclass(frozen=True, eq=False)
class Ranges:
    """Clipping magnitudes as measured, each tensor by itself.

    Attributes:
        amax: By method ("entropy", "minmax", "percentile", "mse"), then by tensor name, in the
            unit of the tensor; 0 for a tensor that was always zero. Also of ONNX tensors that no
            layer has: reshaped ones, where TensorRT merges the reshape with the next.
        data: What they were measured on, for people.
        samples: Inputs measured.
        warnings: What a person should know of the data (a tensor that never changes, ...).
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
        old: Scale before, None where it had none.
        new: Scale after.
        rule: The rule that asks for it, as ``edgekit explain`` knows it.
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
        """Resolution lost, in bits: log2 of new over old; 0 where there was no scale before."""
        from math import log2

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
            typed one; None where the builder decides what it rounds to INT8.
    """

    scales: Mapping[str, float]
    method: str
    data: str
    digest: str
    missing: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = field(default=())
    quantised: frozenset[str] | None = None
