"""The texts of ``edgekit check``: the verdict, the reasons by rule, the most valuable fixes; all
layers as a table, a layer in full; sparsity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.network.module_tree import CHECK_TIMES
from edgekit.reports import text
from edgekit.reports.buckets import HEAD, SIDES, TITLE, bucket_rows, range_lines
from edgekit.reports.terminal.cuts import add_cuts
from edgekit.reports.terminal.modules import add_modules
from edgekit.reports.text import WIDTH, Page, names_in_columns
from edgekit.text import counted, listed, percent, sentence

if TYPE_CHECKING:
    from edgekit.dla.memory import LoadableMemory
    from edgekit.dla.sparsity import SparseConvolution, Sparsity
    from edgekit.dla.verdicts import MemoryNeed
    from edgekit.error_document import VerdictReason
    from edgekit.parsing.table import Parse, ParseProblem
    from edgekit.placement.check_document import (
        Check,
        CheckedLayer,
        CoreMemory,
        LayerCheck,
        LayerFacts,
        PredictedLoadable,
        SparsityCheck,
        TensorFacts,
        UnknownCost,
    )
    from edgekit.placement.forecast import Fix, Forecast

FIXES = 3
_NAMED = 4
MEMORY = 5
_MODULES = 16
_PROBLEMS = 8
# columns that a narrow terminal leaves out, in this order
_SPARED = ("MACs", "predicted", "certainty")
_HEAD = ("layer", "kind", "on", "MACs", "predicted", "certainty", "rule")
_LAYERS_RIGHT = ("MACs", "predicted")
# why a node of the file is no layer (``edgekit.network.model.Folded``)
_NOT_RUN = {
    "constant": "is computed before inference, from constants or known shapes",
    "identity": "does nothing at run time",
    "branch": "is an If whose condition is known",
    "function": "is a call that was replaced by its body",
    "given": "has given values",
    "unused": "computes what no output needs",
}
_NO_SLOT = "memory.loadables"
_SPARSITY_RIGHT = ("2:4 now", "MACs saved")


def summary_check(document: Check, *, width: int = WIDTH, colour: bool = False) -> str:
    """Returns an ``edgekit.check/1`` document as text.

    Args:
        document: The check.
        width: Columns.
        colour: True for escape sequences.
    """
    page = Page(width, colour=colour)
    page.add(f"{document.target}, {document.precision.upper()}, TensorRT {document.tensorrt}")
    if differing := document.tensorrt_sources:
        page.add(f"Sources differ on the TensorRT of {differing}")
    if not document.parse.ok:
        _add_parse(page, document.parse)
    if document.placed:
        _add_verdict(page, document)
    if document.modules:
        page.add()
        page.add("Modules (--by-module opens all)", style="bold")
        _add_modules(page, document, _MODULES, width=width)
    refused = _groups(document, ok=False)
    lost = document.without_slot
    if refused or lost:
        page.add()
        page.add("Why layers cannot run on the DLA, and how to fix it", style="bold")
    for group in refused:
        _add_reason(page, group)
    if lost:
        known = {layer.name: layer for layer in document.layers}
        _add_reason(
            page, _Group(lost, known[lost.layers[0]], Counter({lost.fix: len(lost.layers)}))
        )
    unsure = _groups(document, ok=True)
    # a release that no source covers is no dispute of sources
    silent = [group for group in unsure if group.reason.rule == text.RELEASE_RULE]
    release = f"no source covers TensorRT {document.tensorrt}"
    for why, groups in (
        ("sources disagree", [group for group in unsure if group not in silent]),
        (release, silent),
    ):
        if groups:
            page.add()
            page.add(f"On the DLA, but {why}", style="bold")
        for group in groups:
            _add_reason(page, group)
    _add_fixes(page, document)
    add_cuts(page, document.cuts, width=width)
    _add_memory(page, document)
    _add_buckets(page, document)
    # warnings that the sections above have already explained
    above = {loadable.refusal for loadable in document.memory_refused} | (
        {lost.message} if lost else set()
    )
    for warning in document.warnings:
        if warning not in above:
            page.add()
            page.add(f"note: {sentence(warning)}", style="yellow")
    return str(page)


def _add_parse(page: Page, parse: Parse) -> None:
    """Adds the nodes that the parser refuses."""
    problems = parse.problems
    page.add(
        f"TensorRT {parse.release} cannot parse this model ({parse.model}): its parser "
        f"refuses {counted(len(problems), 'node')}. "
        + (
            "plan, build and run convert the model first; what follows is of the converted model"
            if parse.converted
            else "No layer is placed"
        ),
        style="bold red",
    )
    page.add()
    page.add("Nodes that the parser refuses, and remedies", style="bold")
    groups: dict[tuple[str, str, str], list[ParseProblem]] = {}
    for problem in problems:
        groups.setdefault((problem.message, problem.place, problem.fix), []).append(problem)
    for (message, place, fix), nodes in list(groups.items())[:_PROBLEMS]:
        names = listed([node.node for node in nodes], _NAMED)
        page.add(f"{nodes[0].operator}  {counted(len(nodes), 'node')}", indent=2, style="bold")
        page.add(f"{names}: {message}", indent=4, hang=2)
        if place:
            page.add(f"in {place}", indent=4, hang=2)
        page.add(f"fix: {fix}", indent=4, hang=2)
    more = len(groups) - _PROBLEMS
    if more > 0:
        page.add(f"and {counted(more, 'more problem')}, see --json", indent=2)


def check_modules(document: Check, *, width: int | None = None, colour: bool = False) -> str:
    """Returns the whole tree of an ``edgekit.check/1``'s modules as a table.

    Args:
        document: The check.
        width: Columns; if narrow, the classes are left out.
        colour: True for escape sequences.
    """
    page = Page(width or WIDTH, colour=colour)
    _add_modules(page, document, None, width=width)
    return str(page)


def _add_modules(page: Page, document: Check, most: int | None, *, width: int | None) -> None:
    add_modules(page, document.modules, most, width=width)
    if document.predicted:
        page.add(CHECK_TIMES, style="dim")


def _has_macs(document: Check) -> bool:
    return any(layer.macs for layer in document.layers)


def _add_verdict(page: Page, document: Check) -> None:
    summary = document.summary
    on_dla, layers = summary.dla_layers, summary.layers
    style = "green" if on_dla == layers else "yellow" if on_dla else "red"
    share = ""
    # a network without MACs has no share of them
    if _has_macs(document):
        known = "known " if document.unknown_cost else ""
        share = f" and {percent(summary.dla_macs_fraction)} of the {known}MACs"
    if document.dla_unstated and on_dla:
        style = "yellow"
    unsure = sum(bool(loadable.disputed) for loadable in document.memory)
    if_fits = ""
    if unsure:
        style = "yellow"
        if_fits = f" if the memory of {counted(unsure, 'loadable')} fits: sources disagree"
    page.add(
        f"{text.count(on_dla)} of {counted(layers, 'layer')}{share} run on the DLA{if_fits}",
        style=f"bold {style}",
    )
    if document.dla_unstated:
        page.add(f"DLA on TensorRT {document.tensorrt}: not stated", style="yellow")
    loadables = counted(document.loadables, "loadable")
    if document.candidates != document.loadables:
        loadables += f" of {counted(document.candidates, 'candidate')}"
    if limit := document.max_loadables:
        loadables += f" (limit {limit} per core)"
    if document.candidates:
        changes = counted(document.transitions, "transition")
        page.add(f"{loadables}; {changes} between GPU and DLA")
    unknown = document.unknown_cost
    _add_predicted(page, document.predicted, unknown)
    _add_unknown(page, unknown)
    why = Counter(filter(None, (text.uncertainty(la.dla) for la in document.layers)))
    if disputed := why["sources disagree"]:
        page.add(f"Sources disagree on {counted(disputed, 'verdict')} (--by-layer shows them)")
    if silent := why["no source covers this release"]:
        page.add(
            f"No source covers TensorRT {document.tensorrt}: {counted(silent, 'verdict')} by "
            "the rules of another release"
        )
    _add_sparsity(page, document.sparsity)


def _add_predicted(page: Page, predicted: Forecast | None, unknown: Sequence[UnknownCost]) -> None:
    """Adds the prediction, and how many layers of ``unknown`` cost it leaves out."""
    less = _unknown_suffix(unknown)
    if predicted is None:
        if unknown:
            page.add("predicted latency unknown: no layer that takes time has a cost model")
        return
    auto, alone = predicted.auto_us, predicted.gpu_only_us
    if not predicted.dla_us:
        page.add(f"predicted latency {text.microseconds(alone)}, all on the GPU{less}")
        return
    page.add(
        f"predicted latency {text.microseconds(auto)}, "
        f"{percent(predicted.dla_us / auto)} on the DLA; "
        f"GPU alone {text.microseconds(alone)} ({predicted.power_mode}, not measured){less}",
        hang=2,
    )
    if alone < auto:
        page.add(
            "The GPU alone is predicted to be faster; edgekit plan finds the best device "
            "for each layer"
        )


def _unknown_suffix(unknown: Sequence[UnknownCost]) -> str:
    return f", not counting {counted(len(unknown), 'layer')} of unknown cost" if unknown else ""


def _add_unknown(page: Page, layers: Sequence[UnknownCost]) -> None:
    if not layers:
        return
    named = listed([f"{row.layer} ({row.operator})" for row in layers], _NAMED)
    page.add(
        f"not counted: {counted(len(layers), 'layer')} of unknown cost: {named}",
        hang=2,
        style="yellow",
    )


def _add_sparsity(page: Page, sparsity: Sparsity) -> None:
    """Adds a line if 2:4 sparse weights would shorten the predicted latency."""
    if not sparsity.possible or not sparsity.pays:
        return
    count = counted(sparsity.possible, "convolution")
    saved = text.microseconds(1e6 * sparsity.seconds_saved)
    page.add(
        f"2:4 sparse weights in {count} would save up to {saved} (predicted; see --sparsity)",
        hang=2,
    )


@dataclass
class _Group:
    """A broken rule: its reason at the first layer, that layer, and the layers by fix."""

    reason: VerdictReason
    layer: CheckedLayer
    fixes: Counter[str]


def _groups(document: Check, *, ok: bool) -> list[_Group]:
    """Returns the reasons by rule, the most frequent first."""
    groups: dict[str, _Group] = {}
    for layer in document.layers:
        if layer.dla.ok is not ok:
            continue
        # a rule that a layer breaks several times counts once
        for rule, reason in {r.rule: r for r in layer.dla.reasons}.items():
            group = groups.setdefault(rule, _Group(reason, layer, Counter()))
            group.fixes[reason.fix] += 1
    return sorted(groups.values(), key=lambda group: (-group.fixes.total(), group.reason.rule))


def _add_reason(page: Page, group: _Group) -> None:
    layer, reason = group.layer, group.reason
    name = layer.name
    # an inserted layer has no node; the user knows its origin
    if layer.origin and not layer.nodes:
        name += f" (from {layer.origin[0]})"
    count = counted(group.fixes.total(), "layer")
    page.add(f"{reason.rule}  {count}", indent=2, style="bold")
    page.add(f"{name}: {reason.message}", indent=4, hang=2)
    fixes = sorted(group.fixes.items(), key=lambda item: -item[1])
    for fix, number in fixes[:FIXES]:
        of = f" ({counted(number, 'layer')})" if fixes[1:] else ""
        if fix:
            page.add(f"fix{of}: {fix}", indent=4, hang=2)
    page.add(f"source: {reason.source}", indent=4, hang=2, style="dim")


def _add_memory(page: Page, document: Check) -> None:
    """Adds the pools of the largest loadable and of a core, and the loadables beyond a limit."""
    held = document.memory
    if held:
        page.add()
        page.add(_pools_line(held, document.memory_core), hang=2)
        for pool in document.memory_disputes:
            page.add(
                f"Sources disagree on the default {text.POOLS[pool]} size (--json lists them)",
                indent=2,
            )
    refused = (*document.memory_refused, *held)
    broken = [(loadable, limit) for loadable in refused for limit in loadable.broken]
    if not broken:
        return
    page.add()
    page.add("Loadables over a memory limit, which stay on the GPU", style="bold")
    for loadable, limit in broken[:MEMORY]:
        page.add(f"{limit.rule}  {loadable.name}", indent=2, hang=2, style="bold")
        need, most = text.size(limit.need), text.size(limit.limit)
        page.add(f"needs {need} of {text.POOLS[limit.pool]}, at most {most}", indent=4, hang=2)
        page.add(f"fix: {limit.fix}", indent=4, hang=2)
        page.add(f"source: {limit.source}", indent=4, hang=2, style="dim")
    more = len(broken) - MEMORY
    if more > 0:
        page.add(f"and {counted(more, 'more limit')}, see --json", indent=2)


def _add_buckets(page: Page, document: Check) -> None:
    """Adds the listed shapes of a range, and its cost."""
    if not document.buckets or document.range is None:
        return
    page.add()
    page.add(TITLE, style="bold")
    page.table(HEAD, bucket_rows(document.buckets), SIDES.replace("l", " "))
    for line in range_lines(document.buckets, document.range):
        page.add(line, indent=2, hang=2)


def _pools_line(held: Sequence[LoadableMemory], core: CoreMemory) -> str:
    parts = []
    for pool, name in text.POOLS.items():
        most = max(getattr(loadable.need, pool) for loadable in held)
        parts.append(f"{name} {text.size(most)} of {text.size(getattr(core.limits, pool))}")
    line = f"predicted memory: {', '.join(parts)}"
    if len(held) == 1:
        return line
    both = (f"{name} {text.size(getattr(core.need, pool))}" for pool, name in text.POOLS.items())
    return f"{line} for the largest loadable; {', '.join(both)} for all {len(held)} on a core"


def _add_fixes(page: Page, document: Check) -> None:
    """Adds the fixes that shorten the latency, then those that only put more on the DLA."""
    best = document.fixes[:FIXES]
    timed = document.predicted is not None
    faster = [fix for fix in best if fix.offer == "latency"]
    rest = [fix for fix in best if fix not in faster]
    combined = document.fixes_together
    if faster or (combined and timed):
        page.add()
        page.add("Fixes that shorten the predicted latency", style="bold")
        _add_fix_list(page, document, faster, 1)
        _add_joint_fix(page, document, combined)
    if rest:
        page.add()
        # a fix would save less than the prediction's error, or the GPU alone is faster
        none = " but may not be faster than today's fastest placement" if timed else ""
        page.add(f"Fixes that put more layers on the DLA{none}", style="bold")
        _add_fix_list(page, document, rest, 1 + len(faster))
        _add_joint_fix(page, document, None if timed else combined)


def _add_joint_fix(page: Page, document: Check, fix: Fix | None) -> None:
    if fix:
        rules = " and ".join(fix.rules)
        page.add(f"{rules} together: {_gain(fix, document)}", indent=2, hang=3)


def _add_fix_list(page: Page, document: Check, some: Sequence[Fix], first: int) -> None:
    for number, fix in enumerate(some, first):
        rules = " and ".join(fix.rules)
        layers = counted(len(fix.layers), "layer")
        page.add(f"{number}. {rules}, {layers}: {_gain(fix, document)}", indent=2, hang=3)
        if fix.rewrites:
            page.add(f"apply with edgekit rewrite: {', '.join(fix.rewrites)}", indent=5, hang=2)


def _gain(fix: Fix, document: Check) -> str:
    parts = []
    if fix.auto_us is not None:
        then = f"latency with automatic placement {text.microseconds(fix.auto_us)}"
        if fix.gain_us is None:
            alone = document.predicted.gpu_only_us if document.predicted else None
            parts.append(f"{then} (predicted; GPU alone {text.microseconds(alone)})")
        else:
            parts.append(f"saves {text.microseconds(fix.gain_us)} ({then})")
    before, after = document.loadables, fix.loadables
    parts.append(counted(after, "loadable") + (f" instead of {before}" if after != before else ""))
    # the slot limit hides their number without it
    if fix.candidates != after:
        parts[-1] += f" (of {counted(fix.candidates, 'candidate')})"
    share = percent(fix.dla_macs_fraction)
    if _has_macs(document) and share != percent(document.summary.dla_macs_fraction):
        parts.append(f"{share} of the MACs on the DLA")
    return ", ".join(parts)


def check_layers(document: Check, *, width: int | None = None, colour: bool = False) -> str:
    """Returns a line per layer of an ``edgekit.check/1`` document; names are never cut.

    Args:
        document: The document.
        width: Columns of the terminal; if narrow, less important columns are left out, and then a
            long name gets a separate line. None for all columns.
        colour: True for escape sequences.
    """
    predicted = document.predicted.layer_us if document.predicted else {}
    rows = []
    for layer in document.layers:
        reasons = layer.dla.reasons
        # allowed, but without a slot on a core
        full = layer.dla.ok and layer.placed == "GPU"
        cells = (
            text.clean(layer.name),
            layer.kind,
            layer.placed or "",
            text.macs(layer.macs),
            text.microseconds(predicted.get(layer.name)),
            layer.dla.certainty,
            reasons[0].rule if reasons else layer.dropped or _NO_SLOT if full else "",
        )
        rows.append(dict(zip(_HEAD, cells, strict=True)))
    page = Page(width or WIDTH, colour=colour)
    names_in_columns(page, _HEAD, rows, width=width, spared=_SPARED, right=_LAYERS_RIGHT)
    if document.predicted:
        total = document.predicted.auto_us
        # a layer of unknown cost has no time
        rest = max(0.0, total - sum(us for us in predicted.values() if us is not None))
        unknown = document.unknown_cost
        page.add()
        page.add(
            f"predicted latency {text.microseconds(total)}: the layers above plus "
            f"{text.microseconds(rest)} for starting loadables, transitions and "
            f"conversions{_unknown_suffix(unknown)}. Layers of 0 µs are fused with another layer",
            hang=2,
        )
        _add_unknown(page, unknown)
    return str(page)


def check_one_layer(document: LayerCheck, *, width: int = WIDTH, colour: bool = False) -> str:
    """Returns an ``edgekit.layer/1`` document as text: all known facts about a layer."""
    page = Page(width, colour=colour)
    if folded := document.folded:
        page.add(f"{document.name} {_NOT_RUN.get(folded, folded)}")
        stands = document.layers
        page.add("it is part of:" if stands else "no layer corresponds to it")
    if loadable := document.loadable:
        _add_loadable(page, loadable, document.layers)
        return str(page)
    name = document.name
    # a glob or a module gives a list; a layer, its node or a single match is shown in full
    named = any(name == layer.name or name in layer.origin for layer in document.layers)
    if not (named or document.folded or len(document.layers) == 1):
        _add_layer_list(page, document)
        return str(page)
    for number, layer in enumerate(document.layers):
        if number:
            page.add()
        _add_layer(page, layer)
    return str(page)


def _add_layer_list(page: Page, document: LayerCheck) -> None:
    """Adds the layers of a glob or a module, a line each."""
    layers = document.layers
    page.add(document.name, style="bold")
    total = text.macs(sum(layer.macs for layer in layers))
    page.add(f"{counted(len(layers), 'layer')}, {total} MACs (details with --layer NAME):")
    rows = [
        {
            "layer": text.clean(layer.name),
            "kind": layer.kind,
            "on": layer.placed or "",
            "predicted": text.microseconds(layer.predicted_us),
            "rule": "" if layer.dla.ok else layer.dla.reasons[0].rule,
        }
        for layer in layers
    ]
    names_in_columns(page, list(rows[0]), rows, right=("predicted",))


def _add_loadable(page: Page, loadable: PredictedLoadable, layers: Sequence[LayerFacts]) -> None:
    """Adds a loadable: its device, its memory, its layers by name."""
    page.add(loadable.name, style="bold")
    total = sum(layer.macs for layer in layers)
    where = "the DLA" if loadable.kept else f"the GPU ({loadable.dropped})"
    rows = [("predicted", f"goes to {where}, not measured")]
    rows.append(("size", f"{counted(len(layers), 'layer')}, {text.macs(total)} MACs"))
    times = [layer.predicted_us for layer in layers if layer.predicted_us is not None]
    if times:
        rows.append(("its layers", f"{text.microseconds(sum(times))}, predicted"))
    if loadable.memory:
        rows.append(("its memory", _pool_needs(loadable.memory.need)))
    for name, value in rows:
        page.add(f"{name:<13}{value}", indent=2, hang=13)
    page.add("layers (details with --layer NAME):", indent=2)
    for layer in layers:
        page.add(f"{layer.name}  {layer.kind}", indent=4, hang=2)


def _add_layer(page: Page, layer: LayerFacts) -> None:
    page.add(layer.name, style="bold")
    rows = [("kind", f"{layer.kind} (ONNX {layer.op}), {layer.precision.upper()}")]
    if layer.nodes:
        rows.append(("nodes", ", ".join(layer.nodes)))
    elif layer.origin:
        rows.append(("inserted for", ", ".join(layer.origin)))
    if layer.module:
        rows.append(("module", layer.module))
    rows += [("reads", _tensor(tensor)) for tensor in layer.inputs]
    rows += [("writes", _tensor(tensor)) for tensor in layer.outputs]
    if layer.params:
        params = (_param(key, value) for key, value in layer.params.items())
        rows.append(("parameters", ", ".join(params)))
    sizes = f"{text.macs(layer.macs)} MACs, weights {text.size(layer.weight_bytes)}, "
    rows.append(("size", sizes + f"output {text.size(layer.output_bytes)}"))
    if layer.predicted_us is not None:
        time = text.microseconds(layer.predicted_us)
        rows.append(("predicted", f"{time} on the {layer.placed}, not measured"))
    if layer.cbuf:
        banks = layer.cbuf
        near = "; boards may differ near the limit" if banks.near else ""
        rows.append(("CBUF", f"{banks.banks} of {banks.available} banks{near}"))
    if layer.sparsity:
        rows.append(("2:4 sparsity", _sparsity_words(layer.sparsity)))
    rows.append(("verdict", _verdict_words(layer)))
    rows += _loadable(layer.loadable)
    for name, value in rows:
        page.add(f"{name:<13}{value}", indent=2, hang=13)
    for reason in layer.dla.reasons:
        page.add(reason.rule, indent=2, style="bold")
        page.add(reason.message, indent=4, hang=2)
        # most messages name the limit already
        if reason.limit not in reason.message:
            page.add(f"allowed: {reason.limit}", indent=4, hang=2)
        if reason.fix:
            page.add(f"fix: {reason.fix}", indent=4, hang=2)
        page.add(f"source: {reason.source}", indent=4, hang=2, style="dim")
    if layer.rewrites:
        page.add(f"apply with edgekit rewrite: {', '.join(layer.rewrites)}", indent=2, hang=2)


def _tensor(tensor: TensorFacts) -> str:
    return f"{tensor.name} {'x'.join(map(str, tensor.shape)) or 'scalar'} {tensor.dtype}"


def _param(name: str, value: object) -> str:
    # an order is no shape
    if name == "perm" and isinstance(value, list | tuple):
        return f"{name} {' '.join(map(str, value))}"
    return f"{name} {_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, Mapping):  # one of the operations that TensorRT fuses
        more = (
            _param(key, entry)
            for key, entry in value.items()
            if key != "mode" and entry is not None
        )
        return f"{value['mode']} ({', '.join(more)})" if "mode" in value else " ".join(more)
    if isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
        return " then ".join(map(_value, value))
    if isinstance(value, list | tuple):
        return "x".join(map(str, value)) if value else "none"
    return "yes" if value is True else "no" if value is False else str(value)


def _verdict_words(layer: LayerFacts) -> str:
    words = "can run on the DLA" if layer.dla.ok else "cannot run on the DLA"
    if why := text.uncertainty(layer.dla):
        words += f" ({why})"
    if layer.dla.ok and layer.placed == "GPU":
        rule = layer.dropped or _NO_SLOT
        why = "larger loadables take all slots" if rule == _NO_SLOT else "its loadable is too large"
        words += f"; on the GPU, because {why} ({rule})"
    return words


def _sparsity_words(convolution: SparseConvolution) -> str:
    if convolution.possible:
        return f"possible, saves up to {text.macs(convolution.macs_saved)} MACs (predicted)"
    return f"not possible: {'; '.join(reason.message for reason in convolution.reasons)}"


def _loadable(loadable: LoadableMemory | None) -> list[tuple[str, str]]:
    if loadable is None:
        return []
    count = counted(len(loadable.layers), "layer")
    rows = [("loadable", f"{count}, {loadable.name}")]
    rows.append(("its memory", _pool_needs(loadable.need)))
    return rows


def _pool_needs(need: MemoryNeed) -> str:
    pools = text.POOLS.items()
    return ", ".join(f"{name} {text.size(getattr(need, pool))}" for pool, name in pools)


def sparsity_text(
    document: SparsityCheck, *, width: int | None = None, colour: bool = False
) -> str:
    """Returns an ``edgekit.sparsity/1`` document as text.

    Args:
        document: The document, with the weights read.
        width: Columns; a name that does not fit gets a separate line. None for any width.
        colour: True for escape sequences.
    """
    page = Page(min(width or WIDTH, WIDTH), colour=colour)
    every = document.convolutions
    page.add(
        f"{text.count(document.possible)} of {counted(len(every), 'convolution')} on the "
        f"DLA could have 2:4 sparse weights, {text.count(document.present)} of them have",
        style="bold",
    )
    if document.possible:
        low, high = document.measured_speedup.range
        saved = f"at most {text.microseconds(1e6 * document.seconds_saved)} saved"
        page.add(
            f"if all are sparse: {text.macs(document.macs_saved)} of "
            f"{text.macs(document.macs)} MACs saved, "
            f"{saved if document.pays else 'no shorter latency'} (predicted); NVIDIA "
            f"measured a speed-up of whole networks by {low:g}x to {high:g}x "
            f"({document.measured_speedup.source})"
        )
    rows = [
        {
            "convolution": text.clean(convolution.layer),
            "could": "yes" if convolution.possible else "no",
            "2:4 now": percent(convolution.share),
            "MACs saved": text.macs(convolution.macs_saved),
            "why not": ", ".join(reason.rule for reason in convolution.reasons[:1]),
        }
        for convolution in every
    ]
    if rows:
        page.add()
        names_in_columns(page, list(rows[0]), rows, width=width, right=_SPARSITY_RIGHT)
    return str(page)
