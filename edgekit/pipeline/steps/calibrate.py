"""The INT8 scales: the calibration inputs, measured ranges or a calibration cache, and Q/DQ nodes
instead of a cache on strongly typed releases (from TensorRT 11.4.1 on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.dla.precision import Lowering, lowering
from edgekit.network.model import Model
from edgekit.network.source import PYTHON
from edgekit.network.synthetic import synthetic_description, synthetic_inputs
from edgekit.pipeline.cache import digest_of, identity_of_path
from edgekit.pipeline.steps.rewrite import RewrittenModel
from edgekit.pipeline.steps.scales import (
    ScaleBinding,
    describe_widened,
    scale_binding,
    warn_unequal,
)
from edgekit.pipeline.steps.translation import describe_translation
from edgekit.quantize.scales import Ranges, Scales, tied

if TYPE_CHECKING:
    from edgekit.quantize.data.rows import CalibrationSamples


# keys of the configuration's section that do not change the inputs
_OTHERS = frozenset({"method", "cache", "missing", "fp16_layers"})


class Calibration(RewrittenModel):
    """From the rewritten network to its calibration inputs, its INT8 scales and its Q/DQ model.

    Attributes:
        read: How many of the user's inputs there were; None before they were read once.
    """

    read: int | None = None

    def inputs(self) -> Iterable[Mapping[str, np.ndarray]]:
        """Returns the calibration inputs: the user's, or synthetic seeded ones."""
        section = self.file.calibration
        if section.data is None:
            return _Repeat(
                section.count, lambda: synthetic_inputs(self.model, section.count, section.seed)
            )
        return self._own(section.count)

    def _own(self, count: int, skip: int = 0) -> CalibrationSamples:
        from edgekit.quantize.data.load import load_data

        section = self.file.calibration
        data = section.data if self._called else self.config.resolve(section.data)
        options = section.model_dump(exclude={*_OTHERS, "seed"})
        return load_data(
            {**options, "data": data, "count": count}, self.model, folders=self._modules, skip=skip
        )

    def inputs_beyond(self, most: int) -> Iterable[Mapping[str, np.ndarray]]:
        """Returns inputs of the same kind that come after those of the calibration.

        There are fewer than ``most``, or none, where the data have no more, or where those that
        are taken would be others then (``pick: spread``).
        """
        section = self.file.calibration
        if section.data is None:
            return synthetic_inputs(self.model, most, section.seed, first=section.count)
        if section.pick == "spread":
            return ()
        # samples are rows of a batch
        rows = self._own(1).batch
        return self._own(section.count + most * rows, skip=section.count)

    @property
    def inputs_text(self) -> str:
        """What the calibration inputs are, for people."""
        section = self.file.calibration
        if section.data is None:
            return synthetic_description(section.count, section.seed)
        number = f"at most {section.count}" if self.read is None else f"{self.read}"
        return f"{number} input{'' if self.read == 1 else 's'} of {section.data}"

    @cached_property
    def inputs_identity(self) -> list[Any]:
        """What distinguishes one set of calibration inputs from another.

        Of a Python function that is its module's file: what the function reads is not seen.
        """
        section = self.file.calibration
        settings = section.model_dump(exclude=_OTHERS)
        if section.data is None:
            return [settings]
        if not self._called:
            return [settings, identity_of_path(self.config.resolve(section.data))]
        from edgekit.quantize.data.functions import module_file

        self.notes.append(
            f"of {section.data} only the module's file is watched: after a change of anything else "
            "that it reads, --force measures again"
        )
        return [settings, identity_of_path(module_file(section.data, self._modules))]

    @property
    def _called(self) -> bool:
        """Whether the inputs come from a function of the user's."""
        return (self.file.calibration.data or "").startswith(PYTHON)

    @property
    def _modules(self) -> list[Path]:
        """Where a module is looked for before Python's path."""
        return list(dict.fromkeys([self.config.folder.absolute(), Path().absolute()]))

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

    def _tied(self, bound: ScaleBinding) -> Scales:
        """Returns the scales with those equal that layers bind.

        On strongly typed releases they name the tensors that have Q/DQ nodes.
        """
        section = self.file.calibration
        if self.known_scales is None:
            scales = self.scales_by(self.ranges, self.method, bound)
        elif self.translated is None or section.cache is not None:
            scales = tied(self.known_scales.reading.scales, self.network, **bound)
        else:
            scales = self.known_scales.reading.scales
            scales = replace(
                scales, method="qdq", data=describe_translation(self.translated, self.named)
            )
            if self.lowers:
                # typed: the nodes say what is built
                scales = warn_unequal(scales, self.network, bound)
            else:
                # implicit: a cache with these scales, which the constraints bind
                scales = tied(scales, self.network, **bound)
                widened = describe_widened(
                    scales.changes, "TensorRT takes the largest, and so does this"
                )
                scales = replace(scales, warnings=(*scales.warnings, *widened))
        return self._with_nodes(scales)

    @property
    def method(self) -> str:
        """The calibration method, chosen where the configuration leaves it open."""
        raise NotImplementedError

    @property
    def chooses(self) -> bool:
        """Whether scales are measured and the method is chosen by what it gives."""
        section = self.file.calibration
        return self.file.precision == "int8" and section.method == "auto" and self.known is None

    def scales_by(self, ranges: Ranges, method: str, bound: ScaleBinding | None = None) -> Scales:
        """Returns the scales that a method makes of measured ranges.

        On strongly typed releases they name the tensors that have Q/DQ nodes.
        """
        from edgekit.quantize.calibration.calibrate import scales_from

        scales = scales_from(self.network, ranges, method, **(bound or self._binding))
        return self._with_nodes(scales)

    def check_weights(self) -> None:
        """Refuses weights with NaN or infinities; those of one model are read once for it.

        Raises:
            ModelError: "model.nonfinite".
        """
        key = self.cache.key("weights", self.source.digest)
        if self.force or self.cache.get("weights", key) is None:
            from edgekit.quantize.calibration.checks import check_weights

            check_weights(self.source)
            self.cache.put("weights", key, "finite")

    @cached_property
    def ranges(self) -> Ranges:
        """The measured ranges of all methods; they depend on the network and the data alone."""
        from edgekit.quantize.calibration.measure import measure

        key = self.cache.key("measuring", self.model_digest, self.inputs_identity)
        state = self.cache.folder / "measuring" / f"{key}.npz"

        def compute() -> dict[str, Any]:
            interrupted = state.exists()
            runs = report_inference(self, "ranges")

            def progress(done: int, total: int) -> None:
                nonlocal interrupted
                if interrupted and done > 1:
                    self.on_note(f"goes on from input {done}, where the measuring was interrupted")
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
                    self.on_note("what was measured is kept: the same command goes on from there")
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
    def _binding(self) -> ScaleBinding:
        """What binds scales; layers that the accuracy gate keeps in FP16 are found with them."""
        return scale_binding(self.judgement, self.fp16_layers(self.network, gate=False))

    # INT8 on strongly typed releases (from TensorRT 11.4.1 on): Q/DQ nodes instead of a cache.
    #
    # Planning, costs and the reference build use the plain network, its scales and the precision
    # of each layer between Q/DQ nodes. The nodes are no layers of the plan: they take no time,
    # since each is a part of the kernel that writes or reads its tensor (assumed; NVIDIA's DLA
    # operator matrix says of both "can be collapsed to INT8 scaling factor"). Where INT8 and FP16
    # meet, the plan pays for the reformat as in any other build.

    @cached_property
    def plan_scales(self) -> Scales | None:
        """The INT8 scales of what is built."""
        raise NotImplementedError

    def _with_nodes(self, scales: Scales) -> Scales:
        if scales.quantised is not None or not self.lowers:
            return scales
        quantised = frozenset(self._lowered(scales).tensors)
        digest = digest_of([scales.digest, sorted(quantised)])
        return replace(scales, quantised=quantised, digest=digest)

    def _lowered(self, scales: Scales) -> Lowering:
        network = self.network
        return lowering(network, scales.scales, self.fp16_layers(network))

    @property
    def typed(self) -> Model:
        """The Q/DQ model: the user's own where nothing was rewritten, or else a lowered one."""
        from edgekit.quantize.qdq.to_explicit import to_qdq

        scales = self.plan_scales
        assert scales is not None, "asked for where the release is strongly typed"
        if self.translated is not None and self.model is self.source and not self._keeps_more:
            return self.named
        network = self.network
        return to_qdq(self.model, network, scales.scales, fp16_layers=self.fp16_layers(network))

    @property
    def typed_identity(self) -> list[Any]:
        """What ``typed`` depends on."""
        scales = self.plan_scales
        fp16 = sorted(self.fp16_layers(self.network))
        return [
            self.named.digest, self.model_digest, self._keeps_more, fp16,
            scales and dict(scales.scales),
        ]  # fmt: skip

    @property
    def _keeps_more(self) -> bool:
        """Whether layers stay in FP16 that the user's Q/DQ model has in INT8, or scales differ."""
        section = self.file.calibration
        return bool(section.fp16_layers or self.fp16_by_gate or section.cache)


class _Repeat:
    """A sized iterable that starts anew each time it is iterated."""

    def __init__(self, count: int, begin: Callable[[], Any]) -> None:
        self._count = count
        self._begin = begin

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        return iter(self._begin())


def report_inference(work: Calibration, what: str) -> Callable[[int, int], None]:
    """Returns the progress callback of ``measure``: runs for exact counts are named apart."""
    first: list[int] = []

    def report(done: int, total: int) -> None:
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

    return report
