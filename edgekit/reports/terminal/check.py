"""``edgekit check`` and ``edgekit explain`` for people: the verdict, the reasons by rule, the most
valuable fixes; all layers as a table, one layer in full; sparsity; a rule or an operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.reports import text
from edgekit.reports.text import WIDTH, Page, names_in_columns
from edgekit.targets.board import GENERATIONS
from edgekit.text import counted, listed, percent, sentence

FIXES = 3
_NAMED = 4
MEMORY = 5
_PROBLEMS = 8
# what a narrow terminal goes without, in this order
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
_EFFECTS = {
    "refuse": "a layer that breaks it stays on the GPU",
    "risk": "a layer that breaks it is allowed, but may fail on the board",
    "note": "not checked layer by layer",
}
_COLUMN = 14
_MATRIX = "Support by Orin's DLA in NVIDIA's operator matrix"


def summary_check(document: Mapping[str, Any], *, width: int = WIDTH, colour: bool = False) -> str:
    """Returns an ``edgekit.check/1`` document as text.

    Args:
        document: From ``check_model``; keys beyond the contract's may be absent.
        width: Columns.
        colour: Whether to use escape sequences.
    """
    page = Page(width, colour=colour)
    page.add(
        f"{document['target']}, {document['precision'].upper()}, TensorRT {document['tensorrt']}"
    )
    if differing := document.get("tensorrt_sources"):
        page.add(f"Sources differ on the TensorRT of {differing}")
    parse, placed = document.get("parse") or {"ok": True}, text.is_placed(document)
    if not parse["ok"]:
        _add_parse(page, parse)
    if placed:
        _add_verdict(page, document)
    refused = _groups(document, ok=False)
    lost = document.get("without_slot")
    if refused or lost:
        page.add()
        page.add("Why layers cannot run on the DLA, and how to fix it", style="bold")
    for group in refused:
        _reason(page, group)
    if lost:
        known = {layer["name"]: layer for layer in document["layers"]}
        names = lost["layers"]
        fixes = {lost["fix"]: len(names)}
        _reason(page, {**lost, "layer": known[names[0]], "count": len(names), "fixes": fixes})
    unsure = _groups(document, ok=True)
    silent = [group for group in unsure if group["rule"] == text.RELEASE_RULE]
    release = f"no source covers TensorRT {document['tensorrt']}"
    for why, groups in (
        ("sources disagree", [group for group in unsure if group not in silent]),
        (release, silent),
    ):
        if groups:
            page.add()
            page.add(f"On the DLA, but {why}", style="bold")
        for group in groups:
            _reason(page, group)
    _add_fixes(page, document)
    _memory(page, document)
    above = [lost["message"]] if lost else []
    above += [one["name"] for one in document.get("memory_refused", ())]
    for warning in document.get("warnings", ()):
        if warning.startswith(tuple(above)):
            continue  # shown above
        page.add()
        page.add(f"note: {sentence(warning)}", style="yellow")
    return str(page)


def _add_parse(page: Page, parse: Mapping[str, Any]) -> None:
    """Adds the nodes that the parser refuses."""
    problems = parse["problems"]
    page.add(
        f"TensorRT {parse['release']} cannot parse this model ({parse['model']}): its parser "
        f"refuses {counted(len(problems), 'node')}. "
        + (
            "plan, build and run convert the model first; what follows is of the converted model"
            if parse["converted"]
            else "No layer is placed"
        ),
        style="bold red",
    )
    page.add()
    page.add("What the parser refuses, and how to fix it", style="bold")
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in problems:
        groups.setdefault((one["message"], one["fix"]), []).append(one)
    for (message, fix), nodes in list(groups.items())[:_PROBLEMS]:
        names = listed([one["node"] for one in nodes], _NAMED)
        page.add(f"{nodes[0]['operator']}  {counted(len(nodes), 'node')}", indent=2, style="bold")
        page.add(f"{names}: {message}", indent=4, hang=2)
        page.add(f"fix: {fix}", indent=4, hang=2)
    more = len(groups) - _PROBLEMS
    if more > 0:
        page.add(f"and {counted(more, 'more problem')}, see --json", indent=2)


def _has_macs(document: Mapping[str, Any]) -> bool:
    return any(layer["macs"] for layer in document["layers"])


def _add_verdict(page: Page, document: Mapping[str, Any]) -> None:
    summary = document["summary"]
    on_dla, layers = summary["dla_layers"], summary["layers"]
    style = "green" if on_dla == layers else "yellow" if on_dla else "red"
    share = ""
    if _has_macs(document):
        known = "known " if document.get("unknown_cost") else ""
        share = f" and {percent(summary['dla_macs_fraction'])} of the {known}MACs"
    if document.get("dla_unstated") and on_dla:
        style = "yellow"
    unsure = sum(bool(one.get("disputed")) for one in document.get("memory", ()))
    if_fits = ""
    if unsure:
        style = "yellow"
        if_fits = f" if the memory of {counted(unsure, 'loadable')} fits: sources disagree"
    page.add(
        f"{text.count(on_dla)} of {counted(layers, 'layer')}{share} run on the DLA{if_fits}",
        style=f"bold {style}",
    )
    if document.get("dla_unstated"):
        page.add(f"DLA on TensorRT {document['tensorrt']}: not stated", style="yellow")
    loadables = counted(document["loadables"], "loadable")
    if document["candidates"] != document["loadables"]:
        loadables += f" of {counted(document['candidates'], 'candidate')}"
    if limit := document.get("max_loadables"):
        loadables += f" (limit {limit} per core)"
    if "transitions" in document:
        changes = counted(document["transitions"], "transition")
        loadables += f"; {changes} between GPU and DLA"
    if document["candidates"]:
        page.add(loadables)
    unknown = document.get("unknown_cost", ())
    _predicted(page, document.get("predicted"), unknown)
    _unknown(page, unknown)
    why = Counter(filter(None, (text.unsure(la["dla"]) for la in document["layers"])))
    if disputed := why["sources disagree"]:
        page.add(f"Sources disagree on {counted(disputed, 'verdict')} (--by-layer shows them)")
    if silent := why["no source covers this release"]:
        page.add(
            f"No source covers TensorRT {document['tensorrt']}: {counted(silent, 'verdict')} by "
            "the rules of another release"
        )
    _add_sparsity(page, document.get("sparsity"))


def _predicted(
    page: Page, predicted: Mapping[str, Any] | None, unknown: Sequence[Mapping[str, Any]]
) -> None:
    """Adds the prediction, and how many layers of ``unknown`` cost it leaves out."""
    less = _less(unknown)
    if predicted is None:
        if unknown:
            page.add("predicted latency unknown: no layer that takes time has a cost model")
        return
    auto, alone = predicted["auto_us"], predicted["gpu_only_us"]
    if not predicted["dla_us"]:
        page.add(f"predicted latency {text.microseconds(alone)}, all on the GPU{less}")
        return
    page.add(
        f"predicted latency {text.microseconds(auto)}, "
        f"{percent(predicted['dla_us'] / auto)} of it on the DLA; "
        f"GPU alone {text.microseconds(alone)} ({predicted['power_mode']}, not measured){less}",
        hang=2,
    )
    if alone < auto:
        page.add(
            "The GPU alone is predicted to be faster; edgekit plan finds the best device "
            "for each layer"
        )


def _less(unknown: Sequence[Mapping[str, Any]]) -> str:
    return f", not counting {counted(len(unknown), 'layer')} of unknown cost" if unknown else ""


def _unknown(page: Page, layers: Sequence[Mapping[str, Any]]) -> None:
    if not layers:
        return
    named = listed([f"{row['layer']} ({row['operator']})" for row in layers], _NAMED)
    page.add(
        f"not counted: {counted(len(layers), 'layer')} of unknown cost: {named}",
        hang=2, style="yellow",
    )  # fmt: skip


def _add_sparsity(page: Page, sparsity: Mapping[str, Any] | None) -> None:
    """Adds a line where 2:4 sparse weights would shorten the predicted latency."""
    if not sparsity or not sparsity["possible"] or not sparsity["pays"]:
        return
    count = counted(sparsity["possible"], "convolution")
    saved = text.microseconds(1e6 * sparsity["seconds_saved"])
    page.add(
        f"2:4 sparse weights in {count} would save up to {saved} (predicted; see --sparsity)",
        hang=2,
    )


def _groups(document: Mapping[str, Any], *, ok: bool) -> list[dict[str, Any]]:
    """Returns the reasons by rule: how many layers, the first as an example, how many a fix."""
    groups: dict[str, dict[str, Any]] = {}
    for layer in document["layers"]:
        if layer["dla"]["ok"] is not ok:
            continue
        for rule, reason in {r["rule"]: r for r in layer["dla"]["reasons"]}.items():
            group = groups.setdefault(rule, {"count": 0, "layer": layer, "fixes": {}, **reason})
            group["count"] += 1
            group["fixes"][reason["fix"]] = group["fixes"].get(reason["fix"], 0) + 1
    return sorted(groups.values(), key=lambda group: (-group["count"], group["rule"]))


def _reason(page: Page, group: Mapping[str, Any]) -> None:
    layer = group["layer"]
    name = layer["name"]
    # an inserted layer has no node of its own; its origin is what the user knows
    if layer["from"] and not layer["nodes"]:
        name += f" (from {layer['from'][0]})"
    page.add(f"{group['rule']}  {counted(group['count'], 'layer')}", indent=2, style="bold")
    page.add(f"{name}: {group['message']}", indent=4, hang=2)
    fixes = sorted(group["fixes"].items(), key=lambda item: -item[1])
    for fix, count in fixes[:FIXES]:
        of = f" ({counted(count, 'layer')})" if fixes[1:] else ""
        if fix:
            page.add(f"fix{of}: {fix}", indent=4, hang=2)
    page.add(f"source: {group['source']}", indent=4, hang=2, style="dim")


def _memory(page: Page, document: Mapping[str, Any]) -> None:
    """Adds the pools of the largest loadable and of a core, and who needs more than there is."""
    held = document.get("memory", ())
    if held and "memory_core" in document:
        page.add()
        page.add(_pools_line(held, document["memory_core"]), hang=2)
        for pool in document.get("memory_disputes", ()):
            page.add(
                f"Sources disagree on the default {text.POOLS[pool]} size (--json lists them)",
                indent=2,
            )
    refused = (*document.get("memory_refused", ()), *held)
    broken = [(one, limit) for one in refused for limit in one["broken"]]
    if not broken:
        return
    page.add()
    page.add("Loadables over a memory limit, which stay on the GPU", style="bold")
    for one, limit in broken[:MEMORY]:
        page.add(f"{limit['rule']}  {one['name']}", indent=2, hang=2, style="bold")
        need, most = text.size(limit["need"]), text.size(limit["limit"])
        page.add(f"needs {need} of {text.POOLS[limit['pool']]}, at most {most}", indent=4, hang=2)
        page.add(f"fix: {limit['fix']}", indent=4, hang=2)
        page.add(f"source: {limit['source']}", indent=4, hang=2, style="dim")
    more = len(broken) - MEMORY
    if more > 0:
        page.add(f"and {counted(more, 'more limit')}, see --json", indent=2)


def _pools_line(held: Sequence[Mapping[str, Any]], core: Mapping[str, Any]) -> str:
    parts = []
    for pool, name in text.POOLS.items():
        most = max(one["need"][pool] for one in held)
        parts.append(f"{name} {text.size(most)} of {text.size(core['limits'][pool])}")
    line = f"predicted memory: {', '.join(parts)}"
    if len(held) == 1:
        return line
    both = (f"{name} {text.size(core['need'][pool])}" for pool, name in text.POOLS.items())
    return f"{line} for the largest loadable; {', '.join(both)} for all {len(held)} on a core"


def _add_fixes(page: Page, document: Mapping[str, Any]) -> None:
    """Adds what shortens the latency, and apart from it what only lets more run on the DLA."""
    best = document.get("fixes", ())[:FIXES]
    timed = document.get("predicted") is not None
    faster = [fix for fix in best if fix["offer"] == "latency"]
    rest = [fix for fix in best if fix not in faster]
    combined = document.get("fixes_together")
    if faster or (combined and timed):
        page.add()
        page.add("Fixes that shorten the predicted latency", style="bold")
        _listed(page, document, faster, 1)
        _together(page, document, combined)
    if rest:
        page.add()
        # what a fix would save lies within the prediction's error, or the GPU alone is faster
        none = " but may not be faster than today's fastest placement" if timed else ""
        page.add(f"Fixes that put more layers on the DLA{none}", style="bold")
        _listed(page, document, rest, 1 + len(faster))
        _together(page, document, None if timed else combined)


def _together(page: Page, document: Mapping[str, Any], fix: Mapping[str, Any] | None) -> None:
    if fix:
        rules = " and ".join(fix["rules"])
        page.add(f"{rules} together: {_gain(fix, document)}", indent=2, hang=3)


def _listed(
    page: Page, document: Mapping[str, Any], some: Sequence[Mapping[str, Any]], first: int
) -> None:
    for number, fix in enumerate(some, first):
        page.add(f"{number}. {_fix(fix, document)}", indent=2, hang=3)
        if fix["rewrites"]:
            page.add(f"apply with edgekit rewrite: {', '.join(fix['rewrites'])}", indent=5, hang=2)


def _fix(fix: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    rules = " and ".join(fix["rules"])
    return f"{rules}, {counted(len(fix['layers']), 'layer')}: {_gain(fix, document)}"


def _gain(fix: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    parts = []
    if fix["auto_us"] is not None:
        then = f"latency with automatic placement {text.microseconds(fix['auto_us'])}"
        if fix["gain_us"] is None:
            alone = text.microseconds(document["predicted"]["gpu_only_us"])
            parts.append(f"{then} (predicted; GPU alone {alone})")
        else:
            parts.append(f"saves {text.microseconds(fix['gain_us'])} ({then})")
    before, after = document["loadables"], fix["loadables"]
    parts.append(counted(after, "loadable") + (f" instead of {before}" if after != before else ""))
    # the slot limit hides how many there would be
    if fix["candidates"] != after:
        parts[-1] += f" (of {counted(fix['candidates'], 'candidate')})"
    share = percent(fix["dla_macs_fraction"])
    if _has_macs(document) and share != percent(document["summary"]["dla_macs_fraction"]):
        parts.append(f"{share} of the MACs on the DLA")
    return ", ".join(parts)


def check_layers(
    document: Mapping[str, Any], *, width: int | None = None, colour: bool = False
) -> str:
    """Returns one line a layer of an ``edgekit.check/1`` document; names are always whole.

    Args:
        document: The document.
        width: Columns; where they are few, the less important ones are left out, and then a long
            name has a line of its own. When None every column is there.
        colour: Whether to use escape sequences.
    """
    predicted = (document.get("predicted") or {}).get("layers", {})
    rows = []
    for layer in document["layers"]:
        reasons = layer["dla"]["reasons"]
        full = layer["dla"]["ok"] and layer["placed"] == "GPU"
        cells = (
            text.clean(layer["name"]), layer["kind"], layer["placed"] or "",
            text.macs(layer["macs"]), text.microseconds(predicted.get(layer["name"])),
            layer["dla"]["certainty"],
            reasons[0]["rule"] if reasons else layer.get("dropped") or _NO_SLOT if full else "",
        )  # fmt: skip
        rows.append(dict(zip(_HEAD, cells, strict=True)))
    page = Page(width or WIDTH, colour=colour)
    names_in_columns(page, _HEAD, rows, width=width, spared=_SPARED, right=_LAYERS_RIGHT)
    if predicted:
        total = document["predicted"]["auto_us"]
        # a layer of unknown cost has no time
        rest = max(0.0, total - sum(us for us in predicted.values() if us is not None))
        unknown = document.get("unknown_cost", ())
        page.add()
        page.add(
            f"predicted latency {text.microseconds(total)}: the layers above plus "
            f"{text.microseconds(rest)} for starting loadables, transitions and "
            f"conversions{_less(unknown)}. Layers of 0 µs are fused with another layer",
            hang=2,
        )
        _unknown(page, unknown)
    return str(page)


def check_one_layer(
    document: Mapping[str, Any], *, width: int = WIDTH, colour: bool = False
) -> str:
    """Returns an ``edgekit.layer/1`` document as text: everything that is known of a layer."""
    page = Page(width, colour=colour)
    if folded := document.get("folded"):
        page.add(f"{document['name']} {_NOT_RUN.get(folded, folded)}")
        stands = document["layers"]
        page.add("it is part of:" if stands else "no layer corresponds to it")
    if loadable := document.get("loadable"):
        _whole(page, loadable, document["layers"])
        return str(page)
    for number, layer in enumerate(document["layers"]):
        if number:
            page.add()
        _layer(page, layer)
    return str(page)


def _whole(page: Page, loadable: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> None:
    """Adds a loadable: where it goes, its memory, its layers by name."""
    page.add(loadable["name"], style="bold")
    total = sum(layer["macs"] for layer in layers)
    where = "the DLA" if loadable["kept"] else f"the GPU ({loadable['dropped']})"
    rows = [("predicted", f"goes to {where}, not measured")]
    rows.append(("size", f"{counted(len(layers), 'layer')}, {text.macs(total)} MACs"))
    times = [layer["predicted_us"] for layer in layers if layer["predicted_us"] is not None]
    if times:
        rows.append(("its layers", f"{text.microseconds(sum(times))}, predicted"))
    if loadable["memory"]:
        rows.append(("its memory", _pool_needs(loadable["memory"]["need"])))
    for name, value in rows:
        page.add(f"{name:<13}{value}", indent=2, hang=13)
    page.add("layers (details with --layer NAME):", indent=2)
    for layer in layers:
        page.add(f"{layer['name']}  {layer['kind']}", indent=4, hang=2)


def _layer(page: Page, layer: Mapping[str, Any]) -> None:
    page.add(layer["name"], style="bold")
    rows = [("kind", f"{layer['kind']} (ONNX {layer['op']}), {layer['precision'].upper()}")]
    if layer["nodes"]:
        rows.append(("nodes", ", ".join(layer["nodes"])))
    elif layer["from"]:
        rows.append(("inserted for", ", ".join(layer["from"])))
    rows += [("reads", _tensor(tensor)) for tensor in layer["inputs"]]
    rows += [("writes", _tensor(tensor)) for tensor in layer["outputs"]]
    if layer["params"]:
        params = (_param(key, value) for key, value in layer["params"].items())
        rows.append(("parameters", ", ".join(params)))
    sizes = f"{text.macs(layer['macs'])} MACs, weights {text.size(layer['weight_bytes'])}, "
    rows.append(("size", sizes + f"output {text.size(layer['output_bytes'])}"))
    if layer["predicted_us"] is not None:
        time = text.microseconds(layer["predicted_us"])
        rows.append(("predicted", f"{time} on the {layer['placed']}, not measured"))
    if layer["cbuf"]:
        banks = layer["cbuf"]
        near = "; boards may differ near the limit" if banks["near"] else ""
        rows.append(("CBUF", f"{banks['banks']} of {banks['available']} banks{near}"))
    if layer["sparsity"]:
        rows.append(("2:4 sparsity", _sparsity_words(layer["sparsity"])))
    rows.append(("verdict", _verdict_words(layer)))
    rows += _loadable(layer["loadable"])
    for name, value in rows:
        page.add(f"{name:<13}{value}", indent=2, hang=13)
    for reason in layer["dla"]["reasons"]:
        page.add(reason["rule"], indent=2, style="bold")
        page.add(reason["message"], indent=4, hang=2)
        if reason["limit"] not in reason["message"]:
            page.add(f"allowed: {reason['limit']}", indent=4, hang=2)
        if reason["fix"]:
            page.add(f"fix: {reason['fix']}", indent=4, hang=2)
        page.add(f"source: {reason['source']}", indent=4, hang=2, style="dim")
    if layer.get("rewrites"):
        page.add(f"apply with edgekit rewrite: {', '.join(layer['rewrites'])}", indent=2, hang=2)


def _tensor(tensor: Mapping[str, Any]) -> str:
    return f"{tensor['name']} {'x'.join(map(str, tensor['shape'])) or 'scalar'} {tensor['dtype']}"


def _param(name: str, value: Any) -> str:
    # an order is no shape
    order = name == "perm" and isinstance(value, list | tuple)
    return f"{name} {' '.join(map(str, value)) if order else _value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):  # one of the operations that TensorRT fuses
        more = (_param(key, one) for key, one in value.items() if key != "mode" and one is not None)
        return f"{value['mode']} ({', '.join(more)})" if "mode" in value else " ".join(more)
    if isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        return " then ".join(map(_value, value))
    if isinstance(value, list | tuple):
        return "x".join(map(str, value)) if value else "none"
    return "yes" if value is True else "no" if value is False else str(value)


def _verdict_words(layer: Mapping[str, Any]) -> str:
    words = "can run on the DLA" if layer["dla"]["ok"] else "cannot run on the DLA"
    if why := text.unsure(layer["dla"]):
        words += f" ({why})"
    if layer["dla"]["ok"] and layer["placed"] == "GPU":
        rule = layer.get("dropped") or _NO_SLOT
        why = "larger loadables take all slots" if rule == _NO_SLOT else "its loadable is too large"
        words += f"; on the GPU, because {why} ({rule})"
    return words


def _sparsity_words(one: Mapping[str, Any]) -> str:
    if one["possible"]:
        return f"possible, saves up to {text.macs(one['macs_saved'])} MACs (predicted)"
    return f"not possible: {'; '.join(reason['message'] for reason in one['reasons'])}"


def _loadable(loadable: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if loadable is None:
        return []
    count = counted(len(loadable["layers"]), "layer")
    rows = [("loadable", f"{count}, {loadable['name']}")]
    rows.append(("its memory", _pool_needs(loadable["need"])))
    return rows


def _pool_needs(need: Mapping[str, int]) -> str:
    return ", ".join(f"{text.POOLS[name]} {text.size(size)}" for name, size in need.items())


def sparsity_text(
    document: Mapping[str, Any], *, width: int | None = None, colour: bool = False
) -> str:
    """Returns an ``edgekit.sparsity/1`` document as text.

    Args:
        document: From ``sparsity_document``, with the weights read.
        width: Columns; a name that does not fit has a line of its own. When None they may be any.
        colour: Whether to use escape sequences.
    """
    page = Page(min(width or WIDTH, WIDTH), colour=colour)
    every = document["convolutions"]
    page.add(
        f"{text.count(document['possible'])} of {counted(len(every), 'convolution')} on the "
        f"DLA could have 2:4 sparse weights, {text.count(document['present'])} of them have",
        style="bold",
    )
    if document["possible"]:
        low, high = document["measured_speedup"]["range"]
        saved = f"at most {text.microseconds(1e6 * document['seconds_saved'])} saved"
        page.add(
            f"if all are sparse: {text.macs(document['macs_saved'])} of "
            f"{text.macs(document['macs'])} MACs saved, "
            f"{saved if document['pays'] else 'no shorter latency'} (predicted); NVIDIA "
            f"measured a speed-up of whole networks by {low:g}x to {high:g}x "
            f"({document['measured_speedup']['source']})"
        )
    rows = [
        {
            "convolution": text.clean(one["layer"]), "could": "yes" if one["possible"] else "no",
            "2:4 now": percent(one["share"]), "MACs saved": text.macs(one["macs_saved"]),
            "why not": ", ".join(reason["rule"] for reason in one["reasons"][:1]),
        }
        for one in every
    ]  # fmt: skip
    if rows:
        page.add()
        names_in_columns(page, list(rows[0]), rows, width=width, right=_SPARSITY_RIGHT)
    return str(page)


def rule_text(found: Mapping[str, Any], *, width: int = WIDTH, colour: bool = False) -> str:
    """Returns what ``edgekit.dla.explanation.explain`` found as text.

    Args:
        found: A rule, a family of them, or an operator with its row of NVIDIA's matrix.
        width: Columns.
        colour: Whether to use escape sequences.
    """
    page = Page(width, colour=colour)
    if "family" in found and "id" not in found:
        return _family(page, found)
    rule = "id" in found
    page.add(found["id"] if rule else f"ONNX {found['operator']}", style="bold")
    page.add(found["text"] if rule else _MATRIX, indent=2)
    page.add()
    for name, value in _rule(found) if rule else _operator(found):
        if value:
            page.add(f"{name:<{_COLUMN}}{value}", indent=2, hang=_COLUMN)
    for number, source in enumerate(found.get("sources") or [{"title": found["source"]}]):
        name = "" if number else "source"
        page.add(f"{name:<{_COLUMN}}{source['title']}", indent=2, hang=_COLUMN)
        if source.get("where"):
            page.add(source["where"], indent=2 + _COLUMN, style="dim")
    if "family_rules" in found:
        page.add()
        return _family(page, found["family_rules"])
    return str(page)


def _family(page: Page, found: Mapping[str, Any]) -> str:
    page.add(found["title"], style="bold")
    for rule in found["rules"]:
        page.add(rule["id"], indent=2, style="bold")
        page.add(rule["text"] + (f" ({rule['limit']})" if rule["limit"] else ""), indent=4)
    return str(page)


def _rule(rule: Mapping[str, Any]) -> list[tuple[str, str]]:
    everywhere = "*" in rule["kinds"] or not rule["kinds"]
    return [
        ("limit", rule["limit"]),
        ("layers", "all" if everywhere else ", ".join(rule["kinds"])),
        ("holds for", "; ".join(_scope(rule))),
        ("effect", _EFFECTS.get(rule["effect"], rule["effect"])),
        ("certainty", _certainty(rule["certainty"])),
        *_rule_fixes(rule),
    ]


def _rule_fixes(rule: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the fix, or one for each kind of layer, as ``check`` gives the first that fits."""
    several = [f"{one['for']}: {one['fix']}" for one in rule["fixes"]]
    found = [
        ("" if number else "fix", text) for number, text in enumerate(several or [rule["fix"]])
    ]
    if rule["effect"] == "refuse" and not rule["network"]:
        found.append(
            ("rewrite", "`edgekit check MODEL --layer NAME` shows whether a rewrite applies")
        )
    return found


def _scope(rule: Mapping[str, Any]) -> list[str]:
    parts = [
        " and ".join(f"DLA {name} ({GENERATIONS[name]})" for name in rule["generations"]),
        " and ".join(name.upper() for name in rule["precisions"]),
    ]
    since, until = rule["since"], rule["until"]
    if since and until:
        parts.append(f"TensorRT {since} up to, not including, {until}")
    elif since:
        parts.append(f"TensorRT {since} and later")
    elif until:
        parts.append(f"TensorRT before {until}")
    else:
        parts.append("every TensorRT with DLA")
    return [part for part in parts if part]


def _certainty(word: str) -> str:
    if word == "disputed":
        return (
            "disputed: sources are silent or contradict each other; only a test on a board "
            "can decide"
        )
    return word


def _operator(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("TensorRT", f"{row['text']}{_since(row['since'])}"),
        ("DLA software", f"{row['dla_software_text']}{_since(row['dla_software_since'])}"),
        ("check", row["verdict"]),
        ("rules", ", ".join(row["rules"])),
        ("fix", row["fix"]),
    ]


def _since(version: str | None) -> str:
    return f", from {version}" if version else ""
