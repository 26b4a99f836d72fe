"""A model, its tensors and its layers as values: what the rest of edgekit reads.

Weights are referenced and not carried: a weight is a constant in a file, or one that is
computed when its values are read. Digests of weights and of models stream through them.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, Union, cast

import numpy as np
import onnx

from edgekit.network.graph import Attributes, OnnxGraph
from edgekit.network.module_names import ModuleNames
from edgekit.network.plugins import Plugin
from edgekit_device.protocol.codec import document

#: Those of a quantised model in the Q/DQ format.
QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})
#: Types of quantised values that no DLA computes with.
GPU_CODES = frozenset({"float8_e4m3fn", "float4_e2m1fn", "int4"})
#: Those whose result has the values of their first input, in another shape or order at most.
SAME_VALUES = frozenset(
    {"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)


# Constants that are known by shape and type, and computed when their values are first read.
#
# Exporters that store weights in half precision put a Cast after each: folding those while loading
# would read the whole file and keep it twice over in FP32, for questions that need only shapes.
_CHUNK = 1 << 20
# by id of a read-only array, checked against the array itself: editing a graph keeps its weights
_known: dict[int, tuple[weakref.ref[np.ndarray], str]] = {}
# what others wrote says nothing about the model that edgekit makes of the file
_PREFIX = "edgekit."


class DeferredStep:
    """One node that computes constants from constants.

    Attributes:
        inputs: What it reads.
        compute: From the values of ``inputs`` to the outputs by name.
    """

    def __init__(
        self,
        inputs: Sequence[Constant],
        compute: Callable[[Sequence[np.ndarray]], Mapping[str, np.ndarray]],
    ) -> None:
        self.inputs = tuple(inputs)
        self.compute = compute

    def before(self) -> list[DeferredStep]:
        """The steps that make its inputs."""
        return [value.step for value in self.inputs if isinstance(value, Deferred)]


class Deferred:
    """An array that is not computed yet.

    Attributes:
        step: What computes it.
        output: Its name among the step's outputs.
        shape: Its shape.
        dtype: Its NumPy type.
        digest: SHA-256 of its values once it was requested.
    """

    def __init__(
        self, step: DeferredStep, output: str, shape: Sequence[int], dtype: np.dtype
    ) -> None:
        self.step = step
        self.output = output
        self.shape = tuple(shape)
        self.dtype = dtype
        self.digest: str | None = None
        self._value: weakref.ref[np.ndarray] | None = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that its values will take."""
        return self.size * int(self.dtype.itemsize)

    def value(self) -> np.ndarray:
        """Computes it, read-only; it is kept only as long as the caller keeps it.

        Raises:
            ModelError: ``model.constant``: it cannot be computed from these values.
        """
        known = self._value() if self._value is not None else None
        if known is None:
            known = _computed(self.step)[self.output].view()
            known.flags.writeable = False
            self._value = weakref.ref(known)
        return known


# an unevaluated string union would not do for mypy's strict mode
Constant: TypeAlias = Union["np.ndarray", Deferred]


def real(value: Constant) -> np.ndarray:
    """The values."""
    return value.value() if isinstance(value, Deferred) else value


def _computed(last: DeferredStep) -> Mapping[str, np.ndarray]:
    """A step's outputs: each step it depends on runs once, results go after the last reader."""
    order = _order(last)
    readers = Counter(before for step in order for before in step.before())
    made: dict[DeferredStep, Mapping[str, np.ndarray]] = {}
    for step in order:
        values = [
            made[value.step][value.output] if isinstance(value, Deferred) else value
            for value in step.inputs
        ]
        made[step] = step.compute(values)
        del values
        for before in step.before():
            readers[before] -= 1
            if not readers[before]:
                del made[before]
    return made[last]


def _order(last: DeferredStep) -> list[DeferredStep]:
    """``last`` and the steps it depends on, each after those it reads; without recursion."""
    done: dict[DeferredStep, None] = {}
    stack = [last]
    while stack:
        step = stack[-1]
        missing = [before for before in step.before() if before not in done]
        if missing:
            stack += missing
        else:
            done[step] = None
            stack.pop()
    return list(done)


