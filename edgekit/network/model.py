"""Data classes of a model, its tensors and its layers, which the rest of edgekit reads.

Weights are referenced, not copied: a weight is a constant in a file, or is computed when its values
are read. Digests of weights and of models are computed in chunks.
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

#: Operators of a quantised model in the Q/DQ format.
QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})
#: Types of quantised values that no DLA computes with.
GPU_CODES = frozenset({"float8_e4m3fn", "float4_e2m1fn", "int4"})
#: Operators whose result has the values of the first input, possibly in another shape or order.
SAME_VALUES = frozenset(
    {"Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
)


# Constants with known shape and type whose values are computed when first read.
#
# Exporters that store weights in half precision add a Cast after each: folding these at load time
# would read the whole file and hold it in FP32 at twice its size, even if only shapes are needed.
_CHUNK = 1 << 20
# digest by id of a read-only array, checked against the array itself: a graph's edits keep its
# weights
_digests: dict[int, tuple[weakref.ref[np.ndarray], str]] = {}
# prefix of edgekit's own metadata; other metadata do not describe the model after edgekit's edits
_PREFIX = "edgekit."
#: The default TensorRT release of layers: that of JetPack 6.2.
FOLLOWED = "10.3"
#: Kinds of layers that only change a tensor's shape or order.
SHUFFLES = frozenset({"SHUFFLE", "SQUEEZE", "UNSQUEEZE"})


class DeferredStep:
    """A node that computes constants from constants.

    Attributes:
        inputs: Its inputs.
        compute: Computes the outputs by name from the values of ``inputs``.
    """

    def __init__(
        self,
        inputs: Sequence[Constant],
        compute: Callable[[Sequence[np.ndarray]], Mapping[str, np.ndarray]],
    ) -> None:
        self.inputs = tuple(inputs)
        self.compute = compute

    def before(self) -> list[DeferredStep]:
        """Returns the steps that compute its inputs."""
        return [value.step for value in self.inputs if isinstance(value, Deferred)]


class Deferred:
    """An array that is not computed yet.

    Attributes:
        step: The step that computes it.
        output: Its name among the step's outputs.
        shape: Its shape.
        dtype: Its NumPy type.
        digest: SHA-256 of its values, after the first request.
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
        """Number of bytes of its values."""
        return self.size * int(self.dtype.itemsize)

    def value(self) -> np.ndarray:
        """Computes the array, read-only and without caching it.

        Raises:
            ModelError: ``model.constant``: it cannot be computed from these values.
        """
        known = self._value() if self._value is not None else None
        # a weak reference: the values live only while a caller holds them
        if known is None:
            known = _run_step(self.step)[self.output].view()
            known.flags.writeable = False
            self._value = weakref.ref(known)
        return known


# mypy's strict mode does not accept an unevaluated string union
Constant: TypeAlias = Union["np.ndarray", Deferred]


def materialise(value: Constant) -> np.ndarray:
    """Returns the values, computed if necessary."""
    return value.value() if isinstance(value, Deferred) else value


def _run_step(last: DeferredStep) -> Mapping[str, np.ndarray]:
    """Returns a step's outputs. Each step that it depends on runs once; results are freed after
    their last reader."""
    order = _order(last)
    readers = Counter(before for step in order for before in step.before())
    made: dict[DeferredStep, Mapping[str, np.ndarray]] = {}
    for step in order:
        values = [
            made[value.step][value.output] if isinstance(value, Deferred) else value
            for value in step.inputs
        ]
        made[step] = step.compute(values)
        # else these references would keep the arrays that are dropped below
        del values
        for before in step.before():
            readers[before] -= 1
            if not readers[before]:
                del made[before]
    return made[last]


def _order(last: DeferredStep) -> list[DeferredStep]:
    """Returns ``last`` and the steps it depends on, in order of execution; without recursion."""
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
    """Weights by name; deferred weights are computed at each access and not cached."""

    def __init__(self, made: Mapping[str, Constant]) -> None:
        self._entries = dict(made)

    def __getitem__(self, name: str) -> np.ndarray:
        return materialise(self._entries[name])

    # Mapping's own method would compute the weight
    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Mapping[str, Constant]:
        """The weights without computing any, for example for their shapes and types."""
        return self._entries


def weight_arrays(made: Mapping[str, Constant]) -> Mapping[str, np.ndarray]:
    """Returns a mapping to arrays; the argument itself if no weight is deferred."""
    if any(isinstance(value, Deferred) for value in made.values()):
        return Weights(made)
    return cast("Mapping[str, np.ndarray]", made)


