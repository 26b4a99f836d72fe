"""Definition of a rewrite, with its data types: the graph with static shapes, the writer of a
replacement, and a step; and the conversion of a rewritten graph to a model.

A node whose inputs are all constants is a recipe: it derives a weight from other weights.
"""

from __future__ import annotations

import math
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import onnx

from edgekit.network.graph import Attributes, Node, node_proto
from edgekit.network.loading.load import canonical
from edgekit.network.model import SAME_VALUES, Model, joined_weights
from edgekit.network.module_names import common_module, write_module_name
from edgekit.network.protos import WITH_BODIES, onnx_elem_type, reads
from edgekit.rewriting.errors import MalformedError, TooLargeError
from edgekit.rewriting.float64.evaluate import evaluate
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    fail,
    integer,
    long_text,
    mapping,
    member,
    nullable,
    number,
)

_OPAQUE = "opaque:"
#: Elements of the constants that a step may add to the network: 32 MiB in FP32. Reading a larger
#: constant takes a board longer than running the layers that it would replace.
LARGEST = 8 << 20
# nodes of one replacement: a bidirectional LSTM of 64 steps takes some 2,000
_MOST_NEW_NODES = 4096
#: Generator of a rewrite's function: it yields the nodes that it replaces, is sent the writer, and
#: writes the new nodes. It ends without a value if the rewrite does not apply.
Replacement: TypeAlias = "Generator[tuple[Node, ...], Writer, None]"
#: Operators that may derive weights: pure functions of their inputs, without bodies or randomness.
RECIPE_OPERATORS = frozenset({
    "Abs", "Add", "Cast", "Ceil", "Clip", "Concat", "Conv", "ConvTranspose", "Div", "Equal", "Erf",
    "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gemm", "Identity",
    "Log", "MatMul", "Max", "Min", "Mul", "Neg", "Not", "Pad", "Pow", "Reciprocal", "ReduceMax",
    "ReduceMean", "ReduceMin", "ReduceSum", "Reshape", "Resize", "Round", "ScatterElements",
    "ScatterND", "Sign", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile",
    "Transpose", "Unsqueeze", "Where",
})  # fmt: skip
_ERROR = nullable(number(0, 1e308))


@document(frozen=True, eq=False)
class NewConstant:
    """A constant that a rewrite adds.

    Floating-point values are kept in float64, so that a proof in float64 uses the exact number; the
    model stores them rounded once, to ``dtype``.
    """

    name: str
    value: np.ndarray
    dtype: str

    def stored(self) -> np.ndarray:
        """Returns the value as the model stores it."""
        return self.value.astype(self.dtype)