class Weights(Mapping[str, "np.ndarray"]):
    """Weights by name, some of which are computed at each access and not kept."""

    def __init__(self, made: Mapping[str, Constant]) -> None:
        self._entries = dict(made)

    def __getitem__(self, name: str) -> np.ndarray:
        return real(self._entries[name])

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Mapping[str, Constant]:
        """The weights without computing any: for shapes, types and passing on."""
        return self._entries


def weight_arrays(made: Mapping[str, Constant]) -> Mapping[str, np.ndarray]:
    """A mapping to arrays; a plain one when nothing has to be computed."""
    if any(isinstance(value, Deferred) for value in made.values()):
        return Weights(made)
    return cast("Mapping[str, np.ndarray]", made)


def entries(weights: Mapping[str, np.ndarray]) -> Mapping[str, Constant]:
    """What stands in a mapping of weights, without computing any of it."""
    return weights.entries if isinstance(weights, Weights) else weights


def joined_weights(
    own: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], names: Collection[str]
) -> Mapping[str, np.ndarray]:
    """Weights and some of another model's, none of which is computed for it.

    Args:
        own: Weights by name.
        other: Another ``Model.weights``.
        names: Which of ``other`` to take in.

    Raises:
        KeyError: ``other`` has no weight of a name.
    """
    there = entries(other)
    return weight_arrays({**entries(own), **{name: there[name] for name in names}})


#: The TensorRT release whose layers are meant where none is named: that of JetPack 6.2.
FOLLOWED = "10.3"
#: Kinds of layers that only give a tensor another shape or order.
SHUFFLES = frozenset({"SHUFFLE", "SQUEEZE", "UNSQUEEZE"})


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor's name, static shape and NumPy type name ("float32", "int64")."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True)
class Folded:
    """An ONNX node that loading took out of the graph, and what it read and wrote there.

    Attributes:
        reason: "constant" (computed from constants or known shapes), "identity" (Identity, and
            Dropout while not training), "branch" (an If of known condition), "function" (a call
            that was inlined), "given" (its values were given) or "unused" (no output needs it).
        inputs: Tensors that it read.
        outputs: Tensors that it wrote.
        after: The last node before it that stayed; empty when there is none.
    """

    reason: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    after: str = ""