def entries(weights: Mapping[str, np.ndarray]) -> Mapping[str, Constant]:
    """Returns the entries of a mapping of weights, without computing any."""
    return weights.entries if isinstance(weights, Weights) else weights


def joined_weights(
    own: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray], names: Collection[str]
) -> Mapping[str, np.ndarray]:
    """Returns weights with some of another model's, without computing any.

    Args:
        own: Weights by name.
        other: Another ``Model.weights``.
        names: The weights of ``other`` to add.

    Raises:
        KeyError: ``other`` has no weight of a name.
    """
    there = entries(other)
    return weight_arrays({**entries(own), **{name: there[name] for name in names}})


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
    """An ONNX node that loading removed from the graph, with its inputs and outputs.

    Attributes:
        reason: "constant" (computed from constants or known shapes), "identity" (Identity, and
            Dropout in inference), "branch" (an If with a known condition), "function" (an inlined
            call), "given" (its values were given) or "unused" (no output needs it).
        inputs: Tensors that it read.
        outputs: Tensors that it wrote.
        after: The last kept node before it; empty if there is none.
    """

    reason: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    after: str = ""


@document(frozen=True, eq=False)
class Model:
    """A checked ONNX model whose weights are referenced, not copied.

    Attributes:
        proto: The graph with static shapes (value_info filled), every node named, unused inputs
            and initializers dropped, constants folded. Initializers that are weights have no
            data: their ``data_location`` is EXTERNAL with location "stripped", and their values
            are in ``weights``. Small constants (shapes, axes, Clip bounds, Resize scales) stay
            inline.
        weights: Weight values by initializer name; may be memory maps, treat as read-only.
            Large weights that the file's nodes compute from constants are computed at each access
            and not cached; the proto's initializers have every weight's shape and type.
        stored_digest: The digest if already known; None to compute it on request.
        source: The user's text: a path or "builtin:NAME?seed=N".
        folded: The file's nodes that ``proto`` no longer has, with the reason, by node name.
        notes: Assumptions for values that the file leaves open, such as the batch.
        traces: Python stack traces of the nodes, by node name, from PyTorch's exporter; they do
            not affect results.
        plugins: The user's own plugins; their functions are not part of the digest.
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
        """SHA-256 (hex) of the proto and of every weight's bytes; reads all weights."""
        if self.stored_digest is not None:
            return self.stored_digest
        return digest(self.proto, self.weights)

    @cached_property
    def graph(self) -> OnnxGraph:
        """The graph, for lookups of nodes, neighbours, shapes and constants."""
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
    """A layer of the importer that fusion removed before the placement of layers.

    Builders that check layers before fusion also warn about these ("Layer 'fc.weight' (CONSTANT):
    Unsupported on DLA", TensorRT 10.3).

    Attributes:
        kind: CONSTANT, SHUFFLE or ELEMENTWISE.
        name: The builder's name; a layer without a name is called "(Unnamed Layer* N)
            [ElementWise]" after its position N among all layers of the importer.
        fused: True if its name becomes a part of the layer's name.
    """

    kind: str
    name: str
    fused: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in TensorRT's builder, the unit of placement (DESIGN: "Layer").

    Attributes:
        name: Unique in the network.
        kind: TensorRT's layer type as in its log: CONVOLUTION, DECONVOLUTION, POOLING,
            ACTIVATION, PARAMETRIC_RELU, ELEMENTWISE, SCALE, LRN, CONCATENATION, RESIZE, UNARY,
            SLICE, SOFTMAX, SHUFFLE, SQUEEZE, UNSQUEEZE, REDUCE, MATRIX_MULTIPLY, CONSTANT, CAST,
            GATHER, SELECT, TOPK, PADDING, IDENTITY, QUANTIZE, DEQUANTIZE, PLUGIN, LOOP, ...
        op: Its ONNX operator ("Conv"); for inserted layers the operator that needs the layer.
        nodes: Names of the ONNX nodes that it implements; empty for an inserted layer.
            A node that TensorRT implements with several layers (a Sum of three, a Split) is in
            the ``nodes`` of each; nodes with only constant inputs (dequantized weights) and erased
            reshapes are in the ``nodes`` of the layer that reads them.
        origin: Names of the ONNX nodes that caused it (equals ``nodes`` unless inserted).
        inputs: Activation tensors read (no weights, no constants), in order.
        outputs: Tensors written.
        params: Kind-specific, plain Python values: kernel, stride, pads (begin..., end...),
            dilation, groups, out_maps, axis, axes, keepdims, mode, alpha, beta, function
            ("RELU", "SUM", ...), window, scales, starts, sizes, count_include_pad, ceil_mode, ...;
            a fused shuffle has the parameters of its ``parts``; weight_codes is the type of
            quantised weights that only GPUs support ("int4").
            A recurrence (LSTM, GRU, RNN) has steps, directions, hidden, and products, the length
            of a gate's sum. An ONNX Loop or Scan has trip_count, its number of iterations, or
            trip_limit, its maximum; None if data-dependent.
        weights: Names in ``Model.weights`` that it uses.
        weight_operators: ONNX operators that compute its constant matrix or kernel, such as
            DequantizeLinear; None if it has no constant factor, empty if the factor is stored in
            the model.
        macs: Multiply-accumulates for one inference.
        weight_elements: Number of weight values.
        absorbed: The importer's layers that it contains, in the importer's order.
        opaque: "left" for a module that is left out; "plugin" if TensorRT needs a plugin for it;
            "imported" if its parser writes unknown layers; "shapes" if it reads or writes tensors
            with data-dependent shapes (their unknown sizes are 0 here); else empty.
        formula: True if ``macs`` and its tensors determine its cost. False for an opaque layer, and
            for an operator without a formula: its cost is unknown and not counted.
        module: Path of the innermost PyTorch module around the ONNX nodes that it computes
            ("layer1.0.conv1"); "" for the network itself, and if the file names no modules.
        bodies: The bodies of an If, a Loop or a Scan; ``macs`` counts all iterations, and the
            branch with more multiply-accumulates.
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
        """Its name in TensorRT 10: "fc + (Unnamed Layer* 125) [ElementWise]"."""
        return " + ".join((self.name, *(part.name for part in self.absorbed if part.fused)))


