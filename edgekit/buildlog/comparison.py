"""Compares prediction and builder by layer and by loadable: the builder's placement of our layers,
and the rules that match its messages.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from edgekit.buildlog.facts import BuildLog, Fallback, LogLoadable
from edgekit.buildlog.layer_names import LayerNames
from edgekit.dla.memory import predict_need
from edgekit.dla.rule_files import RuleSource, sources_file
from edgekit.dla.verdicts import Judgement, MemoryNeed
from edgekit.knowledge import data_folder, read_facts
from edgekit.removed import FormerDict
from edgekit.targets.board import Target
from edgekit.targets.loader import get
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    integer,
    long_text,
    mapping,
    member,
    nullable,
    record,
    records,
)
from edgekit_device.versions import agree, parse_version

if TYPE_CHECKING:
    from edgekit.network.model import Layer, Network


_SCHEMA = "edgekit.builder-messages/1"
SCHEMA = "edgekit.compare-log/1"
# least fraction of a log's names in the network: with fewer, the log is another network's
_FEW = 0.1
_EVIDENCE = {
    "capability": (
        "the log ends before the lists of layers by device: only layers that a DLA can run are "
        "compared"
    ),
    "refusals": (
        "the log does not list layers by device (build with --verbose): only refusals are compared"
    ),
    "none": "the log does not mention DLA layers: build with {options}--verbose",
}
_STATUSES = ("agree", "disagree", "slots", "unseen")


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the builder.

    Attributes:
        pattern: Regular expression to search in the message without the layer's name.
        rules: Ids of the rules with the same meaning.
        seen: Releases whose logs contain it.
        sources: Titles of the logs and documents that contain it.
    """

    pattern: re.Pattern[str]
    rules: tuple[str, ...]
    seen: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Messages:
    """All messages, and the rules of layer types that are refused without a message."""

    sentences: tuple[Message, ...]
    silent: Mapping[str, tuple[str, ...]]

    def rules(self, words: Iterable[str], kind: str = "") -> tuple[str, ...]:
        """Returns the rules that match the builder's words; without words, those of the layer's
        type.
        """
        found: dict[str, None] = {}
        some = False
        for sentence in words:
            some = True
            for message in self.sentences:
                if message.pattern.search(sentence):
                    found.update(dict.fromkeys(message.rules))
                    break
        return tuple(found) if some else self.silent.get(kind, ())


@document(frozen=True)
class _MessageRow:
    pattern: str
    rules: tuple[str, ...]
    seen: tuple[str, ...]
    source: tuple[str, ...]


@document(frozen=True)
class _SilentRow:
    rules: tuple[str, ...]


@document(frozen=True)
class _MessagesFile:
    """``dla/builder_messages.yaml``."""

    sources: Mapping[str, RuleSource]
    messages: tuple[_MessageRow, ...]
    silent: Mapping[str, _SilentRow]


@lru_cache(maxsize=1)
def load_messages() -> Messages:
    """Reads the file once.

    Raises:
        DataError: The file is not YAML (code "data.yaml"), or a key or value is wrong.
    """
    file = read_facts(_MessagesFile, data_folder("dla") / "builder_messages.yaml", _SCHEMA)
    sources = {**sources_file().sources, **file.sources}
    sentences = tuple(
        Message(
            re.compile(row.pattern),
            row.rules,
            row.seen,
            tuple(sources[key].title for key in row.source),
        )
        for row in file.messages
    )
    return Messages(sentences, {kind: row.rules for kind, row in file.silent.items()})


