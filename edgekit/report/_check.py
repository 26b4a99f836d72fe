"""``edgekit check`` for people: the verdict, the reasons by rule, the fixes worth most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit._listed import listed
from edgekit.report import _text as text
from edgekit.report._page import WIDTH, Page

__all__ = ["summary_check"]

FIXES = 3
_NAMED = 4
MEMORY = 5


def summary_check(document: Mapping[str, Any], *, width: int = WIDTH, colour: bool = False) -> str:
    """Returns an ``edgekit.check/1`` document as text.

    Args:
        document: From ``check_model``; keys beyond the contract's may be absent.
        width: Columns.
        colour: Whether to use escape sequences.
    """
    page = Page(width, colour=colour)
    _verdict(page, document)
    refused = _groups(document, ok=False)
    lost = document.get("without_slot")
    if refused or lost:
        page.add()
        page.add("Why not on the DLA, and what would make it legal there", style="bold")
    for group in refused:
        _reason(page, group)
    if lost:
        known = {layer["name"]: layer for layer in document["layers"]}
        names = lost["layers"]
        fixes = {lost["fix"]: len(names)}
        _reason(page, {**lost, "layer": known[names[0]], "count": len(names), "fixes": fixes})
    unsure = _groups(document, ok=True)
    if unsure:
        page.add()
        page.add("On the DLA, but sources disagree", style="bold")
    for group in unsure:
        _reason(page, group)
    _fixes(page, document)
    _memory(page, document)
    above = [lost["message"]] if lost else []
    above += [one["name"] for one in document.get("memory_refused", ())]
    for warning in document.get("warnings", ()):
        if warning.startswith(tuple(above)):
            continue  # told above
        page.add()
        page.add(f"note: {warning}", style="yellow")
    return str(page)


def _has_macs(document: Mapping[str, Any]) -> bool:
    return any(layer["macs"] for layer in document["layers"])


def _verdict(page: Page, document: Mapping[str, Any]) -> None:
    summary = document["summary"]
    page.add(
        f"{document['target']}, {document['precision'].upper()}, TensorRT {document['tensorrt']}"
    )
    on_dla, layers = summary["dla_layers"], summary["layers"]
    style = "green" if on_dla == layers else "yellow" if on_dla else "red"
    share = ""
    if _has_macs(document):
        known = "known " if document.get("unknown_cost") else ""
        share = f" and {text.percent(summary['dla_macs_fraction'])} of the {known}MACs"
    page.add(
        f"{text.count(on_dla)} of {text.counted(layers, 'layer')}{share} go to the DLA",
        style=f"bold {style}",
    )
    loadables = text.counted(document["loadables"], "loadable")
    if limit := document.get("max_loadables"):
        loadables = f"{document['loadables']} of {text.counted(limit, 'loadable')}"
    if document["candidates"] != document["loadables"]:
        loadables += f" (of {text.counted(document['candidates'], 'candidate')})"
    if "transitions" in document:
        changes = text.counted(document["transitions"], "transition")
        loadables += f"; {changes} between GPU and DLA"
    if document["candidates"]:
        page.add(loadables)
    _predicted(page, document.get("predicted"))
    _unknown(page, document.get("unknown_cost", ()))
    disputed = sum(layer["dla"]["certainty"] == "disputed" for layer in document["layers"])
    if disputed:
        page.add(f"{text.counted(disputed, 'verdict')} disputed between sources")
    _sparsity(page, document.get("sparsity"))


def _predicted(page: Page, predicted: Mapping[str, Any] | None) -> None:
    if predicted is None:
        return
    auto, alone = predicted["auto_us"], predicted["gpu_only_us"]
    if not predicted["dla_us"]:
        page.add(f"predicted latency {text.microseconds(alone)}, all of it on the GPU")
        return
    page.add(
        f"predicted latency {text.microseconds(auto)}, "
        f"{text.percent(predicted['dla_us'] / auto)} of it on the DLA; "
        f"GPU alone {text.microseconds(alone)} ({predicted['power_mode']}, not measured)",
        hang=2,
    )
    if alone < auto:
        page.add("the GPU alone is predicted to be faster: edgekit plan chooses for each layer")


def _unknown(page: Page, layers: Sequence[Mapping[str, Any]]) -> None:
    if not layers:
        return
    named = listed([f"{row['layer']} ({row['operator']})" for row in layers], _NAMED)
    page.add(
        f"in no time here: {text.counted(len(layers), 'layer')} of unknown cost: {named}",
        hang=2, style="yellow",
    )  # fmt: skip


def _sparsity(page: Page, sparsity: Mapping[str, Any] | None) -> None:
    """Adds a line where 2:4 sparse weights would shorten the predicted latency."""
    if not sparsity or not sparsity["possible"] or not sparsity["pays"]:
        return
    count = text.counted(sparsity["possible"], "convolution")
    saved = text.microseconds(1e6 * sparsity["seconds_saved"])
    page.add(
        f"2:4 sparse weights in {count} would save up to {saved} (predicted; --sparsity)", hang=2
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
    page.add(f"{group['rule']}  {text.counted(group['count'], 'layer')}", indent=2, style="bold")
    page.add(f"{name}: {group['message']}", indent=4, hang=2)
    fixes = sorted(group["fixes"].items(), key=lambda item: -item[1])
    for fix, count in fixes[:FIXES]:
        of = f" ({text.counted(count, 'layer')})" if fixes[1:] else ""
        if fix:
            page.add(f"fix{of}: {fix}", indent=4, hang=2)
    page.add(f"source: {group['source']}", indent=4, hang=2, style="dim")


def _memory(page: Page, document: Mapping[str, Any]) -> None:
    """Adds the pools of the largest loadable and of a core, and who needs more than there is."""
    held = document.get("memory", ())
    if held and "memory_core" in document:
        page.add()
        page.add(_pools(held, document["memory_core"]), hang=2)
        for pool in document.get("memory_disputes", ()):
            page.add(f"sources disagree on the default of {text.POOLS[pool]}: --json", indent=2)
    refused = (*document.get("memory_refused", ()), *held)
    broken = [(one, limit) for one in refused for limit in one["broken"]]
    if not broken:
        return
    page.add()
    page.add("Memory that a loadable does not get: it stays on the GPU", style="bold")
    for one, limit in broken[:MEMORY]:
        page.add(f"{limit['rule']}  {one['name']}", indent=2, hang=2, style="bold")
        need, most = text.size(limit["need"]), text.size(limit["limit"])
        page.add(f"needs {need} of {text.POOLS[limit['pool']]}, at most {most}", indent=4, hang=2)
        page.add(f"fix: {limit['fix']}", indent=4, hang=2)
        page.add(f"source: {limit['source']}", indent=4, hang=2, style="dim")
    more = len(broken) - MEMORY
    if more > 0:
        page.add(f"and {text.counted(more, 'more limit')}, see --json", indent=2)


def _pools(held: Sequence[Mapping[str, Any]], core: Mapping[str, Any]) -> str:
    parts = []
    for pool, name in text.POOLS.items():
        most = max(one["need"][pool] for one in held)
        parts.append(f"{name} {text.size(most)} of {text.size(core['limits'][pool])}")
    line = f"predicted memory: {', '.join(parts)}"
    if len(held) == 1:
        return line
    both = (f"{name} {text.size(core['need'][pool])}" for pool, name in text.POOLS.items())
    return f"{line} for the largest loadable; {', '.join(both)} for all {len(held)} on a core"


def _fixes(page: Page, document: Mapping[str, Any]) -> None:
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
        none = ", without a sure gain over the fastest placement now" if timed else ""
        page.add(f"Fixes that let more run on the DLA{none}", style="bold")
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
            page.add(f"edgekit rewrite does it: {', '.join(fix['rewrites'])}", indent=5, hang=2)


def _fix(fix: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    rules = " and ".join(fix["rules"])
    return f"{rules}, {text.counted(len(fix['layers']), 'layer')}: {_gain(fix, document)}"


def _gain(fix: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    parts = []
    if fix["auto_us"] is not None:
        then = f"then {text.microseconds(fix['auto_us'])}"
        if fix["gain_us"] is None:
            alone = text.microseconds(document["predicted"]["gpu_only_us"])
            parts.append(f"{then} (predicted; GPU alone {alone})")
        else:
            parts.append(f"saves {text.microseconds(fix['gain_us'])} ({then})")
    before, after = document["loadables"], fix["loadables"]
    parts.append(
        text.counted(after, "loadable") + (f" instead of {before}" if after != before else "")
    )
    # the slot limit hides how many there would be
    if fix["candidates"] != after:
        parts[-1] += f" (of {text.counted(fix['candidates'], 'candidate')})"
    share = text.percent(fix["dla_macs_fraction"])
    if _has_macs(document) and share != text.percent(document["summary"]["dla_macs_fraction"]):
        parts.append(f"{share} of the MACs on the DLA")
    return ", ".join(parts)