@document(frozen=True, eq=False)
class Model:
    """A checked ONNX model whose weights are referenced, not carried.

    Attributes:
        proto: The graph with static shapes (value_info filled), every node named, unused inputs
            and initializers dropped, constants folded. Initializers that are weights have no
            data: their ``data_location`` is EXTERNAL with location "stripped", and their values
            stand in ``weights``. Small constants (shapes, axes, Clip bounds, Resize scales) stay
            inline.
        weights: Weight values by initializer name; may be memory maps, treat as read-only.
            Large ones that the file's nodes compute from others are computed at each access and
            not kept; the proto's initializers have every weight's shape and type.
        stored_digest: The digest where it is known already; None to compute it on request.
        source: What the user named: a path or "builtin:NAME?seed=N".
        folded: What became of the file's nodes that ``proto`` no longer has, by node name.
        notes: What was assumed where the file left it open, such as the batch.
        traces: Where the Python code of the nodes lies, by node name, as PyTorch's exporter wrote
            it: no part of what the model computes.
        plugins: The user's own plugins; their functions are no part of the digest.
    """

    proto: onnx.ModelProto
    weights: Mapping[str, np.ndarray]
    stored_digest: str | None
    source: str
    folded: Mapping[str, Folded] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    traces: Mapping[str, str] = field(default_factory=dict)
    plugins: tuple[Plugin, ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the proto and of every weight's bytes, which are read for it."""
        if self.stored_digest is not None:
            return self.stored_digest
        return digest(self.proto, self.weights)

    @cached_property
    def graph(self) -> OnnxGraph:
        """The nodes, their neighbours, shapes and constants, to look up."""
        return OnnxGraph(self.proto, self.weights, self.plugins)

    def cut(self, nodes: Collection[str], inputs: Sequence[str], outputs: Sequence[str]) -> Model:
        """Returns the sub-model of the named nodes; see :meth:`OnnxGraph.cut`."""
        proto = self.graph.cut(nodes, inputs, outputs)
        held = {tensor.name for tensor in proto.graph.initializer}
        weights = [name for name in self.weights if name in held]
        lent = joined_weights({}, self.weights, weights)
        return Model(proto, lent, None, self.source, plugins=self.plugins)


@dataclass(frozen=True, slots=True)
class Absorbed:
    """A layer of the importer that fusion removed before anything was placed.

    Builders that judge layers before fusing them warn about these too ("Layer 'fc.weight'
    (CONSTANT): Unsupported on DLA", TensorRT 10.3).

    Attributes:
        kind: CONSTANT, SHUFFLE or ELEMENTWISE.
        name: As the builder prints it; one that the importer leaves without a name is called
            "(Unnamed Layer* N) [ElementWise]" after its position N among all of the importer's.
        fused: Whether its name becomes a part of the layer's.
    """

    kind: str
    name: str
    fused: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A unit as TensorRT's builder places it (DESIGN: "Layer").

    Attributes:
        name: Unique in the network.
        kind: TensorRT's layer type as its log prints it: CONVOLUTION, DECONVOLUTION, POOLING,
            ACTIVATION, PARAMETRIC_RELU, ELEMENTWISE, SCALE, LRN, CONCATENATION, RESIZE, UNARY,
            SLICE, SOFTMAX, SHUFFLE, SQUEEZE, UNSQUEEZE, REDUCE, MATRIX_MULTIPLY, CONSTANT, CAST,
            GATHER, SELECT, TOPK, PADDING, IDENTITY, QUANTIZE, DEQUANTIZE, PLUGIN, LOOP, ...
        op: ONNX operator it came from ("Conv"); for inserted layers the operator it serves.
        nodes: Names of the ONNX nodes that it stands for; empty for an inserted layer.
            A node that TensorRT implements with several layers (a Sum of three, a Split) is in
            the ``nodes`` of each; nodes that compute from constants alone (dequantized weights)
            and erased reshapes are in those of the layer that reads them.
        origin: Names of the ONNX nodes that caused it (equals ``nodes`` unless inserted).
        inputs: Activation tensors read (no weights, no constants), in order.
        outputs: Tensors written.
        params: Kind-specific, plain Python values: kernel, stride, pads (begin..., end...),
            dilation, groups, out_maps, axis, axes, keepdims, mode, alpha, beta, function
            ("RELU", "SUM", ...), window, scales, starts, sizes, count_include_pad, ceil_mode, ...;
            a shuffle that was fused has those of its ``parts``; weight_codes is the type of
            quantised weights that only GPUs have ("int4").
            A recurrence (LSTM, GRU, RNN) has steps, directions, hidden, and products, the length
            of the sum that one gate takes. A Loop or a Scan of ONNX has trip_count, how often it
            runs its body, or trip_limit, how often at most; None where the data decide.
        weights: Names in ``Model.weights`` that it uses.
        weight_operators: ONNX operators that compute the matrix or kernel it multiplies by, such
            as DequantizeLinear; None if it multiplies by no constant, empty if this
            stands in the model as it is.
        macs: Multiply-accumulates for one inference.
        weight_elements: Number of weight values.
        absorbed: The importer's layers that are a part of it now, in the importer's order.
        opaque: "left" of a module that is left out; "plugin" where TensorRT needs a plugin for it,
            "imported" where its parser writes layers that are not known, "shapes" where it reads or
            writes tensors whose shape the data decide (their unknown sizes are 0 here); else empty.
        formula: Whether ``macs`` and its tensors say what it costs. False for an opaque layer, and
            for an operator without a formula: its cost is unknown and counted nowhere.
        module: Path of the innermost PyTorch module around the ONNX nodes that it computes
            ("layer1.0.conv1"); "" for the network itself, and if the file names no modules.
        bodies: The bodies of an If, a Loop or a Scan; ``macs`` are those of all iterations, and
            of the branch with more of them.
    """

    name: str
    kind: str
    op: str
    nodes: tuple[str, ...]
    origin: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: Attributes = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    macs: int = 0
    weight_elements: int = 0
    absorbed: tuple[Absorbed, ...] = ()
    weight_operators: frozenset[str] | None = None
    opaque: str = ""
    formula: bool = True
    module: str = ""
    bodies: tuple[Body, ...] = ()

    @property
    def builder_name(self) -> str:
        """What TensorRT 10 calls it: "fc + (Unnamed Layer* 125) [ElementWise]"."""
        return " + ".join((self.name, *(part.name for part in self.absorbed if part.fused)))


@document(frozen=True, eq=False)
class Network:
    """The layer graph: layers in topological (graph) order, and every activation tensor.

    Attributes:
        name: The ONNX graph's name.
        layers: In topological order.
        tensors: Every activation tensor that a layer reads or writes, by name; also the inner
            ones between the layers of one node ("fc:in4d"), which no ONNX tensor is called.
        inputs: Tensors fed.
        outputs: Tensors returned.
        views: For an inner tensor that holds an ONNX tensor's values in another shape, that
            tensor's name: where a segment ends at ``fc:out4d``, the ONNX model is cut at it.
        constants: CONSTANT layers that no fusion takes in (an operand of a Concat or a Max), in
            the order of their first readers. They run nowhere, so they are none of ``layers``:
            nothing places, rewrites or builds them. Their values count as weights of the readers.
        fixed: The tensors that ``constants`` write, by name; their readers do not list them.
        operators: ONNX operators of the model's nodes, also of those without a layer.
        release: The TensorRT release whose layers these are.
        modules: The PyTorch modules of the ONNX nodes; None if the file names no modules.
    """

    name: str
    layers: tuple[Layer, ...]
    tensors: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    views: Mapping[str, str] = field(default_factory=dict)
    constants: tuple[Layer, ...] = ()
    fixed: Mapping[str, Tensor] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    release: str = FOLLOWED
    modules: ModuleNames | None = None

    @property
    def opaque(self) -> tuple[str, ...]:
        """Names of the layers that are opaque, in graph order."""
        return tuple(layer.name for layer in self.layers if layer.opaque)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Names of the layers of unknown cost, in graph order; the opaque ones are among them."""
        return tuple(layer.name for layer in self.layers if not layer.formula)

    @cached_property
    def whole(self) -> Network:
        """The network as the builder lists it: each kept constant stands before its reader."""
        if not self.constants:
            return self
        before: dict[str, list[Layer]] = {}
        for constant in self.constants:
            before.setdefault(constant.origin[0], []).append(constant)
        layers: list[Layer] = []
        for layer in self.layers:
            for node in layer.nodes:
                layers += before.pop(node, ())
            layers.append(layer)
        return replace(self, layers=tuple(layers), tensors={**self.tensors, **self.fixed})

    def layer(self, name: str) -> Layer:
        """Returns the layer called ``name``; KeyError when there is none."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(name)

    def producers(self) -> dict[str, Layer]:
        """Returns the producing layer by tensor name (graph inputs have none)."""
        return dict(self._producers)

    def consumers(self) -> dict[str, tuple[Layer, ...]]:
        """Returns the consuming layers by tensor name, in graph order."""
        return dict(self._consumers)

    @cached_property
    def _producers(self) -> dict[str, Layer]:
        return {out: layer for layer in self.layers for out in layer.outputs}

    @cached_property
    def _consumers(self) -> dict[str, tuple[Layer, ...]]:
        found: dict[str, list[Layer]] = {}
        for layer in self.layers:
            for name in dict.fromkeys(layer.inputs):
                found.setdefault(name, []).append(layer)
        return {name: tuple(layers) for name, layers in found.items()}


@dataclass(frozen=True, slots=True)
class Body:
    """A body of an If, a Loop or a Scan; TensorRT keeps its layers on the GPU.

    Attributes:
        name: The node's attribute: "then_branch", "else_branch" or "body".
        network: The layers of one run of the body.
    """

    name: str
    network: Network


def frozen(array: np.ndarray) -> np.ndarray:
    """The array itself when it is read-only, otherwise a read-only view of it."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def weight_digests(model: Model) -> dict[str, str]:
    """SHA-256 (hex) of every weight's type, shape and bytes, by name; computed once per array."""
    return {name: _digest(value) for name, value in entries(model.weights).items()}


def digest(proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> str:
    """SHA-256 (hex) over the stripped proto and each weight's name and digest."""
    import hashlib

    total = hashlib.sha256(proto.SerializeToString(deterministic=True))
    values = entries(weights)
    for name in sorted(values):
        total.update(f"\n{name}\n{_digest(values[name])}".encode())
    return total.hexdigest()


def _digest(value: Constant) -> str:
    if not isinstance(value, Deferred):
        return _array_digest(value)
    if value.digest is None:
        value.digest = _array_digest(value.value())
    return value.digest


def _array_digest(array: np.ndarray) -> str:
    entry = _known.get(id(array))
    if entry is not None and entry[0]() is array:
        return entry[1]
    import hashlib

    total = hashlib.sha256(f"{array.dtype.name}{list(array.shape)}\n".encode())
    for chunk in chunks(array):
        total.update(chunk)
    found = total.hexdigest()
    if not array.flags.writeable:
        key = id(array)
        _known[key] = (weakref.ref(array, lambda _: _known.pop(key, None)), found)
    return found


def chunks(array: np.ndarray) -> Iterator[bytes]:
    """The array's bytes in C order, a piece at a time."""
    mapped = _file_range(array)
    if mapped is not None:
        # read() does not count against this process as touching the map's pages would
        name, offset, remaining = mapped
        with open(name, "rb") as file:
            file.seek(offset)
            while remaining and (chunk := file.read(min(remaining, _CHUNK))):
                remaining -= len(chunk)
                yield chunk
        return
    step = max(1, _CHUNK // max(1, array.itemsize))
    if array.size > step and not any(array.strides):
        # one value repeated, as ConstantOfShape makes it
        piece = array.flat[:step].tobytes()
        for start in range(0, array.size, step):
            yield piece[: (array.size - start) * array.itemsize]
        return
    if not array.flags.c_contiguous:
        pieces = np.nditer(array, ["external_loop", "buffered"], order="C", buffersize=step)
        yield from (np.asarray(piece).tobytes() for piece in pieces)
        return
    flat = array.reshape(-1)
    for start in range(0, array.size, step):
        yield flat[start : start + step].tobytes()


def _file_range(array: np.ndarray) -> tuple[str, int, int] | None:
    """(file, offset, bytes) of an array that is one piece of a memory map."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or not array.flags.c_contiguous:
        return None
    start = array.ctypes.data - root.ctypes.data
    if root.mode != "r" or not 0 <= start <= root.nbytes - array.nbytes:
        return None
    return str(root.filename), root.offset + start, array.nbytes


def metadata(model: Model, key: str) -> str | None:
    """Returns the text that stands in a model's metadata under ``key``; None when there is none."""
    for item in model.proto.metadata_props:
        if item.key == key:
            return str(item.value)
    return None


def with_metadata(model: Model, key: str, value: str) -> Model:
    """Returns the model with a text in its metadata.

    Args:
        model: The model, which is left as it is.
        key: Begins with "edgekit.": no other key survives.
        value: Replaces what stands under the key. It is a part of the model's digest, so it must
            not hold anything that changes from run to run.
    """
    if not key.startswith(_PREFIX):
        raise ValueError(f"a key must begin with {_PREFIX!r}, and {key!r} does not")
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    _write(proto, {**_entries_of(proto), key: value})
    return replace(model, proto=proto, stored_digest=None)


def copy_metadata(source: onnx.ModelProto, target: onnx.ModelProto) -> None:
    """Gives ``target`` edgekit's own metadata of ``source``, sorted by key, and no other."""
    _write(target, _entries_of(source))


def _entries_of(proto: onnx.ModelProto) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in proto.metadata_props:
        if item.key.startswith(_PREFIX):
            found.setdefault(item.key, item.value)
    return found


def _write(proto: onnx.ModelProto, entries: dict[str, str]) -> None:
    del proto.metadata_props[:]
    for key in sorted(entries):
        proto.metadata_props.add(key=key, value=entries[key])


def loadable_name(network: Network, layers: Collection[str]) -> str:
    """The builder's name of a loadable: ``{ForeignNode[FIRST...LAST]}``, or its only layer.

    First and last are in graph order, also where branches run side by side, with the names that
    TensorRT 10 gives them. TensorRT 8 writes more parts into the name of a Gemm; compare logs of
    it by what stands before the first " + ".

    Args:
        network: Where the layers are from.
        layers: Names of the loadable's layers, in any order.

    Raises:
        KeyError: when there are none, or ``network`` has no layer of such a name.
    """
    wanted = set(layers)
    found = [layer for layer in network.layers if layer.name in wanted]
    if not wanted or len(found) < len(wanted):
        raise KeyError(min(wanted - {layer.name for layer in found}, default=""))
    return name_between(found[0], found[-1])


def name_between(first: Layer, last: Layer) -> str:
    """The builder's name of a loadable by its first and last layer in graph order."""
    inside = first.builder_name
    if last.name != first.name:
        inside += f"...{last.builder_name}"
    return f"{{ForeignNode[{inside}]}}"
