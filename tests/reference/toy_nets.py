"""Small models, layer graphs and plans made by hand, one layer per node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgekit.network.loading.load import canonical
from edgekit.network.model import Layer, Model, Network, Tensor
from edgekit.placement.plan import PlacedLayer, Plan, PredictedCost, Share

KINDS = {
    "Conv": "CONVOLUTION",
    "ConvTranspose": "DECONVOLUTION",
    "Gemm": "CONVOLUTION",
    "MatMul": "MATRIX_MULTIPLY",
    "MaxPool": "POOLING",
    "AveragePool": "POOLING",
    "GlobalAveragePool": "POOLING",
    "Concat": "CONCATENATION",
    "Relu": "ACTIVATION",
    "Add": "ELEMENTWISE",
    "Sum": "ELEMENTWISE",
    "Reshape": "SHUFFLE",
    "Flatten": "SHUFFLE",
    "Transpose": "SHUFFLE",
    "Softmax": "SOFTMAX",
    "BatchNormalization": "SCALE",
    "Dropout": "IDENTITY",
    "LRN": "LRN",
}


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """A node named after its first output; names are separated by spaces."""
    name = outputs.split(maxsplit=1)[0]
    return helper.make_node(op, inputs.split(), outputs.split(), name=name, **attributes)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, np.ndarray],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    opset: int = 13,
) -> Model:
    """A checked model, read as a file is."""
    graph = helper.make_graph(
        list(nodes),
        "toy",
        [helper.make_tensor_value_info(n, 1, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, 1, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return canonical(proto, None, source="toy")


def network_of(model: Model) -> Network:
    """One layer per node, and no more."""
    graph = model.proto.graph
    constant = {tensor.name for tensor in graph.initializer}
    tensors = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        shape = tuple(d.dim_value for d in kind.shape.dim)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)).name
        tensors[value.name] = Tensor(value.name, shape, dtype)
    layers = []
    for item in graph.node:
        layers.append(
            Layer(
                name=item.name,
                kind=KINDS.get(item.op_type, item.op_type.upper()),
                op=item.op_type,
                nodes=(item.name,),
                origin=(item.name,),
                inputs=tuple(n for n in item.input if n and n not in constant),
                outputs=tuple(n for n in item.output if n),
                weights=tuple(n for n in item.input if n in model.weights),
            )
        )
    return Network(
        name="toy",
        layers=tuple(layers),
        tensors=tensors,
        inputs=tuple(v.name for v in graph.input),
        outputs=tuple(v.name for v in graph.output),
    )


def place_all(
    network: Network,
    precision: str | Callable[[Layer], str],
    segment: Callable[[int], int] = lambda _: 0,
    device: Callable[[int], str] = lambda number: ("GPU", "DLA0")[number % 2],
) -> tuple[PlacedLayer, ...]:
    """Places layer i in segment ``segment(i)``, on the device of that segment."""
    return tuple(
        PlacedLayer(
            name=layer.name,
            nodes=layer.nodes,
            device=device(segment(index)),
            precision=precision if isinstance(precision, str) else precision(layer),
            segment=segment(index),
            predicted_us=1.0,
            predicted_uj=1.0,
        )
        for index, layer in enumerate(network.layers)
    )


def plan_of(*lanes: tuple[PlacedLayer, ...]) -> Plan:
    """A plan whose variants share the frames equally."""
    predicted = PredictedCost(1.0, 1.0, 1.0, 1.0)
    return Plan(
        target="toy",
        power_mode="MAXN",
        precision=lanes[0][0].precision,
        tensorrt="10.3",
        layers=lanes[0],
        loadables=(),
        pools={},
        transitions=0,
        predicted=predicted,
        objective="latency",
        optimal=True,
        bound=1.0,
        gap=0.0,
        plans=tuple(Share(1.0 / len(lanes), lane) for lane in lanes),
        baselines={},
        model_error="",
    )
