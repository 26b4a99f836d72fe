"""The check: which layers of a model the DLA runs, the predicted cost, possible fixes, and all
facts about one layer, the loadables' memory and 2:4 sparsity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.collector import collector_held
from edgekit.dla.judge import judge, release_warnings
from edgekit.dla.loadables import SLOTS, slot_reason
from edgekit.dla.memory import (
    CbufUse,
    LoadableMemory,
    cbuf_use,
    core_memory,
    pool_disputes,
    pool_limits,
    report_memory,
)
from edgekit.dla.precision import float_tail
from edgekit.dla.sparsity import Sparsity, assess_sparsity
from edgekit.dla.verdicts import Judgement
from edgekit.errors import UsageError
from edgekit.network.layer_names import layers_matching, named_things, names_of_layers
from edgekit.network.loading.load import load
from edgekit.network.loading.opaque import plugin_notes
from edgekit.network.lowering import layers as layers_module
from edgekit.network.lowering.places import places
from edgekit.network.model import Layer, Model, Network, loadable_name
from edgekit.parsing.nvidia import ask_parser
from edgekit.parsing.table import AFTER_REWRITES, Parse, parse_check
from edgekit.placement.check_document import (
    BriefCheck,
    Check,
    CheckedLayer,
    CoreMemory,
    LayerCheck,
    LayerFacts,
    PredictedLoadable,
    SparsityCheck,
    TensorFacts,
    Verdict,
    checked_modules,
    judged_fields,
    judged_layers,
    make_summary,
    unknown_costs,
    without_layers,
)
from edgekit.placement.control_flow import control_flow_notes
from edgekit.placement.costs.kernel_costs import noise
from edgekit.placement.cuts import cuts
from edgekit.placement.forecast import (
    LATENCY,
    Fix,
    Forecast,
    PlacementTimer,
    automatic_transitions,
    combine_fixes,
    find_fixes,
    make_timer,
    saved_us,
)
from edgekit.placement.forecast import forecast as forecast_of
from edgekit.placement.translation import (
    is_typed,
    judge_translation,
    lowering_note,
    translate,
    translation_note,
    translation_notes,
)
from edgekit.rewriting.offers import offers
from edgekit.targets.board import Target
from edgekit.targets.loader import get
from edgekit.targets.releases import release_for, release_sources, unstated_dla_reason
from edgekit.text import counted
from edgekit_device.protocol.codec import document

if TYPE_CHECKING:
    from edgekit.parsing.nvidia import ParserResult
    from edgekit.placement.compared_check import ComparedCheck
    from edgekit.quantize.qdq.to_implicit import Translated


# replaces a fix that names the command
_NO_GAIN = "none needed: the layer takes no time where it is"
SHOWN = 3  # fixes shown at once
# in TensorRT's logs: the kind before a GPU layer's name, a loadable, and the dots in its name
_KIND = re.compile(r"^[A-Z][A-Z_0-9]*: (?=.)")
_LOADABLE = re.compile(r"\{ForeignNode\[(.+)\]\}")
_DOTS = re.compile(r"\.\.\.|…")


@document(frozen=True)
class _Memory:
    """The memory of candidates: of those that are kept, and of those that a limit refuses."""

    held: tuple[LoadableMemory, ...]
    refused: tuple[LoadableMemory, ...]


def assess_memory(network: Network, judgement: Judgement, target: Target) -> _Memory:
    """Returns the memory that loadables need of the pools, and candidates that need too much."""
    report = report_memory(network, judgement, target)
    groups = zip(judgement.candidates, report, strict=True)
    return _Memory(
        tuple(loadable for loadable in report if loadable.retained),
        # a candidate beyond the core's maximum is not refused for its memory
        tuple(
            loadable
            for group, loadable in groups
            if not loadable.retained and group.dropped != SLOTS
        ),
    )


def memory_warnings(memory: _Memory) -> list[str]:
    """Returns warnings on candidates that a memory limit keeps, or may keep, on the GPU."""
    disputed = [
        f"{loadable.name} is assumed to fit on the DLA, but sources disagree: {limit.text} "
        f"({limit.rule}; {limit.source}): {limit.fix}"
        for loadable in memory.held
        for limit in loadable.disputed
    ]
    return [*(loadable.refusal for loadable in memory.refused if loadable.broken), *disputed]


def cbuf_warnings(network: Network, judgement: Judgement) -> list[str]:
    """Returns warnings on convolutions near or over the limit, which boards may judge otherwise."""
    if not judgement.precisions:  # the whole network is refused
        return []
    near = [use for use in cbuf_use(network, judgement.precisions) if use.near]
    if not near:
        return []
    first = near[0]
    return [
        f"{first.layer} needs {first.banks} of {first.available} banks of the convolution buffer"
        + (f" ({counted(len(near) - 1, 'more layer')} likewise)" if near[1:] else "")
        + "; so close to the limit, boards may differ from the documented formula: "
        f"{first.fix} " + f"({first.source})"
    ]


@document(frozen=True, eq=False)
class CheckResult:
    """A checked model.

    Attributes:
        document: The ``edgekit.check/1``.
        model: The model.
        network: Its layers.
        judgement: Their verdicts.
        target: The board.
    """

    document: Check
    model: Model
    network: Network
    judgement: Judgement
    target: Target

    def layer(self, name: str) -> LayerCheck:
        """Returns the ``edgekit.layer/1`` of a layer, an ONNX node, a name of a build log, or all
        layers of a module or a glob.

        Raises:
            UsageError: "layer.unknown": no layer has the name.
        """
        return layer_document(self, name)

    def sparsity(self) -> SparsityCheck:
        """Returns an ``edgekit.sparsity/1``; reads the weights of the convolutions."""
        return sparsity_document(self)

    def compare(self, log: Path) -> ComparedCheck:
        """Returns the check with its verdicts compared with a build log.

        Raises:
            DataError: The file cannot be read, or is not a build log.
        """
        from edgekit.buildlog.comparison import compare
        from edgekit.buildlog.reading import read_log
        from edgekit.placement.compared_check import ComparedCheck

        compared = compare(self.network, self.judgement, read_log(log), target=self.target)
        return ComparedCheck(**vars(self.document), compare=compared)


@collector_held()
def check_model(
    source: str | Path | Model,
    *,
    target: str | Target,
    precision: str = "int8",
    tensorrt: str | None = None,
    power_mode: str | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
    scales: str | Path | Mapping[str, float] | None = None,
    max_loadables: int | None = None,
    file: Model | None = None,
    translated: Translated | None = None,
    lowers: bool = False,
    fp16_layers: Callable[[Network], Collection[str]] | None = None,
    plugins: Collection[str] = (),
    parser: bool = False,
    proposes: bool = True,
    warnings: Sequence[str] = (),
    on_note: Callable[[str], object] = str,
) -> CheckResult:
    """Judges a model and predicts TensorRT's automatic placement.

    ``parse`` describes the user's file. If the parser of the board's TensorRT refuses a node that
    edgekit does not convert, there are verdicts but no placement: no layer is ``placed``, and
    there are no loadables, times or fixes.

    Args:
        source: An ONNX file, or a loaded model.
        target: A board or its name.
        precision: "int8", "fp16" or "fp32".
        tensorrt: TensorRT release; the board's usual release if None.
        power_mode: For the prediction; the board's MAXN or default mode if None.
        shapes: Sizes by input, for a file with dynamic shapes.
        batch: The batch, if only the batch is dynamic; 1 if None.
        outputs: Tensors to cut the network at.
        scales: INT8 scales by tensor or a calibration cache; layers whose scale is missing are
            judged in FP16, and a warning names them. If None, every tensor has a scale.
        max_loadables: Loadables that a DLA core may hold, if fewer than its own maximum.
        file: The model in the user's file; ``source`` if None.
        translated: The translation whose result is ``source``. If None, a Q/DQ model is translated
            here if TensorRT reads no Q/DQ nodes on the DLA: verdicts describe the built model.
        lowers: True to give a plain model Q/DQ nodes if TensorRT needs them for INT8, as plan,
            build and run do; otherwise it is refused.
        fp16_layers: Returns the layers of a network that an INT8 build keeps in FP16; None: the
            layers at its end that do not benefit from INT8 (``float_tail``), as in every INT8
            build.
        plugins: Names of the user's own plugins on the board.
        parser: True to also read the board's model with NVIDIA's own parser: ``"parser"``, with a
            warning.
        proposes: True to propose cuts.
        warnings: Further warnings on the board's build.
        on_note: Called with a line of text when a step begins.

    Raises:
        ModelError: The file is not a model, or cannot be judged.
        UsageError: Unknown board, precision, power mode, or a malformed release.
        DataError: The calibration cache cannot be read.
        BuildError: NVIDIA's parser gives no answer.
    """
    board = get(target) if isinstance(target, str) else target
    release = release_for(board, tensorrt)
    on_note("reading the model")
    loaded = _load_model(source, shapes, batch, outputs)
    file = file or loaded
    on_note("finding layers")
    if translated is None:
        translated, note = translate(loaded, board, release, precision)
        loaded = loaded if translated is None else translated.model
    else:
        note = translation_note(translated, release)
    lowered = (
        lowering_note(loaded, release) if lowers and is_typed(board, release, precision) else []
    )
    network = layers_module.layers(loaded, release)
    # a translated model's own scales decide its precisions
    keeps = fp16_layers or (float_tail if translated is None else lambda _: ())
    floats = keeps(network) if precision == "int8" else ()

    def judging(known: Mapping[str, float] | None) -> Judgement:
        return judge(
            network,
            board,
            precision=precision,
            tensorrt=release,
            scales=known,
            max_loadables=max_loadables,
            fp16_layers=floats,
            lowers=bool(lowered),
        )

    on_note(f"judging {counted(len(network.layers), 'layer')}")
    notes = [*loaded.notes, *warnings, *([note] if note else []), *lowered]
    if translated is not None and scales is None:
        known = judge_translation(translated, loaded, network, judging)
        judgement, scale_notes = known.judgement, translation_notes(translated, known)
    else:
        given = scales if precision == "int8" else None
        judgement, cache_notes = _judge_scales(given, loaded, network, judging, bool(lowered))
        scale_notes = list(cache_notes)
    notes += scale_notes
    # a strongly typed build gets the user's file; implicit INT8 the translated model
    sent = file if is_typed(board, release, precision) else loaded
    parse = _check_parser(sent, file, release, board, plugins)
    # the parser's answer already names the plugins that it refuses
    repeated = plugin_notes(loaded.graph, {problem.node for problem in parse.problems})
    notes = [note for note in notes if note not in repeated]
    # a board that cannot parse the model places no layer
    placed = judgement if parse.builds else judgement.unplaced()
    on_note("predicting times")
    timer = make_timer(network, placed, board, power_mode=power_mode) if parse.builds else None
    # without a timed layer there is no prediction
    clock = None if timer and network.uncounted and not timer.gpu_only_us else timer
    nvidia = None
    if parser:
        on_note("asking NVIDIA's parser")
        nvidia = ask_parser(sent)
        notes.append(nvidia.note(parse))
    on_note("searching for fixes")
    unknown = (
        [f"no prediction for {board.name}: its costs are unknown"]
        if parse.builds and timer is None
        else []
    )
    notes = [*filter(None, (board.mode(power_mode).warning,)), *unknown, *notes]
    document = _document(loaded, network, placed, board, clock, parse, nvidia, notes, proposes)
    return CheckResult(document, loaded, network, judgement, board)


def _document(
    loaded: Model,
    network: Network,
    judgement: Judgement,
    board: Target,
    clock: PlacementTimer | None,
    parse: Parse,
    nvidia: ParserResult | None,
    notes: Sequence[str],
    proposes: bool,
) -> Check:
    """Returns the check's document: verdicts, TensorRT's own placement, and fixes."""
    forecast = clock.forecast(judgement.candidates) if clock else None
    if forecast is not None and network.uncounted:
        # null in the document, not 0 microseconds
        times = {**forecast.layer_us, **dict.fromkeys(network.uncounted)}
        forecast = replace(forecast, layer_us=times)
    layers, best, together = _suggest(loaded, network, judgement, board, clock, forecast)
    memory = assess_memory(network, judgement, board)
    lost = slot_reason(judgement)
    warnings = [
        *release_warnings(network, judgement, board),
        *memory_warnings(memory),
        *([lost.message] if lost else ()),
        *cbuf_warnings(network, judgement),
        *notes,
        *control_flow_notes(network),
    ]
    return Check(
        model=loaded.source,
        target=board.name,
        precision=judgement.precision,
        tensorrt=judgement.tensorrt,
        tensorrt_sources=release_sources(board, judgement.tensorrt),
        dla_unstated=unstated_dla_reason(board, judgement.tensorrt),
        layers=layers,
        candidates=len(judgement.candidates),
        loadables=sum(group.retained for group in judgement.candidates),
        summary=make_summary(network, judgement),
        unknown_cost=unknown_costs(network),
        max_loadables=judgement.slots,
        transitions=automatic_transitions(network, judgement),
        predicted=forecast,
        fixes=best,
        fixes_together=together,
        cuts=cuts(network, judgement, clock, loaded) if proposes and judgement.placed else (),
        memory=memory.held,
        memory_refused=memory.refused,
        memory_core=CoreMemory(core_memory(memory.held), pool_limits(board)),
        memory_disputes=pool_disputes(board),
        without_slot=lost,
        sparsity=_network_sparsity(network, judgement, board, clock),
        parse=parse,
        parser=nvidia,
        warnings=tuple(warnings),
        modules=checked_modules(network, layers, forecast),
    )


def _check_parser(
    sent: Model, file: Model, release: str, board: Target, plugins: Collection[str]
) -> Parse:
    """Returns the board's parser result for the user's file, and edgekit's conversion of nodes."""
    given = parse_check(file.graph, release, board, plugins=plugins, traces=file.traces)
    if sent is file:
        return given
    made = parse_check(sent.graph, release, board, plugins=plugins, model=AFTER_REWRITES)
    return made if given.ok else replace(given, converted=made.ok)