class RewriteGraph:
    """A model's graph while it is rewritten; every lookup takes constant time.

    An opaque node has an operator that no rewrite knows.

    Attributes:
        model: The model that the graph was made from.
        opset: Version of ai.onnx.
        inputs: Names of the input tensors.
        outputs: Names of the output tensors.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._source = source = model.graph
        self.opset, self.inputs, self.outputs = source.opset, source.inputs, source.outputs
        # asked for every tensor of every step: a tuple would be searched each time
        self._returned = frozenset(self.outputs)
        known = [n for n in (*source.activations(), *source.initializers) if self.known(n)]
        self._shapes = {name: source.shape(name) for name in known}
        self._dtypes = {name: source.dtype(name) for name in known}
        self._fixed: dict[str, NewConstant] = {}
        # recipes (constants from constants), by the tensors that they write
        self._recipes: dict[str, Node] = {}
        self._nodes: dict[str, Node] = {}
        self._producer: dict[str, Node] = {}
        self._readers: dict[str, dict[str, Node]] = {}
        # changed by steps, so it is a copy of the model's
        self._modules = dict(source.modules.nodes) if source.modules else {}
        # a node's position in the model; a new node has its anchor's position
        self._place: dict[str, int] = {}
        # tensors that the body of an If, Loop or Scan reads by name: no step sees those readers
        self._captured: set[str] = set()
        # tensors whose writers or readers were looked up since these sets were cleared
        self.queried_writers: set[str] = set()
        self.queried_readers: set[str] = set()
        # by tensor; ``PartialNetwork.facts`` fills it, and a step that writes a tensor drops its
        # entry
        self.facts: dict[str, tuple[Hashable, ...]] = {}
        for index, node in enumerate(source.nodes()):
            opaque = node.name in source.opaque
            # no rewrite and no table of operators has the prefixed name
            self._add(replace(node, op=f"{_OPAQUE}{node.op}") if opaque else node, index)

    def known(self, tensor: str) -> bool:
        """Returns True if a tensor's shape is static; true for all new tensors."""
        return tensor not in self._source.unknown

    def nodes(self) -> Iterator[Node]:
        """Yields the nodes, roughly in the model's order, without recipes."""
        return iter(sorted(self._nodes.values(), key=lambda node: self._place[node.name]))

    def has(self, name: str) -> bool:
        """Returns True if a node of this name exists."""
        return name in self._nodes

    def node(self, name: str) -> Node:
        """Returns a node by name; KeyError if it does not exist or was replaced."""
        return self._nodes[name]

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Returns the static shape of an activation or a constant; KeyError when unknown."""
        return self._shapes[tensor]

    def rank(self, tensor: str) -> int:
        """Returns the number of dimensions of a tensor."""
        return len(self._shapes[tensor])

    def dtype(self, tensor: str) -> str:
        """Returns the NumPy type name of a tensor ("float32", "int64", "bool")."""
        return self._dtypes[tensor]

    def floats(self, tensor: str) -> bool:
        """Returns True if a tensor holds floating-point numbers (of 16 or 32 bits)."""
        return self._dtypes.get(tensor) in {"float32", "float16"}

    def constant(self, tensor: str) -> bool:
        """Returns True if a tensor is a constant: stored, added by a rewrite or derived."""
        return self._source.constant(tensor) or tensor in self._fixed or tensor in self._recipes

    def value(self, tensor: str) -> np.ndarray | None:
        """Returns the value of a constant, None for an activation.

        Weights are memory maps: read large ones only if necessary.
        """
        # float64, not the stored type: see ``NewConstant``
        if tensor in self._fixed:
            return self._fixed[tensor].value
        recipe = self._recipes.get(tensor)
        if recipe is None:
            return self._source.value(tensor)
        feeds = {n: v for n in recipe.inputs if n and (v := self.value(n)) is not None}
        # on each call, not stored: derived weights would take the memory of the network's weights
        # again
        made = evaluate([recipe], feeds, self.opset)[tensor]
        # a view of a large weight stays a view
        return made.astype(self._dtypes[tensor], copy=False)

    def ints(self, tensor: str) -> list[int] | None:
        """Returns the integers of a constant, flat; None for an activation or ""."""
        value = self.value(tensor) if tensor else None
        return None if value is None else [int(item) for item in value.reshape(-1)]

    def scalar(self, tensor: str) -> float | None:
        """Returns a constant's only element; None for several elements or an activation."""
        value = self.value(tensor) if tensor else None
        return None if value is None or value.size != 1 else float(value.reshape(-1)[0])

    def producer(self, tensor: str) -> Node | None:
        """Returns the node that writes an activation; None for an input or a constant."""
        # the search tries a node again only if a step changed what was asked here
        self.queried_writers.add(tensor)
        return self._producer.get(tensor)

    def readers(self, tensor: str) -> tuple[Node, ...]:
        """Returns the nodes that read a tensor."""
        self.queried_readers.add(tensor)
        return tuple(self._readers.get(tensor, {}).values())

    def only_reader(self, tensor: str) -> Node | None:
        """Returns an activation's only reader; None if others need it or the graph returns it."""
        self.queried_readers.add(tensor)
        readers = self._readers.get(tensor, {})
        if len(readers) != 1 or tensor in self._returned or tensor in self._captured:
            return None
        return next(iter(readers.values()))

    def inner(self, tensor: str, nodes: Iterable[Node]) -> bool:
        """Returns True if only ``nodes`` read a tensor and the graph does not return it."""
        needed = tensor in self._returned or tensor in self._captured
        return not needed and self.read_within(tensor, {node.name for node in nodes})

    def read_within(self, tensor: str, names: Collection[str]) -> bool:
        """Returns True if all readers of a tensor are among the nodes called ``names``."""
        self.queried_readers.add(tensor)
        return all(name in names for name in self._readers.get(tensor, ()))

    def returned(self, tensor: str) -> bool:
        """Returns True if the graph returns a tensor."""
        return tensor in self._returned

    def has_tensor(self, tensor: str) -> bool:
        """Returns True if a tensor of this name exists."""
        return tensor in self._shapes or not self.known(tensor)

    def recipe(self, tensor: str) -> Node | None:
        """Returns the node that derives a constant from others; None for any other tensor."""
        return self._recipes.get(tensor)

    def added_constant(self, tensor: str) -> NewConstant | None:
        """Returns a constant that a rewrite added; None for any other tensor."""
        return self._fixed.get(tensor)

    def recipes(self) -> Mapping[str, Node]:
        """Recipes by the constants that they derive, in the order of their addition."""
        return self._recipes

    def added_constants(self) -> Mapping[str, NewConstant]:
        """The constants that rewrites added, by name."""
        return self._fixed

    def initializer(self, tensor: str) -> onnx.TensorProto | None:
        """Returns the model's initializer of a name."""
        return self._source.initializers.get(tensor)

    def apply(self, step: RewriteStep) -> None:
        """Replaces ``step.old`` by ``step.new``."""
        place = self._place[step.anchor]
        # before the old nodes go: it reads their entries
        modules = self._inherited(step) if self._modules else {}
        for node in step.old:
            self._remove(node)
        # a step may write an existing tensor by other nodes, even as a constant
        for name in step.shapes:
            self.facts.pop(name, None)
        self._shapes |= step.shapes
        self._dtypes |= step.dtypes
        for item in step.fixed:
            self._fixed[item.name] = item
            self._shapes[item.name], self._dtypes[item.name] = item.value.shape, item.dtype
        for node in step.new:
            self._add(node, place)
        self._modules |= modules

    def _inherited(self, step: RewriteStep) -> dict[str, str]:
        """Returns the modules of the new nodes: the innermost around the nodes that they replace.

        An operator that stays keeps its module. Reshapes do not count beside computing nodes: the
        reshape before a layer may be far outside of the layer's module.
        """
        old = [(node.op, self._modules[node.name]) for node in step.old]
        computing = [row for row in old if row[0] not in SAME_VALUES]
        every = [path for _, path in computing or old]
        return {
            node.name: common_module([path for op, path in computing if op == node.op] or every)
            for node in step.new
        }

    def name_module(self, proto: onnx.NodeProto) -> None:
        """Writes the PyTorch module of a node, or of the nodes that it replaced, if known."""
        names = self._source.modules
        if names is not None and proto.name in self._modules:
            write_module_name(proto, names, self._modules[proto.name])

    def _add(self, node: Node, place: int) -> None:
        read = [name for name in node.inputs if name]
        # only a step's nodes: loading left the model's own for a reason (``folding.foldable``)
        if node.proto is None and read and all(self.constant(name) for name in read):
            for name in node.outputs:
                self._recipes[name] = node
            return
        self._nodes[node.name] = node
        self._place[node.name] = place
        for name in node.outputs:
            if name:
                self._producer[name] = node
        if node.proto is not None and node.proto.op_type in WITH_BODIES:
            read = reads(node.proto)
            self._captured.update(set(read) - set(node.inputs))
        for name in read:
            self._readers.setdefault(name, {})[node.name] = node

    def _remove(self, node: Node) -> None:
        del self._nodes[node.name], self._place[node.name]
        for name in node.outputs:
            if self._producer.get(name) is node:
                del self._producer[name]
        for name in node.reads():
            self._readers.get(name, {}).pop(node.name, None)


