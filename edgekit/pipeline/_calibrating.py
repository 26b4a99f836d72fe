"""The INT8 scales: measured on inputs, or read from a calibration cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._sources import Sources
from edgekit.pipeline._stored import identity
from edgekit.pipeline._translated import told

if TYPE_CHECKING:
    import numpy as np

    from edgekit.quantize import Scales

__all__ = ["Calibrating"]


class Calibrating(Sources):
    """From the rewritten network to its INT8 scales."""

    def inputs(self) -> Iterable[Mapping[str, np.ndarray]]:
        """Returns the calibration inputs: the user's, or synthetic seeded ones."""
        section = self.file.calibration
        if section.data is None:
            from edgekit.network import synthetic_inputs

            return _Repeat(
                section.count, lambda: synthetic_inputs(self.model, section.count, section.seed)
            )
        from edgekit.quantize import load_data

        options = {"data": self.config.resolve(section.data), "count": section.count,
                   "mean": section.mean, "std": section.std, "layout": section.layout}  # fmt: skip
        return load_data({k: v for k, v in options.items() if v is not None}, self.model)

    @property
    def inputs_text(self) -> str:
        """What the calibration inputs are, for people."""
        section = self.file.calibration
        if section.data is None:
            from edgekit.network import synthetic_description

            return synthetic_description(section.count, section.seed)
        return f"at most {section.count} inputs of {section.data}"

    @cached_property
    def inputs_identity(self) -> list[Any]:
        """What tells one set of calibration inputs from another."""
        section = self.file.calibration
        settings = section.model_dump(exclude={"method", "cache", "missing", "fp16_layers"})
        if section.data is None:
            return [settings]
        path = self.config.resolve(section.data)
        return [settings, identity(path)]

    @cached_property
    def scales(self) -> Scales | None:
        """INT8 scales; None for other precisions."""
        if self.file.precision != "int8":
            self.stored("calibrate", dict, self.model_digest, self.file.precision)
            return None
        if self.known_scales is not None:
            scales = self.known_scales.reading.scales
            if self.translated is None or self.file.calibration.cache is not None:
                return scales
            return replace(scales, method="qdq", data=told(self.translated, self.named))
        from edgekit.quantize import Scales, calibrate

        section = self.file.calibration

        def compute() -> dict[str, Any]:
            scales = calibrate(
                self.model,
                self.network,
                self.inputs(),
                method=section.method,
                describe=self.inputs_text,
                progress=lambda done, total: self.update(done, total, f"input {done} of {total}"),
            )
            return {"scales": dict(scales.scales), "method": scales.method, "data": scales.data,
                    "digest": scales.digest}  # fmt: skip

        stored = self.stored(
            "calibrate", compute, self.model_digest, section.method, self.inputs_identity
        )
        return Scales(**stored)


class _Repeat:
    """A sized iterable that starts anew each time it is iterated."""

    def __init__(self, count: int, begin: Callable[[], Any]) -> None:
        self._count = count
        self._begin = begin

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        return iter(self._begin())
