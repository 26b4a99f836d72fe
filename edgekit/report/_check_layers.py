"""``edgekit check --by-layer`` and ``--layer``: all layers as a table, one layer in full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.report import _text as text
from edgekit.report._page import WIDTH, Page
from edgekit.report._table import names_in_columns

__all__ = ["check_layers", "check_one_layer"]

# what a narrow terminal goes without, in this order
_SPARED = ("MACs", "predicted", "certainty")
_HEAD = ("layer", "kind", "on", "MACs", "predicted", "certainty", "rule")
_RIGHT = ("MACs", "predicted")


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
            text.clean(layer["name"]), layer["kind"], layer["placed"],
            text.macs(layer["macs"]), text.microseconds(predicted.get(layer["name"])),
            layer["dla"]["certainty"],
            reasons[0]["rule"] if reasons else layer.get("dropped") or _NO_SLOT if full else "",
        )  # fmt: skip
        rows.append(dict(zip(_HEAD, cells, strict=True)))
    page = Page(width or WIDTH, colour=colour)
    names_in_columns(page, _HEAD, rows, width=width, spared=_SPARED, right=_RIGHT)
    if predicted:
        total = document["predicted"]["auto_us"]
        # a layer of unknown cost has no time
        rest = max(0.0, total - sum(us for us in predicted.values() if us is not None))
        page.add()
        page.add(
            f"predicted latency {text.microseconds(total)}: the layers above, and "
            f"{text.microseconds(rest)} that belong to none: starts of loadables, transitions "
            "and conversions. A layer of 0 µs is fused with another",
            hang=2,
        )
    return str(page)


# why a node of the file is no layer (``edgekit.network.Folded``)
_GONE = {
    "constant": "is computed before running, from constants or known shapes",
    "identity": "does nothing while running",
    "branch": "is an If whose condition is known",
    "function": "is a call whose body took its place",
    "given": "has values that were given",
    "unused": "computes what no output needs",
}
_NO_SLOT = "memory.loadables"


def check_one_layer(
    document: Mapping[str, Any], *, width: int = WIDTH, colour: bool = False
) -> str:
    """Returns an ``edgekit.layer/1`` document as text: everything that is known of a layer."""
    page = Page(width, colour=colour)
    if folded := document.get("folded"):
        page.add(f"{document['name']} {_GONE.get(folded, folded)}")
        stands = document["layers"]
        page.add("it is a part of:" if stands else "no layer stands for it")
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
    rows.append(("size", f"{text.counted(len(layers), 'layer')}, {text.macs(total)} MACs"))
    times = [layer["predicted_us"] for layer in layers if layer["predicted_us"] is not None]
    if times:
        rows.append(("its layers", f"{text.microseconds(sum(times))}, predicted"))
    if loadable["memory"]:
        rows.append(("its memory", _pools(loadable["memory"]["need"])))
    for name, value in rows:
        page.add(f"{name:<13}{value}", indent=2, hang=13)
    page.add("layers (--layer NAME tells more of one):", indent=2)
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
        near = "; near the limit boards may disagree" if banks["near"] else ""
        rows.append(("CBUF", f"{banks['banks']} of {banks['available']} banks{near}"))
    if layer["sparsity"]:
        rows.append(("2:4 sparsity", _sparsity(layer["sparsity"])))
    rows.append(("verdict", _verdict(layer)))
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
        page.add(f"edgekit rewrite does it: {', '.join(layer['rewrites'])}", indent=2, hang=2)


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


def _verdict(layer: Mapping[str, Any]) -> str:
    words = "can run on the DLA" if layer["dla"]["ok"] else "cannot run on the DLA"
    if layer["dla"]["certainty"] == "disputed":
        words += ", disputed between sources"
    if layer["dla"]["ok"] and layer["placed"] == "GPU":
        rule = layer.get("dropped") or _NO_SLOT
        why = "larger loadables take all slots" if rule == _NO_SLOT else "its loadable is too large"
        words += f"; on the GPU, because {why} ({rule})"
    return words


def _sparsity(one: Mapping[str, Any]) -> str:
    if one["possible"]:
        return f"possible, spares up to {text.macs(one['macs_saved'])} MACs (predicted)"
    return f"not possible: {'; '.join(reason['message'] for reason in one['reasons'])}"


def _loadable(loadable: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if loadable is None:
        return []
    count = text.counted(len(loadable["layers"]), "layer")
    rows = [("loadable", f"{count}, {loadable['name']}")]
    rows.append(("its memory", _pools(loadable["need"])))
    return rows


def _pools(need: Mapping[str, int]) -> str:
    return ", ".join(f"{text.POOLS[name]} {text.size(size)}" for name, size in need.items())