@document(frozen=True)
class LayerComparison:
    """A layer of ours and its treatment by the builder.

    Attributes:
        layer: Our name of the layer.
        kind: The layer's type.
        predicted: "DLA", "GPU", or "slots": the DLA could run it, but the core's subgraphs are used
            up.
        builder: The same, or "capable" (not refused; placement not in the log), or None (not
            in the log).
        status: "agree"; "disagree" (only one side lets the DLA run it); "slots" (both allow it, but
            differ in the subgraphs that fit); "unseen".
        certainty: Certainty of our verdict, "certain" or "disputed".
        rules: Ids of our rules against the DLA, or of risks.
        words: The builder's reasons.
        builder_rules: Known rules with the same meaning as these words.
        reasons: "same", "other", "unknown" (no rule is known for the words), or None if one
            side gives none.
    """

    layer: str = member(long_text)
    kind: str = member(long_text)
    predicted: str = member(choice("DLA", "GPU", "slots"))
    builder: str | None = member(nullable(choice("DLA", "GPU", "slots", "capable")))
    status: str = member(choice(*_STATUSES))
    certainty: str = member(choice("certain", "disputed"))
    rules: tuple[str, ...] = member(array(long_text))
    words: tuple[str, ...] = member(array(long_text))
    builder_rules: tuple[str, ...] = member(array(long_text))
    reasons: str | None = member(nullable(choice("same", "other", "unknown")))


@document(frozen=True)
class PoolComparison:
    """A memory pool of a loadable, in bytes: ``powers`` is log2 of predicted over builder's.

    ``verdict`` is "right", "one power above", "above" or "below".

    Attributes:
        predicted: Predicted bytes.
        builder: Bytes in the builder's log.
        powers: Base-2 logarithm of predicted over builder's.
    """

    pool: str = member(long_text)
    predicted: int = member(fields.count)
    builder: int = member(fields.count)
    powers: int = member(integer(-64, 64))
    verdict: str = member(choice("right", "one power above", "above", "below"))


def pools(predicted: MemoryNeed, builder: MemoryNeed) -> tuple[PoolComparison, ...]:
    """Compares the three pools; the builder's sizes are powers of two."""
    found = []
    for item in dataclasses.fields(MemoryNeed):
        ours, theirs = getattr(predicted, item.name), getattr(builder, item.name)
        # of powers of two, the difference of bit lengths is log2 of their ratio
        powers = max(ours, 1).bit_length() - max(theirs, 1).bit_length()
        verdict = "right" if powers == 0 else "below" if powers < 0 else "above"
        if powers == 1:
            verdict = "one power above"
        found.append(PoolComparison(item.name, ours, theirs, powers, verdict))
    return tuple(found)


@document(frozen=True)
class LayerRange:
    """Layers in graph order: their number, the first and the last.

    Attributes:
        layers: Number of layers.
    """

    layers: int = member(fields.count)
    first: str = member(long_text)
    last: str = member(long_text)


@document(frozen=True)
class LoadableComparison:
    """A subgraph of the builder and the matching predicted subgraph; either may be missing.

    Attributes:
        name: The builder's name; None if only we predict it.
        same: True if both sides have the same layers in it.
        predicted: Our layers.
        builder: The builder's layers, by our names.
        only_predicted: Layers that are only in the predicted subgraph.
        only_builder: Layers that are only in the builder's subgraph.
        pools: Managed SRAM, local and global DRAM; empty without figures in the log.
        built: All of the builder's layers; not part of the document.
    """

    name: str | None = member(nullable(long_text))
    same: bool = member(flag)
    predicted: LayerRange | None = member(nullable(record(LayerRange)))
    builder: LayerRange | None = member(nullable(record(LayerRange)))
    only_predicted: tuple[str, ...] = member(array(long_text))
    only_builder: tuple[str, ...] = member(array(long_text))
    pools: tuple[PoolComparison, ...] = member(records(PoolComparison), default=())
    built: tuple[str, ...] = ()


@document(frozen=True)
class LogOnly:
    """A name in the log that is no layer of ours.

    ``into`` is our layer that absorbed it, None if unknown.
    """

    name: str = member(long_text)
    kind: str | None = member(nullable(long_text))
    into: str | None = member(nullable(long_text))
    words: tuple[str, ...] = member(array(long_text), default=())