def _judge_scales(
    scales: str | Path | Mapping[str, float] | None,
    loaded: Model,
    network: Network,
    judging: Callable[[Mapping[str, float] | None], Judgement],
    typed: bool,
) -> tuple[Judgement, list[str]]:
    """Returns the judgement with the scales of a cache's file or of a mapping, and its notes."""
    if not isinstance(scales, str | Path):
        return judging(scales), []
    from edgekit.quantize.caches import load_cache
    from edgekit.quantize.given_scales import judge_with

    known = judge_with(load_cache(scales), loaded, network, judging, name=str(scales), typed=typed)
    return known.judgement, [*known.notes]


def _load_model(
    source: str | Path | Model,
    shapes: Mapping[str, Sequence[int]] | None,
    batch: int | None,
    outputs: Sequence[str] | None,
) -> Model:
    if not isinstance(source, str | Path):
        return source
    return load(source, shapes=shapes, batch=batch, outputs=outputs or None)


def _network_sparsity(
    network: Network, judgement: Judgement, target: Target, clock: PlacementTimer | None
) -> Sparsity:
    """Returns the sparsity of the network; ``pays`` is None without a prediction."""
    spared = assess_sparsity(network, judgement, target)
    if clock is None:
        return spared
    auto_us = clock.auto_us(judgement.candidates)
    saved = saved_us(clock, auto_us, auto_us - 1e6 * spared.seconds_saved)
    return replace(spared, pays=saved is not None)