class Writer:
    """Collects the nodes and constants of one replacement; names are made unique.

    A node whose inputs are all constants is a recipe: it derives a weight from others, is computed
    when the model is finished, and is kept in the model's metadata, so that a refit derives the
    weight again from other values. Write weights that come from the model's this way, from
    standard ONNX operators (Reshape, Transpose, Mul, Gather, Concat, Pad, ...), and give only
    numbers that do not depend on weights as ``constant``.

    Attributes:
        nodes: The nodes in the order of writing, which must be topological.
        recipes: Names of the nodes that are recipes.
        fixed: The constants.
    """

    def __init__(self, graph: RewriteGraph, replaced: Sequence[Node]) -> None:
        self._graph = graph
        self._anchor = replaced[0]
        self._writers = {t: node.name for node in replaced for t in node.outputs if t}
        self._free = {node.name for node in replaced}
        self._names: set[str] = set()
        self._tensors: set[str] = set()
        self._known: set[str] = set()
        self._counts: dict[tuple[str, bool], int] = {}
        self.nodes: list[Node] = []
        self.recipes: set[str] = set()
        self.fixed: list[NewConstant] = []

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        *,
        output: str = "",
        name: str = "",
        role: str = "",
        **attrs: Any,
    ) -> str:
        """Writes a node of one output and returns that output's name.

        Args:
            op: ONNX operator, in the form of ``graph.opset`` (13 or later).
            inputs: Tensors; "" for an omitted optional input.
            output: Tensor to write; a new tensor if empty.
            name: The node's name. If empty, the name of the replaced node that wrote ``output``,
                else a name from the anchor's name and ``role``.
            role: The node's purpose, in a word; the operator if empty.
            attrs: Attributes; None values are omitted.

        Raises:
            MalformedError: A recipe with an operator that records do not allow.
            TooLargeError: Too many nodes for one replacement.
        """
        return self.many(op, inputs, [output], name=name, role=role, **attrs)[0]

    def many(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        name: str = "",
        role: str = "",
        **attrs: Any,
    ) -> list[str]:
        """Writes a node of several outputs ("" for a new tensor) and returns their names."""
        if len(self.nodes) >= _MOST_NEW_NODES:
            raise TooLargeError(f"more than {_MOST_NEW_NODES} nodes")
        stem = role or op.lower()
        recipe = all(
            tensor in self._known or self._graph.constant(tensor) for tensor in inputs if tensor
        )
        base = next((t for t in inputs if t), "") if recipe else self._anchor.name
        written = [tensor or self._new_tensor(f"{base}:{stem}") for tensor in outputs]
        wanted = name or next((self._writers[t] for t in written if t in self._writers), "")
        node = Node(
            self._new_name(wanted or f"{base}:{stem}"),
            op,
            tuple(inputs),
            tuple(written),
            {key: value for key, value in attrs.items() if value is not None},
        )
        if recipe and any(inputs):
            # refused now: an error while writing the record would lose the whole result
            make_recipe(node)
            self.recipes.add(node.name)
        self.nodes.append(node)
        if recipe:
            self._known.update(written)
        return written

    def constant(
        self, value: Any, *, like: str = "", role: str = "constant", dtype: str = ""
    ) -> str:
        """Adds a constant and returns its name.

        Args:
            value: Array, list or number. Floats are kept in float64 until the model is finished;
                whole numbers become int64, truth values bool.
            like: Activation or constant whose floating-point type it gets; if empty, the anchor's
                first floating-point input.
            role: The constant's purpose, in a word.
            dtype: NumPy type name if the operator requires a type independent of the activations'
                ("float32" for the scales of a Resize).

        Raises:
            TooLargeError: As :meth:`check_size`.
        """
        array = np.asarray(value)
        self.check_size(*array.shape)
        if array.dtype.kind == "f":
            array, dtype = array.astype(np.float64, copy=False), dtype or self._float_type(like)
        elif array.dtype.kind == "b":
            dtype = "bool"
        else:
            array, dtype = array.astype(np.int64), "int64"
        item = NewConstant(self._new_tensor(f"{self._anchor.name}:{role}"), array, dtype)
        self.fixed.append(item)
        self._known.add(item.name)
        return item.name

    def check_size(self, *shape: int) -> None:
        """Checks a shape; call it before making a constant whose size depends on the network.

        Raises:
            TooLargeError: The shape is too large for a step's constant.
        """
        if math.prod(shape) > LARGEST:
            raise TooLargeError(f"a constant of {shape}")

    def _float_type(self, like: str) -> str:
        if like:
            return self._graph.dtype(like)
        for tensor in (*self._anchor.inputs, *self._anchor.outputs):
            if tensor and self._graph.floats(tensor):
                return self._graph.dtype(tensor)
        return "float32"

    def _new_tensor(self, stem: str) -> str:
        return self._free_name(
            stem, lambda name: self._graph.has_tensor(name) or name in self._tensors, self._tensors
        )

    def _new_name(self, stem: str) -> str:
        return self._free_name(
            stem,
            lambda name: name in self._names or (self._graph.has(name) and name not in self._free),
            self._names,
        )

    def _free_name(self, stem: str, taken: Callable[[str], bool], names: set[str]) -> str:
        """Returns the first free name of ``stem``, ``stem_1``, ... and adds it to ``names``."""
        # smaller numbers are known to be taken: counting from 1 each time would be quadratic
        key = stem, names is self._tensors
        count = self._counts.get(key, 0)
        name = f"{stem}_{count}" if count else stem
        while taken(name):
            count += 1
            name = f"{stem}_{count}"
        self._counts[key] = count
        names.add(name)
        return name