@document(frozen=True)
class LogComparison(FormerDict):
    """An ``edgekit.compare-log/1``: prediction and builder side by side.

    Attributes:
        evidence: The log's evidence (see BuildLog.evidence).
        tensorrt: The log's TensorRT release, None if unknown.
        layers: All our layers in graph order.
        loadables: All subgraphs of either side.
        absorbed: Constants and shuffles of the importer that are no layers after fusion.
        only_builder: Other names in the log that are no layers of ours.
        warnings: Reasons why the two may not be comparable.
        counts: Layers by status.
    """

    evidence: str = member(choice("placement", "capability", "refusals", "none"))
    tensorrt: str | None = member(nullable(long_text))
    layers: tuple[LayerComparison, ...] = member(records(LayerComparison))
    loadables: tuple[LoadableComparison, ...] = member(records(LoadableComparison))
    absorbed: tuple[LogOnly, ...] = member(records(LogOnly))
    only_builder: tuple[LogOnly, ...] = member(records(LogOnly))
    warnings: tuple[str, ...] = member(array(long_text))
    counts: Mapping[str, int] = member(mapping(fields.count, choice(*_STATUSES)))
    schema: str = member(choice(SCHEMA), default=SCHEMA)

    @property
    def disagreements(self) -> tuple[LayerComparison, ...]:
        """Layers that only one side lets the DLA run."""
        return tuple(layer for layer in self.layers if layer.status == "disagree")


@dataclass
class BuilderPlacement:
    """The builder's placement in our names.

    Attributes:
        where: "DLA", "slots", "GPU" or "capable" by layer.
        refused: The builder's refusal by layer.
        subgraphs: Each loadable with its layers, in graph order.
        absorbed: Names of constants and shuffles that fusions remove.
        unknown: Names that are no layers of ours.
        foreign: (known names, all names) if almost no name of the log is known: the log of another
            network, without a placement of this network.
    """

    where: dict[str, str] = field(default_factory=dict)
    refused: dict[str, Fallback] = field(default_factory=dict)
    subgraphs: list[tuple[LogLoadable, tuple[str, ...]]] = field(default_factory=list)
    absorbed: dict[str, LogOnly] = field(default_factory=dict)
    unknown: dict[str, LogOnly] = field(default_factory=dict)
    foreign: tuple[int, int] | None = None


def map_placement(network: Network, judgement: Judgement, log: BuildLog) -> BuilderPlacement:
    """Maps a log onto our layers."""
    fused = [name for loadable in log.loadables for name in (loadable.first, *loadable.layers)]
    names = LayerNames(network, dict.fromkeys([*fused, *log.capable]))
    found = BuilderPlacement()
    if log.evidence == "none":
        # a GPU-only build is no evidence about the DLA
        return found
    # first, so that lists and refusals of single layers replace it
    if said := log.all_on_gpu:
        for layer in network.whole.layers:
            found.where[layer.name] = "GPU"
            found.refused[layer.name] = Fallback(layer.name, "", "unsupported", (said,), 0)
    found.foreign = _count_foreign(log, names)
    if found.foreign:
        for name, kind in _logged_layers(log):
            found.unknown.setdefault(name, LogOnly(name, kind or None, None))
        return found
    on_gpu = _take_layer_lists(log, names, found)
    for fallback in log.fallbacks:
        ours = names.find(fallback.layer, fallback.kind)
        if not ours:
            _record_log_only(found, names, fallback.layer, fallback.kind, fallback.words)
        for name in ours:
            found.refused.setdefault(name, fallback)
            found.where[name] = "slots" if fallback.cause == "slots" else "GPU"
    _subgraphs(network, judgement, log, names, on_gpu, found)
    for _, layers in found.subgraphs:
        found.where.update(dict.fromkeys(layers, "DLA"))
    _place_unstated(network, log, found)
    return found


def _logged_layers(log: BuildLog) -> list[tuple[str, str]]:
    """Returns all layers in the log, with their types if known."""
    named = [(layer.name, layer.kind) for layer in log.gpu_layers]
    named += [(name, "") for name in log.capable]
    named += [(fallback.layer, fallback.kind) for fallback in log.fallbacks]
    named += [
        (name, "")
        for loadable in log.loadables
        for name in (loadable.first, loadable.last, *loadable.layers)
        if name
    ]
    return list(dict.fromkeys(named))