def _suggest(
    model: Model,
    network: Network,
    judgement: Judgement,
    target: Target,
    clock: PlacementTimer | None,
    forecast: Forecast | None,
) -> tuple[tuple[CheckedLayer, ...], tuple[Fix, ...], Fix | None]:
    """Returns the layers with their rewrites, the fixes, and the best fixes combined."""
    # without a placement there is no improvement
    every = find_fixes(network, judgement, clock) if judgement.placed else ()
    best = every[:SHOWN]
    combined = combine_fixes(network, judgement, clock, best) if best[1:] else None
    matches: Mapping[str, str] = {}
    blamed = {name for fix in every for name in fix.layers}
    if every:
        matches = offers(
            model,
            target,
            precision=judgement.precision,
            tensorrt=judgement.tensorrt,
            # only around layers that break a rule: a check must be quick
            nodes={n for layer in network.layers if layer.name in blamed for n in layer.origin},
        )
    layers = judged_layers(network, judgement)
    rewrites: dict[str, tuple[str, ...]] = {}
    if matches:
        for layer in layers:
            names = dict.fromkeys(matches[node] for node in layer.origin if node in matches)
            if names and layer.name in blamed:
                rewrites[layer.name] = tuple(names)
    gains = {name for fix in every if fix.offer for name in fix.layers}
    times = forecast.layer_us if forecast else {}
    idle = {name for name, us in times.items() if us == 0} - gains
    mended = tuple(_with_suggestion(layer, rewrites.get(layer.name, ()), idle) for layer in layers)
    rewrites = {name: names for name, names in rewrites.items() if name not in idle}
    offered = combined is not None and _gains_more(combined, best[0])
    return (
        mended,
        tuple(_with_rewrites(fix, rewrites) for fix in every if fix.offer),
        _with_rewrites(combined, rewrites) if combined and offered else None,
    )


