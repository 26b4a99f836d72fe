"""Collects the layers of a graph: layers, tensors, their constants, and the names of TensorRT's
ONNX importer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from edgekit.errors import ModelError
from edgekit.network.graph import Attributes, LayerSource, Node
from edgekit.network.lowering import kinds
from edgekit.network.lowering.bodies import Bodies, Lower, lower_bodies
from edgekit.network.model import GPU_CODES, Absorbed, Body, Layer, Tensor
from edgekit.network.plugins import Plugin
from edgekit.network.protos import free_name

# Counts and names layers as TensorRT's ONNX importer does, to know their names in its log.
#
# The importer writes constants and broadcasts as separate layers, and leaves some layers without a
# name; the builder then prints "(Unnamed Layer* N) [ElementWise]", with N the position among all
# layers of the importer. Source: onnx-tensorrt 10.3, importerUtils.cpp (convertToTensor,
# broadcastTensors), ImporterContext.cpp (registerLayer, generateUniqueName) and
# onnxOpImporters.cpp (Gemm); a verbose TensorRT 10.3 build of ResNet-50 agrees. Exact for weights
# in the file; a folded node counts as a single layer here, but the importer may write several.


_BROADCAST = "ONNXTRT_Broadcast"
_SHAPE_SHUFFLE = "ONNXTRT_ShapeShuffle"
# operators that multiply by the second input (or, for MatMul, by the first)
_WEIGHTED_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# layers that read constants as tensors from CONSTANT layers; all others absorb their constants
_KEEPERS = frozenset(
    {"CONCATENATION", "ELEMENTWISE", "GATHER", "MATRIX_MULTIPLY", "SCATTER", "SELECT"}
)


class Importer:
    """The importer's count of layers and the names that it has used."""

    def __init__(self, constant: Callable[[str], bool]) -> None:
        self._constant = constant
        self._count = 0
        self._taken: set[str] = set()
        self._next_suffix = 0

    def layers(self, count: int = 1) -> None:
        """Counts layers that have the name of their node."""
        self._count += count

    def reshape(self) -> None:
        """Counts a reshape: registered as a helper, then again under its node's name."""
        self._count += 1
        self._register(_SHAPE_SHUFFLE)

    def constant(self, name: str) -> tuple[Absorbed, ...]:
        """Counts a constant that is read as a tensor; returns its layer the first time, else
        empty."""
        if name in self._taken or not self._constant(name):
            return ()
        self._taken.add(name)
        self._count += 1
        return (Absorbed("CONSTANT", name),)

    def broadcast(self) -> Absorbed:
        """Counts and returns a shuffle that prepends dimensions of size 1."""
        self._count += 1
        self._register(_SHAPE_SHUFFLE)
        return Absorbed("SHUFFLE", self._register(_BROADCAST))

    def unnamed_sum(self) -> Absorbed:
        """Counts and returns the element-wise sum with a Gemm's bias, which a convolution
        absorbs."""
        part = Absorbed("ELEMENTWISE", f"(Unnamed Layer* {self._count}) [ElementWise]", True)
        self._count += 1
        return part

    def scalar_product(self) -> None:
        """Counts a multiplication by a Gemm's alpha or beta: constant, broadcast and
        element-wise."""
        self._count += 1
        self.broadcast()
        self._count += 1

    def _register(self, name: str) -> str:
        # a common counter for all names, as in generateUniqueName
        found = name
        while found in self._taken:
            found = f"{name}_{self._next_suffix}"
            self._next_suffix += 1
        self._taken.add(found)
        return found


