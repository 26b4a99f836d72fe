"""ONNX nodes as the layers that NVIDIA's importer makes of them, near enough to try a mapping.

Mostly one layer of the node's name and metadata "[ONNX Layer: name]"; around it what has neither:
constants named by their initializer and layers that the importer never names (onnx-tensorrt's
ImporterContext::registerLayer names the rest; logs show e.g. "(Unnamed Layer* 19) [Shuffle]").
"""

from dataclasses import dataclass, field
from typing import Any

_ONE = {
    "CONVOLUTION": "Conv",
    "DECONVOLUTION": "ConvTranspose",
    "ACTIVATION": "Relu Sigmoid Tanh LeakyRelu Elu Clip HardSigmoid Selu Softplus Softsign "
    "ThresholdedRelu Gelu",
    "POOLING": "MaxPool AveragePool",
    "REDUCE": "GlobalAveragePool GlobalMaxPool ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd",
    "SCALE": "BatchNormalization",
    "CONCATENATION": "Concat",
    "SHUFFLE": "Reshape Flatten Transpose Squeeze Unsqueeze DepthToSpace SpaceToDepth",
    "SOFTMAX": "Softmax",
    "SLICE": "Slice Pad Expand Tile",
    "GATHER": "Gather GatherElements GatherND",
    "RESIZE": "Resize Upsample",
    "LRN": "LRN",
    "PARAMETRIC_RELU": "PRelu",
    "IDENTITY": "Identity Dropout",
    "CAST": "Cast",
    "SHAPE": "Shape",
    "FILL": "ConstantOfShape",
    "UNARY": "Exp Log Sqrt Abs Neg Floor Ceil Erf Sin Cos Tan Reciprocal Not Round Sign",
    "SELECT": "Where",
    "TOPK": "TopK ArgMax ArgMin",
    "NORMALIZATION": "InstanceNormalization LayerNormalization GroupNormalization",
    "EINSUM": "Einsum",
    "GRID_SAMPLE": "GridSample",
    "SCATTER": "ScatterND ScatterElements",
    "NMS": "NonMaxSuppression",
    "NON_ZERO": "NonZero",
    "ELEMENTWISE": "Add Sub Mul Div Pow Max Min And Or Xor Equal Greater Less Sum",
    "MATRIX_MULTIPLY": "MatMul",
    "PLUGIN_V2": "RoiAlign",
    "QUANTIZE": "QuantizeLinear",
    "DEQUANTIZE": "DequantizeLinear",
}
KINDS = {op: kind for kind, ops in _ONE.items() for op in ops.split()}
_NEXT_TO = {"ELEMENTWISE", "MATRIX_MULTIPLY", "QUANTIZE", "DEQUANTIZE", "PARAMETRIC_RELU"}
_MORE = {"Gemm", "HardSwish", "Split", "Mish"}
SUPPORTED = frozenset(KINDS) | _MORE | {"Constant"}


@dataclass
class Made:
    """One builder layer: its type's name, name, metadata and tensors by name."""

    kind: str
    name: str
    metadata: str
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    node: str = ""


def node_name(node: Any) -> str:
    """The node's name, as the importer says it where the model gives none."""
    return str(node.name or f"node_of_{node.output[0]}")