def _with_suggestion(
    layer: CheckedLayer, rewrites: tuple[str, ...], idle: Collection[str]
) -> CheckedLayer:
    """Returns a layer with its rewrites; for a layer that takes no time, and whose fix gains none,
    `edgekit rewrite` is not suggested.
    """
    if layer.name not in idle:
        return replace(layer, rewrites=rewrites) if rewrites else layer
    reasons = layer.dla.reasons
    if not any(reason.rewritten for reason in reasons):
        return layer
    kept = tuple(
        replace(reason, fix=_NO_GAIN) if reason.rewritten else reason for reason in reasons
    )
    return replace(layer, dla=replace(layer.dla, reasons=kept))


def _gains_more(combined: Fix, best: Fix) -> bool:
    """Returns True if combined fixes gain more than the best fix: they can need each other."""
    if combined.auto_us is None or best.auto_us is None:
        return True  # there is no prediction
    if combined.offer != LATENCY:
        return False
    return best.offer != LATENCY or combined.auto_us < best.auto_us * (1 - noise())


def _with_rewrites(fix: Fix, rewrites: Mapping[str, Sequence[str]]) -> Fix:
    names = dict.fromkeys(name for layer in fix.layers for name in rewrites.get(layer, ()))
    return replace(fix, rewrites=tuple(names)) if names else fix


