"""The ``edgekit.check/1`` document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgekit.targets.releases import release_sources, unstated_dla

if TYPE_CHECKING:
    from edgekit.dla.verdicts import Judgement
    from edgekit.network.model import Layer, Network, Tensor
    from edgekit.targets.board import Target


SCHEMA = "edgekit.check/1"
_ELEMENT = {"fp32": 4, "fp16": 2, "int8": 1}
_OTHER = {"int64": 8, "float64": 8, "int32": 4, "bool": 1, "uint8": 1, "int8": 1}


def check_document(
    model_name: str, network: Network, judgement: Judgement, target: Target
) -> dict[str, Any]:
    """Returns a judgement as the contract's JSON object.

    Bytes are those of the precision that a layer was judged in (4 for fp32, 2 for fp16, 1 for
    int8), except for index and truth-value tensors, which keep their type. Besides the contract's
    keys there are, where they hold, ``tensorrt_sources`` (which releases the sources name for the
    JetPack) and ``dla_unstated`` (why no source states whether the release supports the DLA); and
    a layer has ``loadable``, the number of the loadable that it is in, and ``dropped``, the
    rule that keeps its candidate on the GPU; None if there is none. Without a placement ``placed``
    is None and the summary counts nothing as placed.
    """
    outputs = set(network.outputs)
    whole = network.whole
    groups = [group for group in judgement.candidates if group.retained]
    number = {name: index for index, group in enumerate(groups) for name in group.layers}
    dropped = {name: g.dropped for g in judgement.candidates if g.dropped for name in g.layers}
    layers = [
        {
            **_layer(layer, whole, judgement, outputs),
            "loadable": number.get(layer.name),
            "dropped": dropped.get(layer.name),
        }
        for layer in whole.layers
    ]
    on_dla = [la for la in network.layers if judgement.placed.get(la.name) == "DLA"]
    return {
        "schema": SCHEMA,
        "model": model_name,
        "target": target.name,
        "precision": judgement.precision,
        "tensorrt": judgement.tensorrt,
        **_release_words(target, judgement.tensorrt),
        "layers": layers,
        "candidates": len(judgement.candidates),
        "loadables": len(groups),
        "summary": {
            "layers": len(layers),
            "dla_layers": len(on_dla),
            "gpu_layers": len(layers) - len(on_dla) if judgement.placed else 0,
            "dla_macs_fraction": macs_fraction(network, on_dla),
        },
        # what they cost, and their multiply-accumulates, are in no figure
        "unknown_cost": [
            {
                "layer": layer.name,
                "operator": layer.op,
                "why": layer.opaque or "formula",
                "plugin": dict(layer.params) if layer.opaque == "plugin" else None,
            }
            for layer in network.layers
            if not layer.formula
        ],
    }


def _release_words(target: Target, release: str) -> dict[str, str]:
    words = {
        "tensorrt_sources": release_sources(target, release),
        "dla_unstated": unstated_dla(target, release),
    }
    return {key: text for key, text in words.items() if text}


def macs_fraction(network: Network, on_dla: Sequence[Layer]) -> float:
    """Returns the share of a network's multiply-accumulates in some of its layers, 0 to 1.

    A network without any has all of its share there as soon as one layer is.
    """
    macs = sum(layer.macs for layer in network.layers)
    return sum(layer.macs for layer in on_dla) / macs if macs else float(bool(on_dla))


def _layer(
    layer: Layer, network: Network, judgement: Judgement, outputs: set[str]
) -> dict[str, Any]:
    element = _ELEMENT[judgement.precision_of(layer.name)]
    return {
        "name": layer.name,
        "kind": layer.kind,
        "nodes": list(layer.nodes),
        "from": list(layer.origin),
        "dla": judgement.verdicts[layer.name].to_json(),
        "placed": judgement.placed.get(layer.name),
        "graph_output": any(name in outputs for name in layer.outputs),
        "macs": layer.macs,
        # a recurrence's, which wait for one another
        **({"steps": layer.params["steps"]} if "steps" in layer.params else {}),
        # why its cost is unknown: "plugin", "imported" or "shapes"
        **({"opaque": layer.opaque} if layer.opaque else {}),
        "weight_bytes": layer.weight_elements * element,
        "output_bytes": sum(_bytes(network.tensors[n], element) for n in layer.outputs),
    }


def _bytes(tensor: Tensor, element: int) -> int:
    return tensor.elements * _OTHER.get(tensor.dtype, element)
