"""The verdicts that a user's scales allow, and the refusal where scales are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgekit._listed import listed
from edgekit.errors import DataError
from edgekit.network import SAME_VALUES

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Model, Network
    from edgekit.quantize import CacheReading, CalibrationCache, Lack, Scales

__all__ = ["KnownScales", "cache_for_both", "judge_with", "named_scales"]

_SHOWN = 5
_LAYERS_SHOWN = 3


@dataclass(frozen=True, eq=False)
class KnownScales:
    """What a calibration cache gives a network on a board.

    Attributes:
        reading: Its scales, and what is lacking.
        judgement: The verdicts with these scales.
        runs: Where each layer runs that falls from INT8 for want of a scale, for people.
        name: The cache's file.
        header: What the board's TensorRT says of its header; empty where nothing.
        made: Tensors without a scale that rewrites made.
    """

    reading: CacheReading
    judgement: Judgement
    runs: Mapping[str, str]
    name: str
    header: str
    made: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """What a person should know of the cache, what is lacking last."""
        from edgekit.quantize import told_missing

        told = [*self.reading.scales.warnings]
        if self.header:
            told.append(
                f"{self.header}; edgekit calibrate merge {self.name} --tensorrt "
                f"{self.judgement.tensorrt} -o NEW writes the one that it reads"
            )
        bounds = [n for n, why in self.reading.inferred.items() if why == "bound"]
        if bounds:
            told.append(
                f"scales that the calibration cache lacks are bounds that follow from other "
                f"tensors: {listed(map(repr, bounds), 1)}"
            )
        bare = [lack for lack in self.reading.lacks if lack.tensor in self.reading.without]
        told += told_missing(self.reading.listed, bare)
        return [*told, self.lacking] if self.unlisted else told

    @property
    def unlisted(self) -> tuple[Lack, ...]:
        """What is lacking and the cache does not list as having no scale."""
        return tuple(x for x in self.reading.lacks if x.tensor not in self.reading.without)

    @property
    def lacking(self) -> str:
        """The tensors that the cache does not list, and the layers that fall from INT8."""
        lacks = self.unlisted
        told = [f"{lack.tensor!r} ({self._fates(lack.layers)})" for lack in lacks[:_SHOWN]]
        more = len(lacks) - len(told)
        what = "a tensor" if len(lacks) == 1 else f"{len(lacks)} tensors"
        return (
            f"the calibration cache has no scale for {what} that INT8 layers need: "
            + ", ".join(told)
            + (f" and {more} more" if more else "")
        )

    def _fates(self, layers: tuple[str, ...]) -> str:
        by_fate: dict[str, list[str]] = {}
        for name in layers:
            by_fate.setdefault(self.runs[name], []).append(name)
        parts = []
        for fate, names in by_fate.items():
            parts.append(f"{fate}: {listed(names, _LAYERS_SHOWN)}")
        return "; ".join(parts)

    @property
    def refusal(self) -> DataError:
        """The error that names the tensors."""
        hint = (
            f"give ranges (edgekit calibrate merge {self.name} --set NAME=AMAX -o NEW), or let "
            "these layers run in FP16 (--missing fp16, or calibration: {missing: fp16})"
        )
        if self.made:
            hint += f"; {self.made[0]!r} is of a rewrite: calibrate with data, or disable it"
        error = DataError(self.lacking, code="cache.missing", where=self.name, hint=hint)
        error.extra = {
            "missing": [
                {
                    "tensor": lack.tensor,
                    "layers": [{"layer": n, "runs": self.runs[n]} for n in lack.layers],
                }
                for lack in self.unlisted
            ]
        }
        return error


def judge_with(
    cache: CalibrationCache,
    model: Model,
    network: Network,
    judging: Callable[[Mapping[str, float] | None], Judgement],
    *,
    original: Model | None = None,
    name: str = "",
    typed: bool = False,
) -> KnownScales:
    """Judges a network with the scales of a calibration cache.

    Args:
        cache: The cache; its names may be those of the network before it was rewritten.
        model: The model.
        network: Its layers.
        judging: Judges the network with scales; None: as if each tensor had one.
        original: The model before it was rewritten; None where it was not.
        name: The cache's file, for people.
        typed: Whether the scales become Q/DQ nodes, so that TensorRT never reads the cache.

    Raises:
        DataError: The cache names no tensor of the network.
    """
    from edgekit.quantize import scales_of

    best = judging(None)
    able = {layer for layer, verdict in best.verdicts.items() if verdict.placeable}
    reading = scales_of(cache, network, model=model, original=original, on_dla=able, name=name)
    judgement = judging(reading.judged)
    runs = {
        layer: _runs(layer in able, judgement.verdicts[layer].placeable)
        for lack in reading.lacks
        for layer in lack.layers
    }
    made: tuple[str, ...] = ()
    if original is not None and reading.lacks:
        old = original.tensor_names
        made = tuple(
            lack.tensor
            for lack in reading.lacks
            if lack.tensor not in old and lack.tensor not in reading.without
        )
    header = "" if typed else cache.complaint(judgement.tensorrt)
    return KnownScales(reading, judgement, runs, name, header, made)


def _runs(before: bool, after: bool) -> str:
    if before and not after:
        return "from the DLA to the GPU"
    return "FP16 on the DLA" if after else "FP16 on the GPU"


def named_scales(scales: Scales, model: Model) -> Scales:
    """Returns scales of ONNX tensors alone: what is counted, shown and written to a cache.

    Those of the tensors that TensorRT's parser puts between layers (a reshape before a matrix
    product) follow from them; tensors that only hold another one's values have its scale.

    Args:
        scales: Scales of the model's layers.
        model: The model.
    """
    known = _moved({**dict.fromkeys(scales.missing, 0.0), **scales.scales}, model)
    named = model.tensor_names
    return replace(
        scales,
        scales={name: scale for name, scale in known.items() if scale and name in named},
        missing=tuple(name for name, scale in known.items() if not scale and name in named),
    )


def _moved(scales: dict[str, float], model: Model) -> dict[str, float]:
    """Adds the tensors that hold the values of another one; the layers do not have them all."""
    for node in model.proto.graph.node:
        if node.op_type in SAME_VALUES and node.input[0] in scales:
            scales.setdefault(node.output[0], scales[node.input[0]])
    # what a matrix product writes is no layer's where TensorRT merges the moves behind it
    named = model.tensor_names
    for node in reversed(model.proto.graph.node):
        if node.op_type in SAME_VALUES and node.output[0] in scales and node.input[0] in named:
            scales.setdefault(node.input[0], scales[node.output[0]])
    return scales


def cache_for_both(
    scales: Scales, model: Model, original: Model, tensorrt: str
) -> CalibrationCache:
    """Returns a cache of measured scales for the rewritten network and for the original.

    TensorRT on the file as it came asks for the original's tensors; it leaves others aside. Names
    are those of ONNX tensors only: what TensorRT calls the tensors of layers that its parser puts
    in is not known.

    Args:
        scales: Scales of the rewritten network's tensors.
        model: The rewritten model.
        original: The model as it came; the same one where nothing was rewritten.
        tensorrt: The release that will read the cache.
    """
    from edgekit.quantize import cache_of, scales_of

    # 0: no scale suits the tensor, and what needs one is meant to run in FP16
    known = {**dict.fromkeys(scales.missing, 0.0), **scales.scales}
    if model is not original:
        from edgekit.network import layers

        old = original.tensor_names
        # where no tensor is in both networks there is nothing to add
        with suppress(DataError):
            reading = scales_of(
                cache_of(known, tensorrt), layers(original), model=original, original=model
            )
            more = {n: s for n, s in reading.scales.scales.items() if n in old}
            known = {**more, **known}
    known = _moved(_moved(known, model), original)
    named = model.tensor_names | original.tensor_names
    return cache_of({name: scale for name, scale in known.items() if name in named}, tensorrt)