class Placer:
    """Collects the layers of a graph, one node after the other.

    Attributes:
        version: The graph's ai.onnx opset.
        release: The parser's TensorRT release.
        layers: The layers so far, in graph order.
        tensors: Every activation tensor, including inner tensors.
        views: ONNX tensor by inner tensor that has the same values in another shape.
        importer: The count and the names of TensorRT's importer.
        constants: The readers of each constant that remains a layer, by tensor.
    """

    def __init__(self, graph: LayerSource, removed: Mapping[str, int], release: str) -> None:
        self.version = graph.opset
        self.release = release
        self.layers: list[Layer] = []
        self.tensors = {
            name: Tensor(name, graph.shape(name), graph.dtype(name)) for name in graph.activations()
        }
        self.views: dict[str, str] = {}
        self.constants: dict[str, list[Node]] = {}
        self.outputs = set(graph.outputs)
        self._graph = graph
        self.importer = Importer(graph.constant)
        self._names = {node.name for node in graph.nodes()}
        self._named: set[str] = set()
        self._tried_names: dict[str, int] = {}
        self._tried_tensors: dict[str, int] = {}
        self._removed = removed
        self.importer.layers(removed.get("", 0))
        # tensors computed only from constants (dequantized weights), with their nodes and weights
        self._derived: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._operators: dict[str, frozenset[str]] = {}
        self._codes: dict[str, frozenset[str]] = {}

    def bodies(self, node: Node, lower: Lower) -> Bodies:
        """Returns the layers in a node's bodies; ``lower`` returns the layers of a graph."""
        return lower_bodies(self._graph, node, self.release, lower)

    def plugin(self, node: Node) -> Plugin | None:
        """Returns the user's own plugin of a node; None for any other node."""
        return self._graph.plugin(node)

    def done(self, node: Node) -> None:
        """Counts the importer's layers for nodes removed after this node; call it after each
        node."""
        gone = self._removed.get(node.name, 0)
        if gone:
            self.importer.layers(gone)

    def constant(self, name: str) -> bool:
        """Returns True if a tensor is an initializer or computed only from initializers."""
        return name in self._derived or self._graph.constant(name)

    def stored(self, name: str) -> bool:
        """Returns True if the model has a tensor's values, so that ``value`` returns them."""
        return self._graph.constant(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the static shape of an activation or a constant."""
        tensor = self.tensors.get(name)
        return self._graph.shape(name) if tensor is None else tensor.shape

    def dtype(self, name: str) -> str:
        """Returns the NumPy type name of an activation or a constant."""
        tensor = self.tensors.get(name)
        return self._graph.dtype(name) if tensor is None else tensor.dtype

    def value(self, node: Node, index: int) -> np.ndarray | None:
        """Returns the constant at input ``index`` of ``node``; None if omitted.

        Raises:
            ModelError: ``model.parameter`` if it is computed at run time.
        """
        name = node.input(index)
        if not name:
            return None
        value = self._graph.value(name)
        if value is not None:
            return value
        raise ModelError(
            f"node {node.name!r} ({node.op}) needs a constant {name!r}, but another node "
            "computes it",
            code="model.parameter",
            where=node.name,
            hint="export the model so that shapes, axes and sizes are constants",
        )

    def ints(self, node: Node, index: int) -> tuple[int, ...] | None:
        """Returns the integers at input ``index``; None if omitted."""
        value = self.value(node, index)
        return None if value is None else tuple(int(item) for item in value.reshape(-1))

    def scalar(self, node: Node, index: int) -> float | None:
        """Returns the single number at input ``index``; None if omitted."""
        value = self.value(node, index)
        return None if value is None or not value.size else float(value.reshape(-1)[0])

    def absorb(self, node: Node) -> bool:
        """Absorbs a node with only constant inputs into its readers; returns True if absorbed."""
        read = list(node.reads())
        # a node without inputs, such as RandomNormal, is not constant
        if not read or not all(self.constant(name) for name in read):
            return False
        sources = self._sources(read)
        self.importer.layers(len([name for name in read if self._graph.constant(name)]) + 1)
        for name in node.outputs:
            if name:
                self._derived[name] = ((*sources[0], node.name), sources[1])
                before = (self._operators.get(source, frozenset()) for source in read)
                self._operators[name] = frozenset({node.op}).union(*before)
                # types of quantised weights, or of the zero point that determines them
                types = GPU_CODES.intersection(self._graph.dtype(source) for source in read)
                known = (self._codes.get(source, frozenset()) for source in read)
                self._codes[name] = types.union(*known)
        # an output of the network needs a layer that writes it
        for name in node.outputs:
            if name in self.outputs:
                self.emit(node, "CONSTANT", outputs=[name])
        return True

    def emit(
        self,
        node: Node,
        kind: str,
        params: Attributes | None = None,
        *,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        name: str = "",
        macs: int = 0,
        inserted: bool = False,
        imported: bool = True,
        constants: Iterable[str] | None = None,
        absorbed: Iterable[Absorbed] = (),
        opaque: str = "",
        formula: bool = True,
        bodies: tuple[Body, ...] = (),
    ) -> Layer:
        """Adds a layer that implements ``node``, or helps to implement it if ``inserted``.

        Args:
            node: The ONNX node.
            kind: TensorRT's layer type.
            params: As in :class:`~edgekit.network.model.Layer`.
            inputs: Tensors read, possibly constants; the node's if None.
            outputs: Tensors written; the node's if None.
            name: The layer's name, made unique; the node's if empty.
            macs: Multiply-accumulates.
            inserted: True for a layer that the importer or builder adds.
            imported: True to count it among the importer's layers.
            constants: Constant inputs that it uses; those among ``inputs`` if None.
            absorbed: Layers of the importer that it contains.
            opaque: As in :class:`~edgekit.network.model.Layer`.
            formula: True if ``macs`` and the tensors determine its cost; False for any opaque
                layer.
            bodies: As in :class:`~edgekit.network.model.Layer`.
        """
        read = [i for i in (node.reads() if inputs is None else inputs) if i]
        used = [i for i in (read if constants is None else constants) if i and self.constant(i)]
        # these constants become layers of their own, so this layer does not absorb them
        if kind in _KEEPERS:
            retained = self._keep(node, used)
            absorbed = [part for part in absorbed if part.name not in retained]
        if imported and kind == "SHUFFLE":
            self.importer.reshape()
        elif imported:
            self.importer.layers()
        before, weights = self._sources(used)
        codes = sorted(frozenset[str]().union(*(self._codes.get(name, ()) for name in used)))
        if not name and node.name not in self._named:
            # the first layer of a node has the node's name, further layers are numbered
            name = node.name
            self._named.add(name)
        else:
            name = self.unique(name or node.name)
        layer = Layer(
            name=name,
            kind=kind,
            op=node.op,
            nodes=() if inserted else (*before, node.name),
            origin=(node.name,) if inserted else (*before, node.name),
            inputs=tuple(i for i in read if not self.constant(i)),
            outputs=tuple(o for o in (node.outputs if outputs is None else outputs) if o),
            params={**(params or {}), **({"weight_codes": codes[0]} if codes else {})},
            weights=weights,
            macs=macs,
            weight_elements=sum(math.prod(self.shape(w)) for w in weights),
            absorbed=tuple(absorbed),
            weight_operators=self._weight_operators(node, used),
            opaque=opaque,
            formula=formula and not opaque,
            bodies=bodies,
        )
        self.layers.append(layer)
        return layer

    def _weight_operators(self, node: Node, used: Iterable[str]) -> frozenset[str] | None:
        # the third input is a bias, which stays a float in INT8 layers
        factors = [name for name in node.inputs[:2] if name in used]
        if node.op not in _WEIGHTED_OPS or not factors:
            return None
        return frozenset[str]().union(*(self._operators.get(name, ()) for name in factors))

    def _keep(self, node: Node, used: Sequence[str]) -> set[str]:
        """Records and returns the constants that become layers, without those computed by nodes."""
        retained = {name for name in used if self._graph.constant(name)}
        for name in used:
            if name in retained:
                self.importer.constant(name)
                self.constants.setdefault(name, []).append(node)
        return retained

    def remaining_constants(self) -> tuple[Layer, ...]:
        """Returns the CONSTANT layers, in the order of their first readers."""
        return tuple(self._constant(name, readers) for name, readers in self.constants.items())

    def _constant(self, name: str, readers: Sequence[Node]) -> Layer:
        return Layer(
            name=self.unique(name),
            kind="CONSTANT",
            op=readers[0].op,
            nodes=(),
            origin=tuple(dict.fromkeys(node.name for node in readers)),
            inputs=(),
            outputs=(name,),
            params={"shape": self.shape(name)},
        )

    def fixed(self) -> dict[str, Tensor]:
        """Returns the tensors of the CONSTANT layers, by name."""
        graph = self._graph
        return {n: Tensor(n, graph.shape(n), graph.dtype(n)) for n in self.constants}

    def inner(
        self, stem: str, shape: Sequence[int], like: str, *, view: bool = False, dtype: str = ""
    ) -> str:
        """Returns a new tensor between two layers of a node; its type is ``dtype`` or that of
        ``like``.

        With ``view`` it has the values of the ONNX tensor ``like`` in another shape.
        """
        name = free_name(stem, self.tensors, self._tried_tensors)
        self.tensors[name] = Tensor(name, tuple(shape), dtype or self.tensors[like].dtype)
        if view:
            self.views[name] = like
        return name

    def reshape(
        self,
        node: Node,
        source: str,
        target: str,
        name: str,
        *,
        imported: bool = True,
        as_op: str = "Reshape",
    ) -> Layer:
        """Inserts a SHUFFLE that gives ``source`` the shape of ``target``.

        ``as_op``: the ONNX operator whose layer type the parser uses. Squeeze and Unsqueeze have
        their own types in newer releases.
        """
        return self.emit(
            node,
            kinds.kind_in_release(as_op, self.release) or "SHUFFLE",
            {"mode": "RESHAPE", "shape": self.shape(target)},
            inputs=[source],
            outputs=[target],
            name=name,
            inserted=True,
            imported=imported,
        )

    def unique(self, name: str) -> str:
        """Returns ``name``, or ``name_1``, ``name_2``, … as TensorRT's parser numbers layers with
        equal names."""
        found = free_name(name, self._names, self._tried_names)
        self._names.add(found)
        return found

    def _sources(self, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        nodes: dict[str, None] = {}
        weights: dict[str, None] = {}
        for name in names:
            if self._graph.weight(name):
                weights[name] = None
            elif name in self._derived:
                nodes.update(dict.fromkeys(self._derived[name][0]))
                weights.update(dict.fromkeys(self._derived[name][1]))
        return tuple(nodes), tuple(weights)
