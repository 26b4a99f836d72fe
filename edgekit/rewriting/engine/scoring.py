"""Scores steps: the DLA rules' verdicts on the old and the new nodes, each judged as a small
network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from edgekit.dla.judge import judge
from edgekit.dla.verdicts import Judgement, LayerVerdict
from edgekit.network.graph import Node, OnnxGraph, form
from edgekit.network.lowering.layers import lower_graph
from edgekit.network.model import Layer, Network
from edgekit.rewriting.graph import RewriteGraph, RewriteStep, in_order

if TYPE_CHECKING:
    from edgekit.network.plugins import Plugin
    from edgekit.targets.board import Target


#: The writers of a step's inputs and the readers of its outputs.
Around: TypeAlias = "tuple[list[Node], list[Node]]"

# neighbours with any number of tensors: above _MANY, only a few are read
_WIDE = frozenset({"Concat", "Max", "Mean", "Min", "Split", "Sum"})
_MANY = 8
_FEW = 3

# constants of up to this many elements are parameters of an operator; larger constants are weights
_SMALL = 64
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# operators whose layers depend on floating-point constants; those of other operators are weights
# (the last operators depend on their elements being equal)
_READS_FLOATS = frozenset(
    {"Clip", "Pad", "Resize", "Upsample", "Div", "Equal", "Greater", "Less", "Pow"}
)
# smallest relative difference of predicted times; smaller differences are rounding
_NOTICED = 1e-3
_FOUR = (4, 4)


class PartialNetwork:
    """Some nodes of a graph with their tensors; a ``LayerSource``.

    Attributes:
        chosen: The nodes in topological order, without recipes.
        returned: Tensors that are read outside or returned.
    """

    def __init__(
        self,
        graph: RewriteGraph,
        nodes: Sequence[Node],
        returned: Collection[str],
        step: RewriteStep | None,
    ) -> None:
        self.chosen = nodes
        self.returned = returned
        self._graph = graph
        self._step = step
        self._deciding = {n for node in nodes if node.op in _READS_FLOATS for n in node.inputs}
        self._brought = {item.name: item for item in step.fixed} if step else {}
        self._derived = (
            {n for node in step.new if node.name in step.recipes for n in node.outputs}
            if step
            else set()
        )

    def key(self) -> Hashable:
        """Returns the data that verdicts depend on: structure, attributes, shapes, constants."""
        number = {"": -1}
        # flat list: each form is followed by the node's tensors (a number, or facts at the first
        # use), and by the numbers of inputs and outputs
        rows: list[Hashable] = []
        returned = self.returned
        for node in self.chosen:
            rows.append(form(node))
            for name in node.tensors():
                known = number.get(name)
                if known is None:
                    number[name] = len(number)
                    rows += (self.facts(name), name in returned)
                else:
                    rows.append(known)
            rows.append((len(node.inputs), len(node.outputs)))
        return tuple(rows)

    def facts(self, tensor: str) -> tuple[Hashable, ...]:
        """Returns a tensor's shape, type, and its value if small."""
        # no step writes or reads a tensor of unknown shape, only a neighbour does
        if not self._graph.known(tensor):
            return ()
        step = self._step
        # not cached: the step may not be applied, and other parts may not need the value
        own = tensor in self._brought or (step is not None and tensor in step.shapes)
        if own or tensor in self._deciding:
            return self.shape(tensor), self.dtype(tensor), self._small(tensor)
        # facts of the graph's tensors are cached
        known = self._graph.facts.get(tensor)
        if known is None:
            known = self.shape(tensor), self.dtype(tensor), self._small(tensor)
            self._graph.facts[tensor] = known
        return known

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Returns a tensor's shape."""
        if self._step is not None and tensor in self._step.shapes:
            return self._step.shapes[tensor]
        if tensor in self._brought:
            return tuple(self._brought[tensor].value.shape)
        return self._owner(tensor).shape(tensor)

    def dtype(self, tensor: str) -> str:
        """Returns a tensor's NumPy type name."""
        if self._step is not None and tensor in self._step.dtypes:
            return self._step.dtypes[tensor]
        if tensor in self._brought:
            return self._brought[tensor].dtype
        return self._owner(tensor).dtype(tensor)

    def _owner(self, tensor: str) -> RewriteGraph | OnnxGraph:
        # the rewritten graph has no tensors of unknown shape
        return self._graph if self._graph.known(tensor) else self._graph.model.graph

    def constant(self, tensor: str) -> bool:
        """Returns True if a tensor is a constant."""
        return tensor in self._brought or tensor in self._derived or self._graph.constant(tensor)

    def network(self, release: str) -> Network:
        """Returns the layers of the part, by a TensorRT release."""
        return lower_graph(self, release)

    @property
    def name(self) -> str:
        """A name for the partial network."""
        return "part"

    @property
    def opset(self) -> int:
        """Version of ai.onnx."""
        return self._graph.opset

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The activations that the nodes read from outside."""
        read = dict.fromkeys(n for node in self.chosen for n in node.reads())
        return tuple(n for n in read if n not in self._written and not self.constant(n))

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """The tensors that are read outside or returned."""
        return tuple(name for name in self._written if name in self.returned)

    @cached_property
    def _written(self) -> dict[str, None]:
        return dict.fromkeys(n for node in self.chosen for n in node.outputs if n)

    @property
    def opaque(self) -> Mapping[str, str]:
        """Reasons of opaque nodes, by node name."""
        return self._graph.model.graph.opaque

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The user's plugins."""
        return self._graph.model.graph.plugins

    def plugin(self, node: Node) -> Plugin | None:
        """Returns the user's plugin of a node; None for any other node."""
        return self._graph.model.graph.plugin(node)

    def nodes(self) -> Iterator[Node]:
        """Yields the nodes; opaque nodes with the model's operator."""
        for node in self.chosen:
            yield self._graph.model.graph.node(node.name) if node.name in self.opaque else node

    def activations(self) -> Iterable[str]:
        """Returns the inputs and every tensor that a node writes."""
        return (*self.inputs, *self._written)

    def weight(self, tensor: str) -> bool:
        """Returns True if a tensor is a constant that is not small."""
        return self.constant(tensor) and not self._inline(tensor)

    def value(self, tensor: str) -> np.ndarray | None:
        """Returns the value of an operator's parameter; zeros for weights, None if computed."""
        if not self.constant(tensor):
            return None
        if not self._inline(tensor) or not self._decides(tensor):
            # verdicts depend on a weight's shape only; a broadcast zero needs no memory and no read
            # of a file
            return np.broadcast_to(np.zeros((), self.dtype(tensor)), self.shape(tensor))
        item = self._brought.get(tensor) or self._graph.added_constant(tensor)
        return item.stored() if item else self._graph.value(tensor)

    def _inline(self, name: str) -> bool:
        if name in self._derived or self._graph.recipe(name) is not None:
            return False
        return math.prod(self.shape(name)) <= _SMALL

    def _decides(self, name: str) -> bool:
        return name in self._deciding or self.dtype(name) not in _FLOATS

    def _small(self, name: str) -> Hashable:
        if not self.constant(name):
            return None
        if not self._inline(name):
            return "weight"
        value = self.value(name) if self._decides(name) else None
        return "number" if value is None else value.tobytes()