def strip_kind(name: str) -> str:
    """Returns "conv1" for "CONVOLUTION: conv1", the form of GPU layers in logs."""
    return _KIND.sub("", name)


def layers_in_log(result: CheckResult, name: str) -> set[str]:
    """Returns the layers that a log calls ``name``, fusions included; empty if there are none."""
    from edgekit.buildlog.layer_names import layers_called

    return set(layers_called(result.network, name))


def loadable_in_log(result: CheckResult, name: str) -> PredictedLoadable | None:
    """Returns the predicted loadable that a log calls ``{ForeignNode[FIRST...LAST]}``, or None."""
    match = _LOADABLE.search(name)
    if match is None:
        return None
    groups = result.judgement.candidates
    names = [loadable_name(result.network, group.layers) for group in groups]
    found = [at for at, own in enumerate(names) if own == match[0]]
    # TensorRT 8 adds parts to the name of a Gemm: then its layers decide
    ends = [] if found else _ends(result, match[1])
    found += [
        at
        for at, group in enumerate(groups)
        if any(group.layers[0] in first and group.layers[-1] in last for first, last in ends)
    ]
    if not found:
        return None
    group = groups[found[0]]
    document = result.document
    entries = (*document.memory, *document.memory_refused)
    return PredictedLoadable(
        name=names[found[0]],
        layers=group.layers,
        kept=group.retained,
        dropped=group.dropped or None,
        memory=next((entry for entry in entries if entry.layers == group.layers), None),
    )


def _ends(result: CheckResult, inside: str) -> list[tuple[set[str], set[str]]]:
    """Returns the layers of a loadable's first and last name; a name may itself contain dots."""
    cuts = [(inside[: dots.start()], inside[dots.end() :]) for dots in _DOTS.finditer(inside)]
    pairs = cuts or [(inside, inside)]
    return [(layers_in_log(result, first), layers_in_log(result, last)) for first, last in pairs]


def layer_document(result: CheckResult, name: str) -> LayerCheck:
    """Returns the ``edgekit.layer/1`` document of a layer, or of all layers of an ONNX node or a
    PyTorch module.

    Args:
        result: From ``check_model``.
        name: A layer's name, or an ONNX node's, which includes the layers inserted for the node.
            For a node that loading removed from the graph, ``folded`` is the reason, and the layers
            are those that absorbed it, if any. Or a fusion's or loadable's name in the builder's
            log; ``loadable`` is then set. Or a glob of layers or modules (``layers_matching``).

    Raises:
        UsageError: "layer.unknown": no layer or node has the name.
    """
    found, gone, whole = _resolve_name(result, name)
    document = result.document
    known = {entry.name: entry for entry in document.layers}
    return LayerCheck(
        model=document.model,
        target=document.target,
        precision=document.precision,
        tensorrt=document.tensorrt,
        name=name,
        folded=gone or None,
        loadable=whole,
        layers=tuple(_layer_facts(result, layer, known[layer.name]) for layer in found),
    )


