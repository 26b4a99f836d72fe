"""Given INT8 scales: the verdicts that they allow, the error if some are missing, and the tensors
that must share a scale on the board.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

from edgekit.dla.judge import judge
from edgekit.error_document import UnscaledLayer, UnscaledTensor
from edgekit.errors import DataError
from edgekit.network.layer_names import layers_named
from edgekit.network.lowering.layers import layers
from edgekit.network.model import FOLLOWED, SAME_VALUES, Model, Network
from edgekit.quantize.caches import CacheReading, CalibrationCache, make_cache, scales_from_cache
from edgekit.quantize.scales import Change, Scales, tie, tie_cache_scales, violations
from edgekit.text import counted, listed, yaml_list
from edgekit_device.protocol.codec import write

if TYPE_CHECKING:
    from edgekit.dla.verdicts import Judgement
    from edgekit.quantize.missing_scales import MissingScale
    from edgekit.quantize.qdq.to_implicit import Translated
    from edgekit.targets.board import Target


_SHOWN = 5
_LAYERS_SHOWN = 3
# the network is judged unchanged, and gets its Q/DQ nodes afterwards
_LOWERED = "general.implicit_int8"
_CHANGES_SHOWN = 3


@dataclass(frozen=True, eq=False)
class KnownScales:
    """The scales that a calibration cache gives a network on a board.

    Attributes:
        reading: Its scales, and the tensors without a scale.
        judgement: The verdicts with these scales.
        runs: The device of each layer that leaves INT8 because a scale is missing, for people.
        name: The cache's file.
        header: The complaint of the board's TensorRT about its header; empty if none.
        made: Tensors without a scale that rewrites created.
    """

    reading: CacheReading
    judgement: Judgement
    runs: Mapping[str, str]
    name: str
    header: str
    made: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """Notes on the cache for the user, missing scales last."""
        from edgekit.quantize.calibration.calibrate import describe_missing

        texts = [*self.reading.scales.warnings]
        if self.header:
            texts.append(
                f"{self.header}; convert it with: edgekit calibrate merge {self.name} "
                f"--tensorrt {self.judgement.tensorrt} -o NEW"
            )
        bounds = [n for n, why in self.reading.inferred.items() if why == "bound"]
        if bounds:
            texts.append(
                "scales missing in the calibration cache are bounds derived from other "
                f"tensors: {listed(map(repr, bounds), 1)}; to set them: edgekit calibrate merge "
                f"{self.name} --set TENSOR=AMAX -o NEW"
            )
        bare = [lack for lack in self.reading.lacks if lack.tensor in self.reading.without]
        texts += describe_missing(self.reading.listed, bare)
        if self.unlisted:
            texts.append(
                f"{self.lacking}; to give them ranges: edgekit calibrate merge {self.name} --set "
                "TENSOR=AMAX -o NEW; to run the layers in FP16: calibration: {missing: fp16}"
            )
        return texts

    @property
    def unlisted(self) -> tuple[MissingScale, ...]:
        """Missing scales, except of tensors that the cache lists without a scale."""
        return tuple(x for x in self.reading.lacks if x.tensor not in self.reading.without)

    @property
    def lacking(self) -> str:
        """The tensors that the cache does not list, and the layers that leave INT8."""
        lacks = self.unlisted
        texts = [
            f"{lack.tensor!r} ({self._describe_fates(lack.layers)})" for lack in lacks[:_SHOWN]
        ]
        more = len(lacks) - len(texts)
        what = "a tensor" if len(lacks) == 1 else counted(len(lacks), "tensor")
        return (
            f"the calibration cache has no scale for {what} that INT8 layers need: "
            + ", ".join(texts)
            + (f" and {more} more" if more else "")
        )

    def _describe_fates(self, layers: tuple[str, ...]) -> str:
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
            f"set ranges (edgekit calibrate merge {self.name} --set NAME=AMAX -o NEW), or "
            f"run these layers in FP16 (--missing fp16, or calibration: {{missing: fp16}})"
        )
        if self.made:
            hint += (
                f"; {self.made[0]!r} comes from a rewrite: calibrate with data, or disable the "
                "rewrite"
            )
        error = DataError(self.lacking, code="cache.missing", where=self.name, hint=hint)
        error.extra["missing"] = [
            write(
                UnscaledTensor(
                    lack.tensor, tuple(UnscaledLayer(name, self.runs[name]) for name in lack.layers)
                )
            )
            for lack in self.unlisted
        ]
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
        judging: Judges the network with scales; with None, as if each tensor had a scale.
        original: The model before it was rewritten; None if it was not rewritten.
        name: The cache's file, for people.
        typed: True if the scales become Q/DQ nodes, so that TensorRT never reads the cache.

    Raises:
        DataError: The cache names no tensor of the network.
    """
    # the verdicts with every scale separate the effect of a missing scale from other reasons
    best = judging(None)
    able = {layer for layer, verdict in best.verdicts.items() if verdict.placeable}
    reading = scales_from_cache(
        cache, network, model=model, original=original, on_dla=able, name=name
    )
    judgement = judging(reading.judged)
    runs = {
        layer: _describe_move(layer in able, judgement.verdicts[layer].placeable)
        for lack in reading.lacks
        for layer in lack.layers
    }
    made: tuple[str, ...] = ()
    if original is not None and reading.lacks:
        old = original.graph.tensor_names
        made = tuple(
            lack.tensor
            for lack in reading.lacks
            if lack.tensor not in old and lack.tensor not in reading.without
        )
    header = "" if typed else cache.complaint(judgement.tensorrt)
    return KnownScales(reading, judgement, runs, name, header, made)


