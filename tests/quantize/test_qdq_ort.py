"""Models that onnxruntime.quantization quantised, translated and emulated.

What can be compared. The scales and weights are the file's, bit for bit, and put back as Q/DQ pairs
they make the file's model again. Layer by layer, on the Q/DQ model's own tensors, the emulation's
INT8 kernels give the same codes but for values that lie between two codes: there INT32 sums and
ONNX Runtime's FP32 sums round apart. From the input to the end of a deep network such codes
multiply: what ONNX Runtime itself answers to an input that changed by a millionth is no nearer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.version_converter
import pytest

from edgekit.network.loading.load import load
from edgekit.network.lowering import layers as layers_module
from edgekit.network.model import Model
from edgekit.network.synthetic import synthetic_inputs
from edgekit.network.writing import save
from edgekit.network.zoo import builtin
from edgekit.placement.segments import cut_segments
from edgekit.quantize.qdq.to_implicit import Translated, from_qdq
from edgekit.quantize.scales import Scales
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.build import build_reference, full_engine
from edgekit.reference.run import Runner
from tests.quantize.qdq_nets import quantised_by_ort, run, scales_in, snr_db
from tests.quantize.quantize_nets import branches
from tests.reference.toy_nets import place_all, plan_of

Arrays = dict[str, np.ndarray]


def quantised(folder: Path, model: Model) -> tuple[Path, list[Arrays]]:
    """Raised to opset 13, which has scales per channel, and quantised on synthetic inputs."""
    save(model, folder / "saved.onnx")
    proto = onnx.version_converter.convert_version(onnx.load(folder / "saved.onnx"), 13)
    feeds = [dict(feed) for feed in synthetic_inputs(model, 4, 0)]
    return quantised_by_ort(folder, proto, feeds), feeds


def built_as_written(found: Translated) -> Artefacts:
    """A build that rounds where the Q/DQ nodes stood: a kernel is a segment of its own."""
    net = layers_module.layers(found.model)
    number, segments = -1, []
    for index, layer in enumerate(net.layers):
        sum_before = index > 0 and net.layers[index - 1].op == "Sum"
        number += not (layer.op == "Relu" and sum_before)
        segments.append(number)
    plan = plan_of(
        place_all(net, "int8", segment=lambda i: segments[i], device=lambda _number: "DLA0")
    )
    return build_reference(
        cut_segments(found.model, net, plan), Scales(found.scales, "qdq", "", "")
    )


def layerwise(path: Path, found: Translated, feed: Arrays) -> dict[str, tuple[float, str]]:
    """By tensor the SNR of each kernel's result on the Q/DQ model's tensors, and its operator.

    A kernel is a layer, or a sum and the activation behind it, which Q/DQ nodes do not part.
    """
    net = layers_module.layers(found.model)
    built = built_as_written(found)
    graph = onnx.load(path).graph
    given = {n.input[0]: n.output[0] for n in graph.node if n.op_type == "DequantizeLinear"}
    names = {out: out for node in graph.node for out in node.output}
    names |= {n.input[0]: given[n.output[0]] for n in graph.node if n.op_type == "QuantizeLinear"}
    wanted = {t for s in built.lanes[0][1] for t in (*s.inputs, *s.outputs)} & set(names)
    order = sorted(wanted)
    values = dict(feed)
    values |= dict(zip(order, run(path, feed, *(names[name] for name in order)), strict=True))
    snr = {}
    for segment in built.lanes[0][1]:
        if not set(segment.inputs) | set(segment.outputs) <= set(values):
            continue
        engine = onnx.load_from_string(full_engine(built, segment.engine))
        results = run(engine, {name: values[name] for name in segment.inputs})
        for name, result in zip(segment.outputs, results, strict=True):
            snr[name] = snr_db(values[name], result), net.layer(segment.layers[-1]).op
    return snr


def restored(path: Path, found: Translated) -> onnx.ModelProto:
    """The file with the translation's weights and scales in the place of its own."""
    proto = onnx.load(path)
    graph = proto.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    ends = {value.name for value in graph.output}
    dequantized = {n.input[0]: n.output[0] for n in graph.node if n.op_type == "DequantizeLinear"}
    nodes = []
    for node in graph.node:
        if node.op_type == "QuantizeLinear":
            end = dequantized[node.output[0]]
            scale = found.scales[end if end in ends else node.input[0]]
            value = np.asarray(scale, np.float32)
            constants[node.input[1]].CopyFrom(onnx.numpy_helper.from_array(value, node.input[1]))
        if node.op_type == "DequantizeLinear" and node.input[0] in constants:
            name = node.input[0].removesuffix("_quantized")
            value = np.asarray(found.model.weights[name])
            graph.initializer.append(onnx.numpy_helper.from_array(value, node.output[0]))
        else:
            nodes.append(node)
    graph.ClearField("node")
    graph.node.extend(nodes)
    return proto


