"""Whether a step helps: what the DLA says of the old nodes and of the new ones, each judged as
a small network of its own.
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
from edgekit.network.lowering.layers import lowered
from edgekit.network.model import Layer, Network
from edgekit.rewriting.graph import RewriteGraph, RewriteStep, in_order

if TYPE_CHECKING:
    from edgekit.network.plugins import Plugin
    from edgekit.targets.board import Target


#: The writers of what a step reads and the readers of what it writes.
Around: TypeAlias = "tuple[list[Node], list[Node]]"

# neighbours that may have any number of tensors, of which so many are looked at
_WIDE = frozenset({"Concat", "Max", "Mean", "Min", "Split", "Sum"})
_MANY = 8
_FEW = 3

# constants of up to this many elements say how an operator works; larger ones are weights
_SMALL = 64
_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
# whose floating-point constants the layers depend on; all others' are weights, of any size
# (of the last ones, whether all elements are the same)
_READS_FLOATS = frozenset(
    {"Clip", "Pad", "Resize", "Upsample", "Div", "Equal", "Greater", "Less", "Pow"}
)
# of predicted times: smaller differences are noise of rounding
_NOTICED = 1e-3
_FOUR = (4, 4)


class PartialNetwork:
    """Nodes with what they read and write; a ``LayerSource``.

    Attributes:
        chosen: The nodes in topological order, recipes left out.
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
        """Returns what a verdict depends on: structure, attributes, shapes, small constants."""
        number = {"": -1}
        # flat: in these, a form is followed by the node's tensors, which are numbers, or facts
        # where they are met first, and by how many of them are read
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
        """Returns a tensor's shape, type, and what is seen of its value."""
        if not self._graph.known(tensor):
            return ()
        step = self._step
        own = tensor in self._brought or (step is not None and tensor in step.shapes)
        if own or tensor in self._deciding:
            return self.shape(tensor), self.dtype(tensor), self._small(tensor)
        # those of the graph's tensors are kept
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
        # the graph that is rewritten has no tensors of unknown shape
        return self._graph if self._graph.known(tensor) else self._graph.model.graph

    def constant(self, tensor: str) -> bool:
        """Whether a tensor is known before running."""
        return tensor in self._brought or tensor in self._derived or self._graph.constant(tensor)

    def network(self, release: str) -> Network:
        """Returns the layers of the part, by a TensorRT release."""
        return lowered(self, release)

    @property
    def name(self) -> str:
        """A name for the part."""
        return "part"

    @property
    def opset(self) -> int:
        """Version of ai.onnx."""
        return self._graph.opset

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The activations that come from outside."""
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
        """Why a node is opaque, by node name."""
        return self._graph.model.graph.opaque

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The user's own plugins."""
        return self._graph.model.graph.plugins

    def plugin(self, node: Node) -> Plugin | None:
        """Returns the user's own plugin of a node; None for any other node."""
        return self._graph.model.graph.plugin(node)

    def nodes(self) -> Iterator[Node]:
        """Yields the nodes; an opaque one with the model's operator."""
        for node in self.chosen:
            yield self._graph.model.graph.node(node.name) if node.name in self.opaque else node

    def activations(self) -> Iterable[str]:
        """Returns the inputs and every tensor that a node writes."""
        return (*self.inputs, *self._written)

    def weight(self, tensor: str) -> bool:
        """Whether it is a constant that is not small."""
        return self.constant(tensor) and not self._inline(tensor)

    def value(self, tensor: str) -> np.ndarray | None:
        """Returns the value of a constant that says how an operator works; zeros for weights."""
        if not self.constant(tensor):
            return None
        if not self._inline(tensor) or not self._decides(tensor):
            return np.broadcast_to(np.zeros((), self.dtype(tensor)), self.shape(tensor))
        item = self._brought.get(tensor) or self._graph.fixed(tensor)
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
    """Returns what a step takes away and what it brings, each with its neighbouring nodes."""
    made = [node for node in step.new if node.name not in step.recipes]
    return _part(graph, neighbours, step.old, None), _part(graph, neighbours, made, step)


def _part(
    graph: RewriteGraph, neighbours: Around, nodes: Iterable[Node], step: RewriteStep | None
) -> PartialNetwork:
    # one neighbour may read another's result without the step between them
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


def around(graph: RewriteGraph, step: RewriteStep) -> Around:
    """Returns the writers of what the step reads and the readers of what it writes."""
    gone = {node.name for node in step.old}
    before: dict[str, Node] = {}
    for name in step.inputs:
        producer = graph.producer(name)
        if producer is not None and producer.name not in gone:
            before[producer.name] = producer
    after: dict[str, Node] = {}
    for name in step.outputs:
        for reader in graph.readers(name):
            if reader.name not in gone and reader.name not in before:
                after[reader.name] = reader
    touched = {*step.inputs, *step.outputs}
    before_, after_ = (
        [_narrow(node, touched) for node in side.values()] for side in (before, after)
    )
    return before_, after_