def emit(graph: RewriteGraph) -> Model:
    """Returns the graph as a Model: recipes folded, weights referenced.

    Shapes of the nodes' outputs were inferred when a step wrote them, and are still valid.
    """
    source = graph.model
    old = source.proto
    proto = onnx.ModelProto(ir_version=old.ir_version, opset_import=old.opset_import)
    proto.metadata_props.extend(old.metadata_props)
    proto.graph.name = old.graph.name
    proto.graph.input.extend(old.graph.input)
    proto.graph.output.extend(old.graph.output)
    proto.graph.initializer.extend(old.graph.initializer)
    # a recipe of several outputs (Split) has an entry for each
    recipes = {id(node): node for node in graph.recipes().values()}
    # recipes first: they read constants only, and other nodes read their results
    nodes = (*recipes.values(), *graph.nodes())
    proto.graph.node.extend(node_proto(node) for node in nodes)
    for written_node in proto.graph.node:
        graph.name_module(written_node)
    # astype keeps the memory order of a transposed value; weights are written in C order
    brought = {
        name: np.asarray(item.stored(), order="C") for name, item in graph.added_constants().items()
    }
    weights = joined_weights(brought, source.weights, list(source.weights))
    written = [name for node in nodes for name in node.outputs if name]
    known = {
        name: (onnx_elem_type(np.dtype(graph.dtype(name))), tuple(graph.shape(name)))
        for name in written
        if graph.known(name)
    }
    # type information of tensors without a known shape
    proto.graph.value_info.extend(v for v in old.graph.value_info if not graph.known(v.name))
    return canonical(
        proto, None, source=source.source, weights=weights, known=known, plugins=source.plugins
    )