def parts(
    graph: RewriteGraph, step: RewriteStep, neighbours: Around
) -> tuple[PartialNetwork, PartialNetwork]:
    """Returns the removed and the added nodes of a step, each with the neighbouring nodes."""
    made = [node for node in step.new if node.name not in step.recipes]
    return _part(graph, neighbours, step.old, None), _part(graph, neighbours, made, step)


def _part(
    graph: RewriteGraph, neighbours: Around, nodes: Iterable[Node], step: RewriteStep | None
) -> PartialNetwork:
    # a neighbour may read another neighbour's result directly
    chosen = in_order([*neighbours[0], *nodes, *neighbours[1]])
    own = {node.name for node in nodes} | {node.name for side in neighbours for node in side}
    inside = {name for node in chosen for name in node.reads()}
    written = frozenset(step.outputs if step else ())
    returned = set()
    for node in chosen:
        for name in node.outputs:
            if name and (
                graph.returned(name)
                or name not in inside
                or (name not in written and not graph.read_within(name, own))
            ):
                returned.add(name)
    return PartialNetwork(graph, chosen, returned, step)


def find_neighbours(graph: RewriteGraph, step: RewriteStep) -> Around:
    """Returns the writers of the step's inputs and the readers of its outputs."""
    gone = {node.name for node in step.old}
    before: dict[str, Node] = {}
    for name in step.inputs:
        producer = graph.producer(name)
        if producer is not None and producer.name not in gone:
            before[producer.name] = producer
    after: dict[str, Node] = {}
    for name in step.outputs:
        for reader in graph.readers(name):
            # a node on both sides of the step (a skip connection) counts once
            if reader.name not in gone and reader.name not in before:
                after[reader.name] = reader
    touched = {*step.inputs, *step.outputs}
    before_, after_ = (
        [_narrow(node, touched) for node in side.values()] for side in (before, after)
    )
    return before_, after_