def _resolve_name(
    result: CheckResult, name: str
) -> tuple[list[Layer], str, PredictedLoadable | None]:
    """Returns the layers, the reason why a node is not a layer, and the named loadable."""
    layers = result.network.whole.layers
    short = strip_kind(name)
    spellings = dict.fromkeys((name, short))  # a layer's own name may be "A: b"
    for text in spellings:
        found = [layer for layer in layers if text in (layer.name, *layer.nodes, *layer.origin)]
        if found:
            return found, "", None
    # nodes that loading removed: no layer has their name
    removed = places(result.model, result.network)
    for text in spellings:
        if place := removed.get(text):
            return [layer for layer in layers if layer.name in place.layers], place.reason, None
    loadable = loadable_in_log(result, short)
    names = set(loadable.layers) if loadable else layers_in_log(result, short)
    names = names or set(layers_matching(result.network.whole, name))
    found = [layer for layer in layers if layer.name in names]
    if not found:
        raise _unknown_name(result, name)
    return found, "", loadable


def _unknown_name(result: CheckResult, name: str) -> UsageError:
    known = dict.fromkeys(
        [
            *names_of_layers(result.network.whole),
            *result.model.folded,
            *(loadable.name for loadable in result.document.memory),
        ]
    )
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3, cutoff=0.5)
    # a short part of a long name is not similar by its letters
    near = near or [text for text in known if name.lower() in text.lower()][:3]
    return UsageError(
        f"there is no {named_things(result.network)} named {name!r}",
        code="layer.unknown",
        where=result.document.model,
        hint=f"did you mean {' or '.join(near)}?" if near else "--by-layer lists the layers",
    )


def _layer_facts(result: CheckResult, layer: Layer, known: CheckedLayer) -> LayerFacts:
    document = result.document
    times = document.predicted.layer_us if document.predicted else {}
    sparse = document.sparsity.convolutions
    return LayerFacts(
        **judged_fields(known),
        op=layer.op,
        precision=result.judgement.precision_of(layer.name),
        inputs=tuple(_tensor_facts(result, name) for name in layer.inputs),
        outputs=tuple(_tensor_facts(result, name) for name in layer.outputs),
        params={key: _plain_attribute(value) for key, value in layer.params.items()},
        weights=tuple(layer.weights),
        predicted_us=times.get(layer.name) if layer.formula else None,
        loadable=next(
            (
                replace(entry, number=number)
                for number, entry in enumerate(document.memory)
                if layer.name in entry.layers
            ),
            None,
        ),
        cbuf=_cbuf(result, layer),
        sparsity=next((entry for entry in sparse if entry.layer == layer.name), None),
    )


def _tensor_facts(result: CheckResult, name: str) -> TensorFacts:
    tensor = result.network.whole.tensors[name]
    return TensorFacts(name, tuple(tensor.shape), tensor.dtype)


def _plain_attribute(value: Any) -> Any:
    """Returns a parameter as JSON: "inf", "-inf" and "nan" become texts."""
    if isinstance(value, list | tuple):
        return [_plain_attribute(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _cbuf(result: CheckResult, layer: Layer) -> CbufUse | None:
    precision = result.judgement.precision_of(layer.name)
    if precision == "fp32":
        return None
    alone = replace(result.network, layers=(layer,))
    return next(iter(cbuf_use(alone, precision)), None)


def sparsity_document(result: CheckResult) -> SparsityCheck:
    """Returns an ``edgekit.sparsity/1`` document; reads the weights of the convolutions."""
    report = assess_sparsity(result.network, result.judgement, result.target, result.model)
    document = result.document
    found = {item.name: getattr(report, item.name) for item in fields(report)}
    return SparsityCheck(
        **{**found, "pays": document.sparsity.pays},
        model=document.model,
        target=document.target,
        precision=document.precision,
        tensorrt=document.tensorrt,
    )


def brief_verdict(
    network: Network,
    judgement: Judgement,
    target: Target,
    *,
    power_mode: str | None,
    parses: bool,
) -> Verdict:
    """Returns a check without layers and suggestions.

    Args:
        network: The layers.
        judgement: Their verdicts.
        target: The board.
        power_mode: Its power mode, for the predicted times.
        parses: True if the board's parser imports the model; otherwise there is no placement.
    """
    if not parses:
        judgement = judgement.unplaced()
    times = forecast_of(network, judgement, target, power_mode=power_mode) if parses else None
    return Verdict(
        BriefCheck(
            **vars(make_summary(network, judgement)),
            candidates=len(judgement.candidates),
            loadables=sum(group.retained for group in judgement.candidates),
            transitions=automatic_transitions(network, judgement),
            predicted=without_layers(times),
        ),
        multiplies=any(layer.macs for layer in network.layers),
        uncounted=bool(network.uncounted),
    )