@document(frozen=True, eq=False)
class Network:
    """The layer graph: layers in topological (graph) order, and every activation tensor.

    Attributes:
        name: The ONNX graph's name.
        layers: In topological order.
        tensors: Every activation tensor that a layer reads or writes, by name; also inner tensors
            between the layers of a node ("fc:in4d"), whose names differ from all ONNX tensors.
        inputs: Tensors fed.
        outputs: Tensors returned.
        views: ONNX tensor by inner tensor with the same values in another shape: if a segment ends
            at ``fc:out4d``, the ONNX model is cut at the ONNX tensor.
        constants: CONSTANT layers that remain after fusion (an operand of a Concat or a Max), in
            the order of their first readers. They do not run, so they are not in ``layers`` and are
            not placed, rewritten or built. Their values count as weights of the readers.
        fixed: The tensors that ``constants`` write, by name; their readers do not list them.
        operators: ONNX operators of the model's nodes, including nodes without a layer.
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
        """Names of the layers with unknown cost, including opaque layers, in graph order."""
        return tuple(layer.name for layer in self.layers if not layer.formula)

    @cached_property
    def whole(self) -> Network:
        """The network in the builder's order: each kept constant precedes its reader."""
        if not self.constants:
            return self
        # a constant's origin is its first reader
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
        """Returns the layer called ``name``; raises KeyError if it does not exist."""
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
            # a layer may read a tensor twice (x + x)
            for name in dict.fromkeys(layer.inputs):
                found.setdefault(name, []).append(layer)
        return {name: tuple(layers) for name, layers in found.items()}


@dataclass(frozen=True, slots=True)
class Body:
    """A body of an If, a Loop or a Scan; TensorRT keeps its layers on the GPU.

    Attributes:
        name: The node's attribute: "then_branch", "else_branch" or "body".
        network: The layers of an iteration of the body.
    """

    name: str
    network: Network


def read_only(array: np.ndarray) -> np.ndarray:
    """Returns the array itself if it is read-only, otherwise a read-only view."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def weight_digests(model: Model) -> dict[str, str]:
    """Returns SHA-256 (hex) of each weight's type, shape and bytes, computed once per array."""
    return {name: _digest(value) for name, value in entries(model.weights).items()}