@document(frozen=True, eq=False)
class Rewrite:
    """A rewrite, as :func:`rewrite` declares it.

    Attributes:
        name: Name for ``rewrite.enable`` and ``rewrite.disable``; kebab-case. An approximate
            rewrite's name begins with "approx-".
        operators: ONNX operators of the anchor: the function is called for these nodes only.
        reason: Why it helps, for people: the form that the DLA lacks, and its replacement.
        enabling: True if it may also be applied without changing a verdict, because it enables
            other rewrites (a matrix product as a convolution, a transposition moved on). Repeated
            application must end. Steps without an improvement in the end are taken back.
        deviation: Largest difference between the two functions of an approximate rewrite; None
            if they are equal in real arithmetic.
        at: Its function. The yielded nodes begin with the anchor. Tensors of these nodes that
            others read, or that the graph returns, must be written again with the same name,
            shape and type. Takes constant time: reads neighbours only.
    """

    name: str
    operators: tuple[str, ...]
    reason: str
    enabling: bool
    deviation: float | None
    at: Callable[[RewriteGraph, Node], Replacement]

    @property
    def approximate(self) -> bool:
        """True if it changes results by more than rounding."""
        return self.deviation is not None


def rewrite(
    name: str,
    *,
    operators: tuple[str, ...],
    reason: str,
    enabling: bool = False,
    deviation: float | None = None,
) -> Callable[[Callable[[RewriteGraph, Node], Replacement]], Rewrite]:
    """Makes a rewrite from a function; the arguments are the attributes of :class:`Rewrite`."""
    return lambda at: Rewrite(name, operators, reason, enabling, deviation, at)