def _count_foreign(log: BuildLog, names: LayerNames) -> tuple[int, int] | None:
    """Returns (known names, all names); None if enough are known, or there are too few to judge."""
    known = total = 0
    for name, kind in _logged_layers(log):
        if names.is_from_builder(name, kind) or not names.distinctive(name):
            continue
        hit = bool(names.find(name) or names.absorbed(name, kind))
        known += hit
        # both sides fold constants, not always under the same name
        total += hit or kind != "CONSTANT"
    return (known, total) if total and known < _FEW * total else None


def _take_layer_lists(log: BuildLog, names: LayerNames, found: BuilderPlacement) -> set[str]:
    """Takes the log's two lists of layers; returns our layers of the GPU's list."""
    on_gpu: set[str] = set()
    for listed in log.gpu_layers:
        ours = names.find(listed.name, listed.kind) or names.find(listed.name)
        on_gpu.update(ours)
        if not ours and not names.is_from_builder(listed.name, listed.kind):
            _record_log_only(found, names, listed.name, listed.kind, ())
    for capable in log.capable:
        ours = names.find(capable)
        # without a slot, until a loadable contains it
        found.where.update(dict.fromkeys(ours, "slots"))
        if not ours:
            _record_log_only(found, names, capable, "", ())
    found.where.update(dict.fromkeys(on_gpu, "GPU"))
    return on_gpu


def _place_unstated(network: Network, log: BuildLog, found: BuilderPlacement) -> None:
    """Marks layers as "capable" if the log does not show which subgraphs fit."""
    if log.evidence not in ("capability", "refusals"):
        return
    for name, where in found.where.items():
        if where == "slots" and name not in found.refused:
            found.where[name] = "capable"
    if log.evidence == "refusals" and (found.refused or not found.unknown):
        for layer in network.layers:
            if layer.nodes:
                # the builder names every refused node of its model
                found.where.setdefault(layer.name, "capable")


def _record_log_only(
    found: BuilderPlacement, names: LayerNames, name: str, kind: str, words: tuple[str, ...]
) -> None:
    into = names.absorbed(name, kind)
    target = found.unknown if into is None else found.absorbed
    target.setdefault(name, LogOnly(name, kind or None, into, words))


def _subgraphs(
    network: Network,
    judgement: Judgement,
    log: BuildLog,
    names: LayerNames,
    on_gpu: set[str],
    found: BuilderPlacement,
) -> None:
    known = [layer.name for layer in network.layers]
    place = {name: index for index, name in enumerate(known)}
    by_ends = {(group.layers[0], group.layers[-1]): group.layers for group in judgement.candidates}
    taken: set[str] = set()
    pending = []
    for loadable in log.loadables:
        # exact lists first: a range must not take their layers
        layers, exact = _members(loadable, names, known, place, by_ends)
        if exact:
            layers = tuple(name for name in layers if name not in taken)
            taken.update(layers)
        pending.append((loadable, layers, exact))
    # the shortest range first: a nested range keeps its own layers
    for loadable, layers, exact in sorted(pending, key=lambda entry: len(entry[1])):
        if not exact:
            retained = tuple(name for name in layers if name not in on_gpu and name not in taken)
            taken.update(retained)
        else:
            retained = layers
        found.subgraphs.append((loadable, retained))
        if not retained:
            _record_log_only(found, names, loadable.name, "DLA", ())
    order = {loadable.name: index for index, loadable in enumerate(log.loadables)}
    found.subgraphs.sort(key=lambda entry: order[entry[0].name])


def _members(
    loadable: LogLoadable,
    names: LayerNames,
    known: Sequence[str],
    place: dict[str, int],
    by_ends: dict[tuple[str, str], tuple[str, ...]],
) -> tuple[tuple[str, ...], bool]:
    """Returns our layers of a loadable in graph order, and True if they are certain."""
    # a constant is no part of a subgraph
    listed = {layer for name in loadable.layers for layer in names.find(name) if layer in place}
    if loadable.exact:
        return tuple(sorted(listed, key=place.__getitem__)), True
    first = [name for name in names.find(loadable.first) if name in place]
    last = [name for name in names.find(loadable.last) if name in place]
    if not last:
        return (), False
    low, high = min(place[name] for name in first or last), max(place[name] for name in last)
    within = [name for name in known[low : high + 1] if not listed or name in listed]
    ends = (known[low], known[high])
    # a range may include other subgraphs' layers; same ends as a predicted subgraph: use that
    if ends in by_ends:
        expected = set(by_ends[ends])
        within = [name for name in within if name in expected]
    return tuple(within), False