def digest(proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> str:
    """Returns SHA-256 (hex) over the stripped proto and each weight's name and digest."""
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
    entry = _digests.get(id(array))
    # after an array is freed, another may get its id: the reference must be to this array
    if entry is not None and entry[0]() is array:
        return entry[1]
    import hashlib

    total = hashlib.sha256(f"{array.dtype.name}{list(array.shape)}\n".encode())
    for chunk in chunks(array):
        total.update(chunk)
    found = total.hexdigest()
    # an array that can be written may change after this
    if not array.flags.writeable:
        key = id(array)
        _digests[key] = (weakref.ref(array, lambda _: _digests.pop(key, None)), found)
    return found


def chunks(array: np.ndarray) -> Iterator[bytes]:
    """Yields the array's bytes in C order, in chunks."""
    mapped = _file_range(array)
    if mapped is not None:
        # unlike pages of the map, data from read() do not stay in this process's memory
        name, offset, remaining = mapped
        with open(name, "rb") as file:
            file.seek(offset)
            while remaining and (chunk := file.read(min(remaining, _CHUNK))):
                remaining -= len(chunk)
                yield chunk
        return
    step = max(1, _CHUNK // max(1, array.itemsize))
    if array.size > step and not any(array.strides):
        # a single repeated value, from ConstantOfShape
        piece = array.flat[:step].tobytes()
        for start in range(0, array.size, step):
            yield piece[: (array.size - start) * array.itemsize]
        return
    if not array.flags.c_contiguous:
        # in C order, without a copy of the whole array
        pieces = np.nditer(array, ["external_loop", "buffered"], order="C", buffersize=step)
        yield from (np.asarray(piece).tobytes() for piece in pieces)
        return
    flat = array.reshape(-1)
    for start in range(0, array.size, step):
        yield flat[start : start + step].tobytes()


def _file_range(array: np.ndarray) -> tuple[str, int, int] | None:
    """Returns (file, offset, bytes) of an array that is contiguous in a memory map; else None."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or not array.flags.c_contiguous:
        return None
    start = array.ctypes.data - root.ctypes.data
    # the file of a writable map may differ from memory
    if root.mode != "r" or not 0 <= start <= root.nbytes - array.nbytes:
        return None
    return str(root.filename), root.offset + start, array.nbytes


def metadata(model: Model, key: str) -> str | None:
    """Returns a model's metadata text for ``key``; None if absent."""
    for item in model.proto.metadata_props:
        if item.key == key:
            return str(item.value)
    return None


def with_metadata(model: Model, key: str, value: str) -> Model:
    """Returns the model with a text in its metadata.

    Args:
        model: The model, which is not changed.
        key: Begins with "edgekit.": other keys are dropped.
        value: Replaces the key's value. It is part of the model's digest, so it must not contain
            data that change from run to run.
    """
    if not key.startswith(_PREFIX):
        raise ValueError(f"a key must begin with {_PREFIX!r}, and {key!r} does not")
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    _write_metadata(proto, {**_metadata_entries(proto), key: value})
    return replace(model, proto=proto, stored_digest=None)


def copy_metadata(source: onnx.ModelProto, target: onnx.ModelProto) -> None:
    """Replaces the metadata of ``target`` by edgekit's own metadata of ``source``, sorted by
    key."""
    _write_metadata(target, _metadata_entries(source))


def _metadata_entries(proto: onnx.ModelProto) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in proto.metadata_props:
        if item.key.startswith(_PREFIX):
            # the first entry of a key counts, as in `metadata`
            found.setdefault(item.key, item.value)
    return found


def _write_metadata(proto: onnx.ModelProto, entries: dict[str, str]) -> None:
    del proto.metadata_props[:]
    for key in sorted(entries):
        proto.metadata_props.add(key=key, value=entries[key])


def loadable_name(network: Network, layers: Collection[str]) -> str:
    """Returns the builder's name of a loadable: ``{ForeignNode[FIRST...LAST]}``, or its only layer.

    First and last are in graph order, also with parallel branches, and have TensorRT 10's names.
    TensorRT 8 writes more parts into the name of a Gemm; compare its logs by the part before the
    first " + ".

    Args:
        network: The network of the layers.
        layers: Names of the loadable's layers, in any order.

    Raises:
        KeyError: if ``layers`` is empty, or ``network`` lacks a layer.
    """
    wanted = set(layers)
    found = [layer for layer in network.layers if layer.name in wanted]
    if not wanted or len(found) < len(wanted):
        raise KeyError(min(wanted - {layer.name for layer in found}, default=""))
    return name_between(found[0], found[-1])


def name_between(first: Layer, last: Layer) -> str:
    """Returns the builder's name of a loadable by its first and last layer in graph order."""
    inside = first.builder_name
    if last.name != first.name:
        inside += f"...{last.builder_name}"
    return f"{{ForeignNode[{inside}]}}"