def _narrow(node: Node, touched: Collection[str]) -> Node:
    """Returns a neighbour of many tensors, reduced to the step's tensors and a few more.

    The verdict is the same as for all tensors; reading all of a neighbour's tensors for each step
    would be quadratic.
    """
    if node.op not in _WIDE or max(len(node.inputs), len(node.outputs)) <= _MANY:
        return node
    return replace(
        node,
        inputs=_some(node.inputs, touched),
        outputs=_some(node.outputs, touched),
        # the proto has all tensors and would be preferred to the shorter lists
        proto=None,
    )


def _some(tensors: Sequence[str], touched: Collection[str]) -> tuple[str, ...]:
    others = [name for name in tensors if name not in touched][:_FEW]
    return tuple(name for name in tensors if name in touched or name in others)


def both_key(graph: RewriteGraph, step: RewriteStep, neighbours: Around) -> Hashable:
    """Returns a key that is equal for steps with equal keys of their old and new parts.

    It covers the nodes of both sides and their neighbours, their connections, the data that their
    verdicts depend on, and the tensors needed elsewhere.
    """
    before, after = neighbours
    made = [node for node in step.new if node.name not in step.recipes]
    shared = (*before, *after)
    names = {node.name for node in shared}
    # decides which tensors each part returns (see ``_part``)
    own_old = names.union(node.name for node in step.old)
    own_new = names.union(node.name for node in made)
    number = {"": -1}
    rows: list[Hashable] = [len(before), len(after), len(step.old)]
    sides = (
        (PartialNetwork(graph, (*shared, *step.old), (), None), (*shared, *step.old)),
        (PartialNetwork(graph, (*shared, *made), (), step), made),
    )
    for part, nodes in sides:
        # the name of an old tensor may be used for another tensor
        again = step.shapes.keys() & number.keys() if nodes is made else ()
        for node in nodes:
            rows += (form(node), len(node.inputs), len(node.outputs))
            for name in node.tensors():
                known = number.get(name)
                if known is None:
                    known = number[name] = len(number)
                    rows.append(part.facts(name))
                elif name in again:
                    rows.append(part.facts(name))
                rows.append(known)
            for name in node.outputs:
                rows += (
                    graph.returned(name),
                    graph.read_within(name, own_old),
                    graph.read_within(name, own_new),
                )
    # a computed tensor may become a constant
    rows += (part.facts(name) for name in step.outputs)
    rows += (number.get(name) for name in step.outputs)
    return tuple(rows)


class PredictedTimes(Protocol):
    """Predicted times of one inference in microseconds, as ``edgekit.placement.forecast.Forecast``.

    Attributes:
        auto_us: Latency with TensorRT's automatic DLA placement.
        gpu_only_us: Latency on the GPU alone.
        layer_us: Time by layer, None if unknown.
    """

    @property
    def auto_us(self) -> float:
        """Latency with automatic placement, in microseconds."""

    @property
    def gpu_only_us(self) -> float:
        """Latency on the GPU only, in microseconds."""

    @property
    def layer_us(self) -> Mapping[str, float | None]:
        """Time by layer, in microseconds; None if unknown."""


#: Predicts a judged network's times; None if the board's costs are unknown.
Cost: TypeAlias = Callable[["Network", "Judgement"], PredictedTimes | None]