def _describe_move(before: bool, after: bool) -> str:
    if before and not after:
        return "from the DLA to the GPU"
    return "FP16 on the DLA" if after else "FP16 on the GPU"


def named_scales(scales: Scales, model: Model) -> Scales:
    """Returns the scales of ONNX tensors only, to be counted, shown and written to a cache.

    Scales of tensors that TensorRT's parser inserts between layers (a reshape before a matrix
    product) follow from these. A tensor that only holds another tensor's values has its scale.

    Args:
        scales: Scales of the model's layers.
        model: The model.
    """
    known = _with_moved({**dict.fromkeys(scales.missing, 0.0), **scales.scales}, model)
    named = model.graph.tensor_names
    return replace(
        scales,
        scales={name: scale for name, scale in known.items() if scale and name in named},
        missing=tuple(name for name, scale in known.items() if not scale and name in named),
    )


def _with_moved(scales: dict[str, float], model: Model) -> dict[str, float]:
    """Adds the tensors that hold another tensor's values; the layers lack some of these."""
    for node in model.proto.graph.node:
        if node.op_type in SAME_VALUES and node.input[0] in scales:
            scales.setdefault(node.output[0], scales[node.input[0]])
    # if TensorRT merges the moves after a matrix product, no layer has the product's result
    named = model.graph.tensor_names
    for node in reversed(model.proto.graph.node):
        if node.op_type in SAME_VALUES and node.output[0] in scales and node.input[0] in named:
            scales.setdefault(node.input[0], scales[node.output[0]])
    return scales


def cache_for_both(
    scales: Scales, model: Model, original: Model, tensorrt: str
) -> CalibrationCache:
    """Returns a cache of measured scales for the rewritten network and for the original.

    TensorRT reads the original's tensors for the original file and ignores others. Only names of
    ONNX tensors are written: TensorRT's names for the tensors of inserted layers are unknown.

    Args:
        scales: Scales of the rewritten network's tensors.
        model: The rewritten model.
        original: The original model; the same object if no rewrite was made.
        tensorrt: The release that will read the cache.
    """
    # 0: no scale suits the tensor, and layers that need it run in FP16
    known = {**dict.fromkeys(scales.missing, 0.0), **scales.scales}
    if model is not original:
        old = original.graph.tensor_names
        # without a tensor in both networks no scale can be added
        with suppress(DataError):
            reading = scales_from_cache(
                make_cache(known, tensorrt),
                layers(original, tensorrt),
                model=original,
                original=model,
            )
            more = {n: s for n, s in reading.scales.scales.items() if n in old}
            # a measured scale takes precedence over an inferred scale
            known = {**more, **known}
    known = _with_moved(_with_moved(known, model), original)
    named = model.graph.tensor_names | original.graph.tensor_names
    return make_cache({name: scale for name, scale in known.items() if name in named}, tensorrt)


