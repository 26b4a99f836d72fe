"""What each engine of a build is: its part of the model, devices, formats and types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import BuildError
from edgekit.trt._border import borders_of, entry

if TYPE_CHECKING:
    from edgekit.build import Cut, Graph
    from edgekit.network import Layer, Model, Network
    from edgekit.placement import PlacedLayer, Plan

__all__ = ["Engine", "Lane", "lanes_of"]


@dataclass(frozen=True, eq=False)
class Engine:
    """One engine to build.

    Attributes:
        key: Its name in the request.
        kind: "plan" (an engine of TensorRT) or "loadable" (for cuDLA).
        device: "GPU", or the DLA core that it drives.
        model: The ONNX model that it is built from.
        layers: Its layers in graph order, with where and in what they run.
        inputs: Inputs as a request has them.
        outputs: Outputs likewise.
    """

    key: str
    kind: str
    device: str
    model: Model
    layers: tuple[dict[str, Any], ...]
    inputs: tuple[dict[str, Any], ...]
    outputs: tuple[dict[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Lane:
    """The engines of a plan variant in running order, and the share of frames that it takes."""

    share: float
    engines: tuple[Engine, ...]


def lanes_of(
    model: Model, network: Network, plan: Plan, mode: str, scales: Mapping[str, float] | None
) -> tuple[Lane, ...]:
    """Returns the engines of a plan.

    A hybrid engine is the whole network, and TensorRT cuts it by device types; standalone and
    split builds have an engine for each segment of the plan.

    Args:
        model: The model that the board builds from: plain, or with Q/DQ nodes for a strongly typed
            release. Its node names are those of the network.
        network: The layer graph of the plan.
        plan: Where everything runs.
        mode: "hybrid", "standalone" or "split".
        scales: INT8 scale by tensor, empty without INT8; None where types stand in the model.

    Raises:
        BuildError: "build.cores" (a hybrid plan on two cores), "build.border", or what ``cut``
            raises.
    """
    make = _whole if mode == "hybrid" else _segments
    return tuple(
        Lane(share.share, make(number, model, network, plan, share.layers, scales))
        for number, share in enumerate(plan.plans)
    )


def _whole(
    number: int,
    model: Model,
    network: Network,
    plan: Plan,
    placed: Sequence[PlacedLayer],
    scales: Mapping[str, float] | None,
) -> tuple[Engine, ...]:
    cores = sorted({layer.device for layer in placed} - {"GPU"})
    if len(cores) > 1:
        raise BuildError(
            f"a hybrid engine drives one DLA core, and a frame of the plan runs on {len(cores)}",
            code="build.cores",
            where=f"plan {number}",
            hint="build.mode: split has engines for both, or give placement.dla_cores one core",
        )

    def tensors(names: Sequence[str]) -> tuple[dict[str, Any], ...]:
        # TensorRT takes and gives what the model says, in its own linear format
        facts = (network.tensors[name] for name in names)
        return tuple(
            {"name": t.name, "dtype": t.dtype, "shape": list(t.shape), "formats": [], "scale": None}
            for t in facts
        )

    of = {layer.name: layer for layer in placed}
    layers = tuple(_layer(layer, of[layer.name]) for layer in network.layers)
    engine = Engine(
        f"lane{number}", "plan", cores[0] if cores else "GPU", model, layers,
        tensors(network.inputs), tensors(network.outputs),
    )  # fmt: skip
    return (engine,)


def _layer(layer: Layer, placed: PlacedLayer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "builder_name": layer.builder_name,
        "nodes": list(layer.nodes),
        "kind": layer.kind,
        "device": "GPU" if placed.device == "GPU" else "DLA",
        "precision": placed.precision,
    }


def _segments(
    number: int,
    model: Model,
    network: Network,
    plan: Plan,
    placed: Sequence[PlacedLayer],
    scales: Mapping[str, float] | None,
) -> tuple[Engine, ...]:
    from edgekit.build import Graph, cut

    graph = Graph.of(model)
    cuts = cut(graph, network, placed)
    borders = borders_of(
        network,
        cuts,
        [loadable for loadable in plan.loadables if loadable.plan == number],
        {layer.name: layer.precision for layer in placed},
        scales,
        _types(graph),
    )
    of = {layer.name: layer for layer in placed}
    engines = []
    for index, part in enumerate(cuts):
        own = set(part.layers)
        shapes = _shapes(graph, (*part.inputs, *part.outputs))

        def tensors(
            names: Sequence[str], device: str = part.device, shapes: Any = shapes
        ) -> tuple[dict[str, Any], ...]:
            return tuple(entry(name, borders[name], device, shapes[name]) for name in names)

        engines.append(
            Engine(
                f"lane{number}.segment{index}",
                "plan" if part.device == "GPU" else "loadable",
                part.device,
                _part(model, graph, part),
                tuple(_layer(x, of[x.name]) for x in network.layers if x.name in own),
                tensors(part.inputs),
                tensors(part.outputs),
            )
        )
    return tuple(engines)


def _part(model: Model, graph: Graph, part: Cut) -> Model:
    """Returns a segment as a model of its own, with the nodes that compute its constants."""
    from edgekit.build import node_reads
    from edgekit.network import Model, extract

    names = {node.name for node in part.nodes}
    waiting = [*part.nodes]
    while waiting:
        for read in node_reads(waiting.pop()):
            constant = graph.constants.get(read)
            if constant is not None and constant.name not in names:
                names.add(constant.name)
                waiting.append(constant)
    proto = extract(model, names, part.inputs, part.outputs)
    held = {tensor.name for tensor in proto.graph.initializer}
    weights = {name: model.weights[name] for name in model.weights if name in held}
    return Model(proto, weights, None, model.source)


def _types(graph: Graph) -> dict[str, str]:
    from onnx import helper

    return {
        name: str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        for name, value in graph.values.items()
        if value.type.tensor_type.elem_type
    }


def _shapes(graph: Graph, names: Sequence[str]) -> dict[str, list[int]]:
    return {
        name: [int(dim.dim_value) for dim in graph.values[name].type.tensor_type.shape.dim]
        for name in names
    }
