"""Everything that a check knows of one layer, and of 2:4 sparsity."""

from __future__ import annotations

import difflib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.pipeline._check_log_name import layers_in_log, loadable_in_log, without_kind

if TYPE_CHECKING:
    from edgekit.network import Layer
    from edgekit.pipeline._check import CheckResult

__all__ = ["layer_document", "sparsity_document"]

SCHEMA = "edgekit.layer/1"


def layer_document(result: CheckResult, name: str) -> dict[str, Any]:
    """Returns the ``edgekit.layer/1`` document of a layer, or of all layers of an ONNX node.

    Args:
        result: From ``check_model``.
        name: A layer's name, or an ONNX node's; the layers that were inserted for a node are told
            with it. For a node that loading took out of the graph
            ``folded`` says why, and the layers are those that took it in, if any. Or a name of
            the builder's log: of a fusion, or of a loadable, which ``loadable`` then is.

    Raises:
        UsageError: "layer.unknown": there is neither.
    """
    found, gone, whole = _named(result, name)
    told = {entry["name"]: entry for entry in result.document["layers"]}
    keys = ("model", "target", "precision", "tensorrt")
    return {
        "schema": SCHEMA,
        **{key: result.document[key] for key in keys},
        "name": name,
        "folded": gone or None,
        "loadable": whole,
        "layers": [{**told[layer.name], **_more(result, layer)} for layer in found],
    }


def _named(result: CheckResult, name: str) -> tuple[list[Layer], str, dict[str, Any] | None]:
    """Returns the layers, why a node is none of them, and the loadable that is meant."""
    from edgekit.network import places

    layers = result.network.whole.layers
    plain = without_kind(name)
    tried = dict.fromkeys((name, plain))  # a layer may itself be called "A: b"
    for one in tried:
        found = [la for la in layers if one == la.name or one in la.nodes or one in la.origin]
        if found:
            return found, "", None
    elsewhere = places(result.model, result.network)
    for one in tried:
        if place := elsewhere.get(one):
            return [layer for layer in layers if layer.name in place.layers], place.reason, None
    whole = loadable_in_log(result, plain)
    inside = set(whole["layers"]) if whole else layers_in_log(result, plain)
    found = [layer for layer in layers if layer.name in inside]
    if not found:
        raise _unknown(result, name)
    return found, "", whole


def _unknown(result: CheckResult, name: str) -> UsageError:
    known = dict.fromkeys(
        [
            *(one for layer in result.network.whole.layers for one in (layer.name, *layer.origin)),
            *result.model.folded,
            *(one["name"] for one in result.document["memory"]),
        ]
    )
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    near = near or [one for one in known if name.lower() in one.lower()][:3]
    return UsageError(
        f"there is no layer or ONNX node called {name!r}",
        code="layer.unknown",
        where=result.document["model"],
        hint=f"did you mean {' or '.join(near)}?" if near else "--by-layer lists the layers",
    )


def _more(result: CheckResult, layer: Layer) -> dict[str, Any]:
    times = result.forecast.layer_us if result.forecast else {}
    return {
        "op": layer.op,
        "precision": _precision(result, layer),
        "inputs": [_tensor(result, name) for name in layer.inputs],
        "outputs": [_tensor(result, name) for name in layer.outputs],
        "params": {key: _plain(value) for key, value in layer.params.items()},
        "weights": list(layer.weights),
        "predicted_us": None if layer.opaque else times.get(layer.name),
        "loadable": _loadable(result, layer),
        "cbuf": _cbuf(result, layer),
        "sparsity": _sparsity(result, layer),
    }


def _precision(result: CheckResult, layer: Layer) -> str:
    return result.judgement.precision_of(layer.name)


def _tensor(result: CheckResult, name: str) -> dict[str, Any]:
    tensor = result.network.whole.tensors[name]
    return {"name": name, "shape": list(tensor.shape), "dtype": tensor.dtype}


def _plain(value: Any) -> Any:
    """Returns a parameter as JSON can hold it: "inf", "-inf" and "nan" are texts there."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _loadable(result: CheckResult, layer: Layer) -> dict[str, Any] | None:
    entries: list[dict[str, Any]] = result.document["memory"]
    for number, entry in enumerate(entries):
        if layer.name in entry["layers"]:
            return {"number": number, **entry}
    return None


def _sparsity(result: CheckResult, layer: Layer) -> dict[str, Any] | None:
    every = result.document["sparsity"]["convolutions"]
    return next((one for one in every if one["layer"] == layer.name), None)


def _cbuf(result: CheckResult, layer: Layer) -> dict[str, Any] | None:
    from edgekit.dla import cbuf_use

    precision = _precision(result, layer)
    if precision == "fp32":
        return None
    alone = replace(result.network, layers=(layer,))
    return next((use.to_json() for use in cbuf_use(alone, precision)), None)


def sparsity_document(result: CheckResult) -> dict[str, Any]:
    """Returns an ``edgekit.sparsity/1`` document; reads the weights of the convolutions."""
    from edgekit.dla import sparsity

    report = sparsity(result.network, result.judgement, result.target, result.model)
    keys = ("model", "target", "precision", "tensorrt")
    told = {key: result.document[key] for key in keys}
    told["pays"] = result.document["sparsity"]["pays"]
    return {"schema": "edgekit.sparsity/1", **told, **report.to_json()}