class Importer:
    """Layers of a graph, in the importer's order.

    Args:
        graph: An ONNX GraphProto.
        plugins: Keys of the user's plugins, by their first output (`_play_plugins`).
    """

    def __init__(self, graph: Any, plugins: Any = ()) -> None:
        self.layers: list[Made] = []
        self.plugins = plugins
        self.weights = {one.name for one in graph.initializer}
        self._names: dict[str, int] = {}
        for node in graph.node:
            if node.op_type == "Constant":
                self.weights.add(node.output[0])
        for node in graph.node:
            self._node(node)

    def _unique(self, name: str) -> str:
        count = self._names.get(name, -1)
        self._names[name] = count + 1
        return name if count < 0 else f"{name}_{count}"

    def _add(self, kind: str, node: Any, inputs: list[str], outputs: list[str]) -> Made:
        name = node_name(node)
        made = Made(kind, self._unique(name), f"[ONNX Layer: {name}]", inputs, outputs, name)
        self.layers.append(made)
        return made

    def _default(self, kind: str) -> str:
        """What TensorRT calls the next layer; its tensors keep that name when it is renamed."""
        shown = {"ELEMENTWISE": "ElementWise"}.get(kind, kind.replace("_", " ").title())
        return f"(Unnamed Layer* {len(self.layers)}) [{shown}]"

    def _inside(self, kind: str) -> str:
        """The next layer's output where it is no ONNX tensor."""
        return f"{self._default(kind)}_output"

    def _unnamed(self, kind: str, inputs: list[str], outputs: list[str], node: str = "") -> Made:
        made = Made(kind, self._default(kind), "", inputs, outputs, node)
        self.layers.append(made)
        return made

    def _constant(self, name: str) -> str:
        output = self._inside("CONSTANT")
        self.layers.append(Made("CONSTANT", self._unique(name), "", [], [output]))
        return output

    def _node(self, node: Any) -> None:
        op = node.op_type
        inputs, outputs = [name for name in node.input if name], list(node.output)
        if op == "Constant":
            return
        if outputs[0] in self.plugins:
            family = self.plugins[outputs[0]].rpartition("|")[2]
            self._add(f"PLUGIN_{family}", node, inputs, outputs)
        elif op == "Gemm":
            self._gemm(node)
        elif op in ("HardSwish", "Mish"):
            middle = self._inside("ACTIVATION")
            self._add("ACTIVATION", node, inputs[:1], [middle])
            self._add("ELEMENTWISE", node, [inputs[0], middle], outputs)
        elif op == "Split":
            for output in outputs:
                self._add("SLICE", node, inputs[:1], [output])
        else:
            kind = KINDS[op]
            fed = [name for name in inputs if name not in self.weights]
            if kind in _NEXT_TO:
                fed = [
                    self._next_to(name, kind) if name in self.weights else name for name in inputs
                ]
            self._add(kind, node, fed, outputs)

    def _next_to(self, name: str, kind: str) -> str:
        constant = self._constant(name)
        if kind != "ELEMENTWISE":
            return constant
        output = self._inside("SHUFFLE")
        self._unnamed("SHUFFLE", [constant], [output])
        return output

    def _gemm(self, node: Any) -> None:
        inputs, output = list(node.input), node.output[0]
        fed = [self._constant(name) if name in self.weights else name for name in inputs[:2]]
        scales = {one.name: one.f for one in node.attribute if one.name in ("alpha", "beta")}
        steps = ["alpha"] * (scales.get("alpha", 1.0) != 1.0) + ["bias"] * (len(inputs) > 2)
        product = self._inside("MATRIX_MULTIPLY") if steps else output
        self._add("MATRIX_MULTIPLY", node, fed, [product])
        if "alpha" in steps:
            product = self._scaled("alpha", product, node, output if steps[-1] == "alpha" else "")
        if len(inputs) < 3:
            return
        bias = self._next_to(inputs[2], "ELEMENTWISE") if inputs[2] in self.weights else inputs[2]
        if scales.get("beta", 1.0) != 1.0:
            bias = self._scaled("beta", bias, node)
        self._unnamed("ELEMENTWISE", [product, bias], [output], node_name(node))

    def _scaled(self, what: str, tensor: str, node: Any, output: str = "") -> str:
        """A product with a scalar that the importer adds, unnamed."""
        constant = self._constant(f"{node_name(node)}_{what}")
        output = output or self._inside("ELEMENTWISE")
        self._unnamed("ELEMENTWISE", [constant, tensor], [output], node_name(node))
        return output