def _narrow(node: Node, touched: Collection[str]) -> Node:
    """A neighbour of many tensors with those that the step touches and a few more.

    Its verdict is that of the whole one; looking at all of them for each would be quadratic.
    """
    if node.op not in _WIDE or max(len(node.inputs), len(node.outputs)) <= _MANY:
        return node
    return replace(
        node,
        inputs=_some(node.inputs, touched),
        outputs=_some(node.outputs, touched),
        proto=None,
    )


def _some(tensors: Sequence[str], touched: Collection[str]) -> tuple[str, ...]:
    others = [name for name in tensors if name not in touched][:_FEW]
    return tuple(name for name in tensors if name in touched or name in others)


def both_key(graph: RewriteGraph, step: RewriteStep, neighbours: Around) -> Hashable:
    """Returns what steps have in common whose parts, old and new, have equal keys.

    It stands for the nodes of both sides and their neighbours, how they are connected, what
    their verdicts depend on, and which tensors are needed elsewhere.
    """
    before, after = neighbours
    made = [node for node in step.new if node.name not in step.recipes]
    shared = (*before, *after)
    names = {node.name for node in shared}
    own_old = names.union(node.name for node in step.old)
    own_new = names.union(node.name for node in made)
    number = {"": -1}
    rows: list[Hashable] = [len(before), len(after), len(step.old)]
    sides = (
        (PartialNetwork(graph, (*shared, *step.old), (), None), (*shared, *step.old)),
        (PartialNetwork(graph, (*shared, *made), (), step), made),
    )
    for part, nodes in sides:
        # a name of an old tensor may come again for another one
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
    # what was computed may be a constant from now on
    rows += (part.facts(name) for name in step.outputs)
    rows += (number.get(name) for name in step.outputs)
    return tuple(rows)


class PredictedTimes(Protocol):
    """Predicted times of one inference in microseconds, as ``edgekit.placement.forecast.Forecast``.

    Attributes:
        auto_us: Latency with TensorRT's automatic DLA placement.
        gpu_only_us: Latency on the GPU alone.
        layer_us: Time by layer, as far as it is known.
    """

    @property
    def auto_us(self) -> float:
        """Latency with automatic placement."""

    @property
    def gpu_only_us(self) -> float:
        """Latency on the GPU alone."""

    @property
    def layer_us(self) -> Mapping[str, float | None]:
        """Time by layer, as far as it is known."""


#: Predicts a judged network; None if nothing is known of the board's costs.
Cost: TypeAlias = Callable[["Network", "Judgement"], PredictedTimes | None]


class Score(NamedTuple):
    """How well nodes suit the DLA; fewer is better, the first number decides.

    Attributes:
        off: Layers that it does not run, and kept constants that those on it wait for.
        disputed: Layers that it runs by the rules, with some evidence against it.
        us: Predicted microseconds; 0 if nothing predicts.
    """

    off: int
    disputed: int
    us: float

    def better(self, other: Score) -> bool:
        """Whether this is an improvement on ``other``."""
        mine, theirs = (self.off, self.disputed), (other.off, other.disputed)
        return mine < theirs or (mine == theirs and self.us < other.us * (1 - _NOTICED))

    def worse(self, other: Score) -> bool:
        """Whether this runs less on the DLA than ``other``."""
        return (self.off, self.disputed) > (other.off, other.disputed)


class Judge:
    """Scores networks and parts for one board, precision and release; remembers parts."""

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
            network, self.target, precision=self.precision, tensorrt=self.tensorrt,
            lowers=self.lowers,
        )  # fmt: skip

    def both(self, graph: RewriteGraph, step: RewriteStep) -> tuple[Score, Score]:
        """Scores what a step would take away and what it would bring, among its neighbours."""
        neighbours = around(graph, step)
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
    rows = [pieces(network, layer, judgement.verdicts[layer.name]) for layer in network.layers]
    off = sum(row[0] for row in rows) + len(apart(network, judgement))
    disputed = sum(row[1] for row in rows)
    predicted = cost(network, judgement) if cost is not None else None
    return Score(off, disputed, predicted.auto_us if predicted else 0.0)


def pieces(network: Network, layer: Layer, verdict: LayerVerdict) -> tuple[int, int]:
    """Returns what a layer counts off the DLA and among the disputed ones.

    Of a fused shuffle that is off, the transpositions count and the reshapes once, where they are
    not of four dimensions, so that a step which takes one of them away is an improvement; of four
    dimensions they could run, were they alone, and are disputed.
    """
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


def apart(network: Network, judgement: Judgement) -> tuple[Layer, ...]:
    """Returns the kept constants that a layer on the DLA waits for: they run on the GPU.

    A constant that a layer on the GPU reads costs nothing.
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