def check(path: Path, model: Model, feeds: list[Arrays], least_db: float) -> None:
    found = from_qdq(load(path))
    own = scales_in(path)
    ends = {value.name for value in model.proto.graph.output}
    assert found.quantizers == len(own)
    for name, scale in own.items():
        end = name.removesuffix("_QuantizeLinear_Input")
        assert found.scales[end if end in ends else name] == scale
    assert set(found.model.weights) == set(model.weights)
    assert found.other_codes == ()
    assert np.array_equal(run(restored(path, found), feeds[0])[0], run(path, feeds[0])[0])
    snr = layerwise(path, found, feeds[0])
    # a softmax has no INT8: the emulation hands on what the Q/DQ model rounds to 1/127 once more
    layers = {name: db for name, (db, op) in snr.items() if op != "Softmax"}
    assert len(layers) > len(own) / 2
    assert min(layers.values()) > least_db
    assert sum(db == float("inf") for db in layers.values()) > len(layers) / 2


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model, list[Arrays]]:
    folder = tmp_path_factory.mktemp("ort")
    model, _ = branches()
    path, feeds = quantised(folder, model)
    return path, model, feeds


def test_scales_weights_and_layers_of_a_small_network(
    small: tuple[Path, Model, list[Arrays]],
) -> None:
    check(*small, least_db=50)


def test_a_small_network_from_end_to_end(small: tuple[Path, Model, list[Arrays]]) -> None:
    path, _, feeds = small
    found = from_qdq(load(path))
    net = layers_module.layers(found.model)
    plan = plan_of(place_all(net, "int8", device=lambda _number: "DLA0"))
    built = build_reference(
        cut_segments(found.model, net, plan), Scales(found.scales, "qdq", "", "")
    )
    engine = onnx.load_from_string(full_engine(built, built.lanes[0][1][0].engine))
    assert snr_db(run(path, feeds[0])[0], run(engine, feeds[0])[0]) > 30


@pytest.mark.whole
@pytest.mark.slow
def test_light_resnet50_by_layers_and_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ONNX Runtime's FP32 sums in the place of INT32 ones nothing rounds apart.

    What is left at the logits is the FP16 of the last pool, which the Q/DQ model has in FP32.
    """
    model = builtin("light_resnet50", 0)
    path, feeds = quantised(tmp_path, model)
    check(path, model, feeds, least_db=50)
    found = from_qdq(load(path))
    # a weight that is no INT8 codes is read as it stands: here, the codes times their scales
    monkeypatch.setattr(
        "edgekit.reference.segment_model.quantised_weight", lambda _graph, _node: None
    )
    results = Runner(built_as_written(found), optimise=False).run(feeds[0], observe=True)
    graph = onnx.load(path).graph
    read = {n.input[0]: n.output[0] for n in graph.node if n.op_type == "DequantizeLinear"}
    quantised_as = {
        n.input[0]: read[n.output[0]] for n in graph.node if n.op_type == "QuantizeLinear"
    }
    gemm = next(node for node in graph.node if node.op_type == "Gemm")
    logits = gemm.output[0]
    # the Gemm reads what the FP16 pool wrote
    rounded = [n for n in quantised_as if n in results and n not in (gemm.input[0], *feeds[0])]
    inner = rounded[: rounded.index(logits)]
    wanted = run(path, feeds[0], *(quantised_as[name] for name in inner))
    assert len(inner) > 100
    for name, value in zip(inner, wanted, strict=True):
        assert np.array_equal(value, results[name]), name
    answer = run(path, feeds[0], quantised_as[logits])[0]
    assert snr_db(answer, results[logits]) > 30
