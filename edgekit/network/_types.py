"""The values of this floor: a model, its tensors and its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["Absorbed", "Folded", "Layer", "Model", "Network", "Tensor"]


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


@dataclass(frozen=True, eq=False)
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
        stored_digest: The digest where it is known already; None to compute it when asked for.
        source: What the user named: a path or "builtin:NAME?seed=N".
        folded: What became of the file's nodes that ``proto`` no longer has, by node name.
        notes: What was assumed where the file left it open, such as the batch.
    """

    proto: onnx.ModelProto
    weights: Mapping[str, np.ndarray]
    stored_digest: str | None
    source: str
    folded: Mapping[str, Folded] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the proto and of every weight's bytes, which are read for it."""
        if self.stored_digest is not None:
            return self.stored_digest
        from edgekit.network._digest import digest

        return digest(self.proto, self.weights)

    @property
    def tensor_names(self) -> frozenset[str]:
        """Names of the inputs and of all tensors that nodes write; looked up at each access."""
        graph = self.proto.graph
        written = (name for node in graph.node for name in node.output if name)
        return frozenset((*(value.name for value in graph.input), *written))


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
            SLICE, SOFTMAX, SHUFFLE, REDUCE, MATRIX_MULTIPLY, CONSTANT, CAST, GATHER, SELECT,
            TOPK, PADDING, IDENTITY, QUANTIZE, DEQUANTIZE, PLUGIN, LOOP, ...
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
            a shuffle that was fused has those of its ``parts``.
            A recurrence (LSTM, GRU, RNN) has steps, directions, hidden, and products, the length
            of the sum behind one gate.
        weights: Names in ``Model.weights`` that it uses.
        weight_operators: ONNX operators that compute the matrix or kernel it multiplies by, such
            as DequantizeLinear; None where it multiplies by no constant, empty where this
            stands in the model as it is.
        macs: Multiply-accumulates for one inference.
        weight_elements: Number of weight values.
        absorbed: The importer's layers that are a part of it now, in the importer's order.
        opaque: "plugin" where TensorRT needs a plugin for it, "shapes" where it reads or writes
            tensors whose shape the data decide (their unknown sizes are 0 here); else empty. What
            an opaque layer costs is unknown.
    """

    name: str
    kind: str
    op: str
    nodes: tuple[str, ...]
    origin: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    weights: tuple[str, ...] = ()
    macs: int = 0
    weight_elements: int = 0
    absorbed: tuple[Absorbed, ...] = ()
    weight_operators: frozenset[str] | None = None
    opaque: str = ""

    @property
    def builder_name(self) -> str:
        """What TensorRT 10 calls it: "fc + (Unnamed Layer* 125) [ElementWise]"."""
        return " + ".join((self.name, *(part.name for part in self.absorbed if part.fused)))


@dataclass(frozen=True, eq=False)
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

    @property
    def opaque(self) -> tuple[str, ...]:
        """Names of the layers of unknown cost, in graph order."""
        return tuple(layer.name for layer in self.layers if layer.opaque)

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