def warnings(
    judgement: Judgement,
    log: BuildLog,
    target: Target,
    layers: Sequence[LayerComparison],
    foreign: tuple[int, int] | None = None,
) -> tuple[str, ...]:
    """Returns reasons why log and judgement may not be comparable."""
    found = []
    if foreign:
        known, total = foreign
        found.append(
            f"the log is of another network: {known or 'none'} of its {total} layers "
            f"{'is' if known < 2 else 'are'} in the model"
            + (f" (the log is of {log.model})" if log.model else "")
        )
    if log.tensorrt and not agree(parse_version(judgement.tensorrt), parse_version(log.tensorrt)):
        found.append(f"judged for TensorRT {judgement.tensorrt}, built with {log.tensorrt}")
    built = next((name for name in ("int8", "fp16", "fp32") if name in log.precisions), "")
    if built and built != judgement.precision:
        found.append(f"judged in {judgement.precision}, built in {built}")
    capability = log.compute_capability
    if capability and target.compute_capability and capability != target.compute_capability:
        board = f"{log.device}, " if log.device else ""
        found.append(
            f"judged for {target.name} (compute capability {target.compute_capability}), "
            f"built on another board ({board}{capability})"
        )
    if log.requested_dla is False:
        found.append("the build did not use a DLA (--useDLACore)")
    if log.none_on_dla:
        found.append(
            "the log's list of DLA layers is empty: maybe the build did not use a DLA "
            "(--useDLACore)"
        )
    if log.pinned:
        found.append(f"the build pins layers to devices: {log.pinned}")
    if log.evidence in _EVIDENCE:
        options = "" if log.requested_dla else "--useDLACore=0 --allowGPUFallback "
        found.append(_EVIDENCE[log.evidence].format(options=options))
    # harmless unless a DLA was requested
    found += [
        note
        for note in log.notes
        if log.requested_dla or note == log.all_on_gpu or note not in log.profiles
    ]
    if log.builds > 1:
        found.append(
            f"the log contains {log.builds} builds: the last one with a list of layers is compared"
        )
    if log.cut:
        found.append("the log has too many layers: only the first ones are compared")
    seen = sum(1 for layer in layers if layer.builder)
    if log.evidence != "none" and not foreign and layers and seen < len(layers) / 2:
        found.append(
            f"the log contains only {seen} of {len(layers)} layers: check that it is of this model"
        )
    if log.errors and log.errors[0] not in found:
        found.append(f"the build reported an error: {log.errors[0]}")
    return tuple(found)


def compare(
    network: Network, judgement: Judgement, log: BuildLog, *, target: Target | None = None
) -> LogComparison:
    """Compares a judgement with the builder's log.

    A disagreement is a layer that only one side lets the DLA run. If both allow it but differ in
    the subgraphs that fit the core, the status is "slots". Constants and shuffles that the builder
    refuses and then fuses away are no layers of ours: they are listed as absorbed. Cost is linear
    in layers and in names of the log.

    Args:
        network: The layer graph that was judged.
        judgement: Our verdicts.
        log: The builder's log.
        target: The board, for the memory pools; the judgement's board if None.
    """
    if target is None:
        target = get(judgement.target)
    found = map_placement(network, judgement, log)
    layers = tuple(_layer(layer, judgement, found) for layer in network.whole.layers)
    loadables = _loadables(network, judgement, log, found, target)
    counts = Counter(layer.status for layer in layers)
    return LogComparison(
        evidence=log.evidence,
        tensorrt=log.tensorrt or None,
        layers=layers,
        loadables=loadables,
        absorbed=tuple(found.absorbed.values()),
        only_builder=tuple(found.unknown.values()),
        warnings=warnings(judgement, log, target, layers, found.foreign),
        counts={status: counts[status] for status in _STATUSES},
    )


