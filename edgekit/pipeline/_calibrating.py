"""The INT8 scales: measured on inputs, or read from a calibration cache."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._inputs import Inputs
from edgekit.pipeline._tied import Binding, binding, told_unequal, widened
from edgekit.pipeline._translated import told

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgekit.quantize import Ranges, Scales

__all__ = ["Calibrating", "runs_told"]


def runs_told(work: Inputs, what: str) -> Callable[[int, int], None]:
    """Returns what ``measure`` may tell its runs: those for exact counts are named apart."""
    first: list[int] = []

    def told(done: int, total: int) -> None:
        first[:] = first or [total]
        if total == first[0]:
            of = f" of {total}" if total else ""
            work.update(done, total, f"{what}, input {done}{of}")
        else:  # as many once more
            count = total // 2
            work.update(
                done - count, count,
                f"exact counts for the {what}, input {done - count} of {count}",
            )  # fmt: skip

    return told


class Calibrating(Inputs):
    """From the rewritten network to its INT8 scales."""

    @cached_property
    def scales(self) -> Scales | None:
        """INT8 scales for every placement; None for other precisions.

        What any layer that the DLA can run ties is equal, wherever a plan has the layer.

        Raises:
            ModelError: "model.nonfinite": a weight has NaN or infinite values.
        """
        if self.file.precision != "int8":
            self.stored("calibrate", dict, self.model_digest, self.file.precision)
            return None
        # scales that were given say nothing of the weights
        self.check_weights()
        return self._tied(self._binding)

    def _tied(self, bound: Binding) -> Scales:
        """Returns the scales with those equal that layers bind."""
        from edgekit.quantize import tied

        section = self.file.calibration
        if self.known_scales is None:
            scales = self.scales_by(self.ranges, self.method, bound)
        elif self.translated is None or section.cache is not None:
            scales = tied(self.known_scales.reading.scales, self.network, **bound)
        else:
            scales = self.known_scales.reading.scales
            scales = replace(scales, method="qdq", data=told(self.translated, self.named))
            if self.lowers:
                # typed: the nodes say what is built
                scales = told_unequal(scales, self.network, bound)
            else:
                # implicit: a cache with these scales, which the constraints bind
                scales = tied(scales, self.network, **bound)
                told_of = widened(scales.changes, "TensorRT takes the largest, and so does this")
                scales = replace(scales, warnings=(*scales.warnings, *told_of))
        return scales

    @property
    def method(self) -> str:
        """The calibration method, chosen where the configuration leaves it open."""
        raise NotImplementedError

    @property
    def chooses(self) -> bool:
        """Whether scales are measured and the method is chosen by what it gives."""
        section = self.file.calibration
        return self.file.precision == "int8" and section.method == "auto" and self.known is None

    def scales_by(self, ranges: Ranges, method: str, bound: Binding | None = None) -> Scales:
        """Returns the scales that a method makes of measured ranges."""
        from edgekit.quantize import scales_from

        return scales_from(self.network, ranges, method, **(bound or self._binding))

    def check_weights(self) -> None:
        """Refuses weights with NaN or infinities; those of one model are read once for it.

        Raises:
            ModelError: "model.nonfinite".
        """
        key = self.cache.key("weights", self.source.digest)
        if self.force or self.cache.get("weights", key) is None:
            from edgekit.quantize import check_weights

            check_weights(self.source)
            self.cache.put("weights", key, "finite")

    @cached_property
    def ranges(self) -> Ranges:
        """The measured ranges of all methods; they depend on the network and the data alone."""
        from edgekit.quantize import Ranges, measure

        key = self.cache.key("measuring", self.model_digest, self.inputs_identity)
        state = self.cache.folder / "measuring" / f"{key}.npz"

        def compute() -> dict[str, Any]:
            interrupted = state.exists()
            runs = runs_told(self, "ranges")

            def progress(done: int, total: int) -> None:
                nonlocal interrupted
                if interrupted and done > 1:
                    self.tell(f"goes on from input {done}, where the measuring was interrupted")
                interrupted = False
                runs(done, total)

            try:
                ranges = measure(
                    self.model,
                    self.inputs(),
                    network=self.network,
                    describe=self.inputs_text,
                    progress=progress,
                    resume=state,
                )
            except KeyboardInterrupt:
                if state.exists():
                    self.tell("what was measured is kept: the same command goes on from there")
                raise
            return {
                "amax": {method: dict(amax) for method, amax in ranges.amax.items()},
                "data": ranges.data,
                "samples": ranges.samples,
                "warnings": list(ranges.warnings),
                "masked": list(ranges.masked),
            }

        found = self.stored("calibrate", compute, self.model_digest, self.inputs_identity)
        self.read = found["samples"]
        return Ranges(**{**found, "data": self.inputs_text})

    @property
    def _binding(self) -> Binding:
        """What binds scales; layers that the accuracy gate keeps in FP16 are found with them."""
        return binding(self.judgement, self.fp16_layers(self.network, gate=False))