def _attribute(value: object) -> object:
    """Returns a recipe's attribute in the form of a record."""
    parts = value if isinstance(value, list) else [value]
    kinds = {type(part) for part in parts}
    # a bool is an int in Python, but not in ONNX
    if len(kinds) != 1 or not kinds <= {int, float, str} or not all(map(_is_written, parts)):
        fail("", "an attribute of a recipe is not a number, a text or a list of these")
    return value


def _is_written(value: int | float | str) -> bool:
    # JSON has no infinity and no NaN; an ONNX integer attribute has 64 bits with a sign
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) or abs(value) < 1 << 63


@document(frozen=True)
class Recipe:
    """A node that derives constants from constants; attributes are numbers, texts and lists."""

    op: str = member(choice(*sorted(RECIPE_OPERATORS)))
    inputs: tuple[str, ...] = member(array(long_text))
    outputs: tuple[str, ...] = member(array(long_text))
    attributes: Attributes = member(mapping(_attribute))


def make_recipe(node: Node) -> Recipe:
    """Returns a node that derives constants in the form of a record.

    Raises:
        MalformedError: The operator, or an attribute's type, is not allowed in recipes.
    """
    if node.op not in RECIPE_OPERATORS or node.domain:
        raise MalformedError(f"{node.op} derives {node.outputs[0]!r}: recipes have none")
    attributes = {key: _recipe_attribute(node, value) for key, value in sorted(node.attrs.items())}
    return Recipe(node.op, node.inputs, node.outputs, attributes)


def _recipe_attribute(node: Node, value: Any) -> Any:
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float | str):
        return value
    if isinstance(value, list | tuple):
        return [_recipe_attribute(node, part) for part in value]
    if hasattr(value, "item"):  # a NumPy number
        return value.item()
    raise MalformedError(f"{node.op} {node.name!r} has an attribute that no recipe can have")


@document(frozen=True, eq=False)
class RewriteStep:
    """One application of a rewrite, before or after its proof.

    Attributes:
        rewrite: The rewrite.
        anchor: Name of the node at which it matched.
        old: Removed nodes, in graph order.
        new: Added nodes with recipes, in topological order.
        recipes: Names of the nodes in ``new`` that compute constants from constants (derived
            weights).
        fixed: Added constants.
        shapes: Shape by tensor that ``new`` writes, including constants.
        dtypes: NumPy type name by tensor that ``new`` writes.
        inputs: Activation tensors that ``old`` reads from outside.
        outputs: Tensors of ``old`` that are read outside or returned; ``new`` writes them too.
    """

    rewrite: Rewrite
    anchor: str
    old: tuple[Node, ...]
    new: tuple[Node, ...]
    recipes: frozenset[str]
    fixed: tuple[NewConstant, ...]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@document(frozen=True)
class Applied:
    """A rewrite that was applied and proved.

    Attributes:
        rewrite: Its name.
        reason: Why it helps.
        anchor: Node at which it matched.
        nodes: Removed nodes: the model's, or nodes of an earlier rewrite.
        new_nodes: Added nodes.
        max_error: Largest ``max|a-b| / max|b|`` of its outputs in FP32 (ONNX Runtime); None if
            ONNX Runtime has no kernel for the old nodes.
        max_error_float64: The same in float64; None for an approximate rewrite.
        runs: Number of random inputs of the proof.
        seed: Seed of the random inputs.
    """

    rewrite: str = member(long_text)
    reason: str = member(long_text)
    anchor: str = member(long_text)
    nodes: tuple[str, ...] = member(array(long_text))
    new_nodes: tuple[str, ...] = member(array(long_text))
    max_error: float | None = member(_ERROR)
    max_error_float64: float | None = member(_ERROR)
    runs: int = member(integer(0, 100))
    seed: int = member(integer(0, (1 << 63) - 1))


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Sorts nodes so that producers precede readers; a rewrite names its anchor first."""
    writer = {name: node for node in nodes for name in node.outputs if name}
    found: dict[str, Node] = {}

    def visit(node: Node) -> None:
        for name in node.reads():
            if name in writer and writer[name].name not in found:
                visit(writer[name])
        found.setdefault(node.name, node)

    for node in nodes:
        visit(node)
    return tuple(found.values())