def _layer(layer: Layer, judgement: Judgement, found: BuilderPlacement) -> LayerComparison:
    verdict = judgement.verdicts[layer.name]
    ours = judgement.placed[layer.name]
    # allowed, but on the GPU: the core's subgraphs are used up
    if ours == "GPU" and verdict.ok:
        ours = "slots"
    theirs = found.where.get(layer.name, "")
    refusal = found.refused.get(layer.name)
    words = refusal.words if refusal else ()
    rules = tuple(dict.fromkeys(reason.rule for reason in verdict.reasons))
    kind = (refusal.kind or layer.kind) if refusal else ""
    # a layer without a slot breaks no rule
    meant = load_messages().rules(words, kind) if theirs == "GPU" else ()
    return LayerComparison(
        layer=layer.name,
        kind=layer.kind,
        predicted=ours,
        builder=theirs or None,
        status=_status(ours, theirs, inserted=not layer.nodes),
        certainty=verdict.certainty,
        rules=rules,
        words=words,
        builder_rules=meant,
        reasons=_compare_reasons(rules if ours == "GPU" else (), words, meant),
    )


def _status(ours: str, theirs: str, *, inserted: bool) -> str:
    if not theirs:
        return "unseen"
    if ours == theirs or (theirs == "capable" and ours in ("DLA", "slots")):
        return "agree"
    if "GPU" in (ours, theirs):
        # a refusal can only be missed if the builder mentions the layer
        return "unseen" if theirs == "capable" and inserted else "disagree"
    return "slots"


def _compare_reasons(ours: Sequence[str], words: Sequence[str], meant: Sequence[str]) -> str | None:
    if not ours or not (words or meant):
        return None
    if not meant:
        return "unknown"
    return "same" if set(ours) & set(meant) else "other"


def _loadables(
    network: Network, judgement: Judgement, log: BuildLog, found: BuilderPlacement, target: Target
) -> tuple[LoadableComparison, ...]:
    if log.evidence != "placement" or found.foreign:
        return ()
    predicted = [group.layers for group in judgement.candidates if group.retained]
    place = {name: index for index, layers in enumerate(predicted) for name in layers}
    # match every subgraph with the prediction that shares the most layers
    shared = []
    for index, (_, layers) in enumerate(found.subgraphs):
        hits = Counter(place[name] for name in layers if name in place)
        shared += [(-count, index, ours) for ours, count in hits.items()]
    match: dict[int, int] = {}
    used: set[int] = set()
    for _, index, ours in sorted(shared):
        if index not in match and ours not in used:
            match[index] = ours
            used.add(ours)
    rows = []
    for index, (loadable, theirs) in enumerate(found.subgraphs):
        ours_at = match.get(index)
        mine = predicted[ours_at] if ours_at is not None else ()
        sizes: tuple[PoolComparison, ...] = ()
        if loadable.pools is not None and theirs:
            # sizes for the builder's own layers: a wrong set is not reported again as a wrong size
            by_layer = judgement.precisions or judgement.precision
            need = predict_need(network, theirs, target, by_layer)
            sizes = pools(need, loadable.pools)
        inside, expected = set(theirs), set(mine)
        rows.append(
            LoadableComparison(
                name=loadable.name or None,
                same=bool(mine) and inside == expected,
                predicted=_range(mine),
                builder=_range(theirs),
                only_predicted=tuple(name for name in mine if name not in inside),
                only_builder=tuple(name for name in theirs if name not in expected),
                pools=sizes,
                built=theirs,
            )
        )
    for index, layers in enumerate(predicted):
        if index not in used:
            rows.append(LoadableComparison(None, False, _range(layers), None, layers, ()))
    return tuple(rows)


def _range(layers: Sequence[str]) -> LayerRange | None:
    return LayerRange(len(layers), layers[0], layers[-1]) if layers else None