class ScaleBinding(TypedDict):
    """The layers that bind scales, as arguments of ``quantize.tie``."""

    dla_layers: Collection[str] | None
    fp16_layers: Collection[str]


def scale_binding(judgement: Judgement, fp16_layers: Collection[str]) -> ScaleBinding:
    """Returns the layers that bind scales on a board: its DLA's layers without FP16 layers.

    A layer may still run on the GPU; its scales are valid there, too.
    """
    verdicts = judgement.verdicts
    # the plain network breaks this rule as a whole, so its verdicts do not show the layers that the
    # DLA can run with Q/DQ nodes
    if any(reason.rule == _LOWERED for verdict in verdicts.values() for reason in verdict.reasons):
        return {"dla_layers": None, "fp16_layers": fp16_layers}
    able = frozenset(name for name, verdict in verdicts.items() if verdict.placeable)
    return {"dla_layers": able, "fp16_layers": fp16_layers}


def warn_unequal(scales: Scales, network: Network, bound: ScaleBinding) -> Scales:
    """Returns the scales of Q/DQ nodes unchanged, with warnings if the board needs others."""
    found = [
        violation
        for violation in violations(network, scales.scales, **bound)
        if not violation.disputed
    ]
    if not found:
        return scales
    shown = "; ".join(item.message for item in found[:_CHANGES_SHOWN])
    more = f"; and {len(found) - _CHANGES_SHOWN} more" if len(found) > _CHANGES_SHOWN else ""
    warning = (
        f"the model's Q/DQ nodes give {counted(len(found), 'layer')} different scales "
        f"where the board needs one: {shown}{more}; "
        "TensorRT uses the largest or runs them in FP16, so quantise them with equal scales, or "
        "keep them in FP16: calibration: {fp16_layers: "
        f"{yaml_list(item.layer for item in found)}}}"
    )
    return replace(scales, warnings=(*scales.warnings, warning))


def tie_qdq(scales: Scales, network: Network, bound: ScaleBinding) -> Scales:
    """Returns the scales of Q/DQ nodes as a build without these nodes takes them.

    Adds a warning about scales that change.
    """
    scales = tie_cache_scales(scales, network, **bound)
    widened = describe_widened(scales.changes, "the largest is used, as TensorRT does")
    return replace(scales, warnings=(*scales.warnings, *widened))


def describe_widened(changes: Sequence[Change], what: str) -> list[str]:
    """Returns notes on scales of a Q/DQ model that are wider in a build without Q/DQ nodes.

    Args:
        changes: The changes made by tying.
        what: The action taken or possible, as text.
    """
    if not changes:
        return []
    shown = "; ".join(
        f"{change.tensor!r} {change.old or 0:.7g} -> {change.new:.7g} "
        f"({', '.join(change.layers[:_CHANGES_SHOWN])}, as {change.widest!r})"
        for change in changes[:_CHANGES_SHOWN]
    )
    more = f"; and {len(changes) - _CHANGES_SHOWN} more" if len(changes) > _CHANGES_SHOWN else ""
    return [f"different in the Q/DQ model: {shown}{more}; {what}"]


def builder_scales(
    found: Translated, board: Target | None, release: str | None
) -> tuple[dict[str, float], tuple[Change, ...]]:
    """Returns the scales of a translated Q/DQ model as the builder takes them, and the changes.

    Args:
        found: The translation.
        board: The board; layers that its DLA cannot run tie no scales. None: all layers run on
            a DLA.
        release: The TensorRT release that builds; None for the board's own.
    """
    network = layers(found.model, release or (board.tensorrt if board else FOLLOWED))
    fp16 = layers_named(network, found.fp16_nodes, strict=False)
    if board is None:
        return tie(network, found.scales, fp16_layers=fp16)
    judgement = judge(network, board, tensorrt=release, scales=found.scales)
    return tie(network, found.scales, **scale_binding(judgement, fp16))