class Score(NamedTuple):
    """Score of nodes for the DLA; lower is better, compared number by number.

    Attributes:
        off: Number of layers off the DLA, and of kept constants that layers on the DLA wait for.
        disputed: Number of layers that run on the DLA by the rules, with evidence against it.
        us: Predicted time, in microseconds; 0 without a prediction.
    """

    off: int
    disputed: int
    us: float

    def better(self, other: Score) -> bool:
        """Returns True if this is an improvement on ``other``."""
        mine, theirs = (self.off, self.disputed), (other.off, other.disputed)
        return mine < theirs or (mine == theirs and self.us < other.us * (1 - _NOTICED))

    def worse(self, other: Score) -> bool:
        """Returns True if this runs less on the DLA than ``other``."""
        return (self.off, self.disputed) > (other.off, other.disputed)


class Judge:
    """Scores networks and parts for a board, precision and release; caches parts' scores."""

    def __init__(
        self,
        target: Target,
        precision: str,
        tensorrt: str | None,
        cost: Cost | None,
        *,
        lowers: bool = False,
    ) -> None:
        self.target = target
        self.precision = precision
        self.tensorrt = tensorrt or target.tensorrt
        self.cost = cost
        self.lowers = lowers
        self._known: dict[Hashable, Score] = {}
        self._both: dict[Hashable, tuple[Score, Score]] = {}

    def judge(self, network: Network) -> Judgement:
        """Returns the verdicts on a network."""
        return judge(
            network,
            self.target,
            precision=self.precision,
            tensorrt=self.tensorrt,
            lowers=self.lowers,
        )

    def both(self, graph: RewriteGraph, step: RewriteStep) -> tuple[Score, Score]:
        """Scores the nodes that a step would remove and add, among its neighbours."""
        neighbours = find_neighbours(graph, step)
        key = both_key(graph, step, neighbours)
        found = self._both.get(key)
        if found is None:
            old, new = parts(graph, step, neighbours)
            found = self._both[key] = self._part(old), self._part(new)
        return found

    def _part(self, part: PartialNetwork) -> Score:
        key = part.key()
        found = self._known.get(key)
        if found is None:
            network = part.network(self.tensorrt)
            found = self._known[key] = score(network, self.judge(network), self.cost)
        return found


def score(network: Network, judgement: Judgement, cost: Cost | None = None) -> Score:
    """Scores a network."""
    rows = [
        layer_counts(network, layer, judgement.verdicts[layer.name]) for layer in network.layers
    ]
    off = sum(row[0] for row in rows) + len(gpu_constants(network, judgement))
    disputed = sum(row[1] for row in rows)
    predicted = cost(network, judgement) if cost is not None else None
    return Score(off, disputed, predicted.auto_us if predicted else 0.0)


def layer_counts(network: Network, layer: Layer, verdict: LayerVerdict) -> tuple[int, int]:
    """Returns a layer's counts for ``off`` and for ``disputed``.

    In a fused shuffle off the DLA, each transposition counts, and the reshapes count once, unless
    they have four dimensions, so that removing one is an improvement. With four dimensions they
    could run alone, and are disputed.
    """
    # a kept constant runs on the GPU, whatever its verdict
    if verdict.placeable and layer.kind != "CONSTANT":
        return 0, int(bool(verdict.reasons))
    found: list[str] = []
    four_dimensional = 0
    rank = len(network.tensors[layer.inputs[0]].shape) if layer.inputs else 0
    for part in layer.params.get("parts", ()):
        before, rank = rank, len(part["shape"])
        if (before, rank) == _FOUR:
            four_dimensional += 1
        else:
            found.append(part["mode"])
    return max(1, found.count("TRANSPOSE") + ("RESHAPE" in found)), four_dimensional


def gpu_constants(network: Network, judgement: Judgement) -> tuple[Layer, ...]:
    """Returns the kept constants that a layer on the DLA waits for: they run on the GPU.

    A constant that a layer on the GPU reads has no cost.
    """
    if not network.constants:
        return ()
    able = {
        name
        for layer in network.layers
        if judgement.verdicts[layer.name].placeable
        for name in layer.origin
    }
    return tuple(layer for layer in network.constants if not able.isdisjoint(layer.origin))
