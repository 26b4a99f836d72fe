"""Engines of a plan: their parts of the model, and the tensors at their borders."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from edgekit.errors import BuildError
from edgekit.placement.segments import cut_segments
from edgekit.tensorrt.requests import BuildOptions, build_request, requested_lanes
from edgekit_device.build.request import Attempt, NetworkSpec
from edgekit_device.protocol.codec import write
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of

SCALES = {"x": 0.02, "a": 0.03, "b": 0.04, "c": 0.05}


def toy():
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((8, 8, 1, 1)).astype(np.float32) for name in "uvw"}
    model = model_of(
        [node("Conv", "x u", "a"), node("Conv", "a v", "b"), node("Conv", "b w", "c")],
        weights,
        {"x": [1, 8, 6, 6]},
        ["c"],
    )
    return model, network_of(model)


def requested(lanes, tensorrt="10.3", **options):
    attempts = {kind: [Attempt((), "")] for kind in ("plan", "loadable")}
    chosen = BuildOptions(tensorrt, "weak", ("fp16", "int8"), **options)
    return build_request("toy", lanes, chosen, network=NetworkSpec((), ()), attempts=attempts)


def test_a_split_plan_has_an_engine_for_each_segment_and_they_make_the_network():
    model, network = toy()
    plan = plan_of(place_all(network, "int8", lambda i: i))  # GPU, DLA0, GPU
    (lane,) = requested_lanes(cut_segments(model, network, plan), "split", SCALES)
    assert [(e.kind, e.device) for e in lane.engines] == [
        ("plan", "GPU"),
        ("loadable", "DLA0"),
        ("plan", "GPU"),
    ]
    request = requested([lane])
    values = {"x": np.random.default_rng(1).standard_normal((1, 8, 6, 6)).astype(np.float32)}
    for engine in request.document["engines"]:
        session = ort.InferenceSession(bytes(request.blobs[engine["model"]]))
        names = [tensor["name"] for tensor in engine["outputs"]]
        assert [v.name for v in session.get_inputs()] == [t["name"] for t in engine["inputs"]]
        feeds = {tensor["name"]: values[tensor["name"]] for tensor in engine["inputs"]}
        values.update(zip(names, session.run(names, feeds), strict=True))
    whole = onnx.ModelProto()
    whole.CopyFrom(model.proto)
    for tensor in whole.graph.initializer:
        if tensor.name in model.weights:
            tensor.CopyFrom(onnx.numpy_helper.from_array(model.weights[tensor.name], tensor.name))
    (expected,) = ort.InferenceSession(whole.SerializeToString()).run(["c"], {"x": values["x"]})
    np.testing.assert_allclose(values["c"], expected, rtol=1e-6)


def test_both_sides_of_a_border_have_one_type_and_format():
    model, network = toy()
    plan = plan_of(place_all(network, "int8", lambda i: i))
    (lane,) = requested_lanes(cut_segments(model, network, plan), "split", SCALES)
    first, middle, last = lane.engines
    assert first.outputs == middle.inputs
    assert middle.outputs == last.inputs
    (border,) = middle.inputs
    assert (border.dtype, border.formats, border.scale) == ("int8", ("CHW32",), 0.03)
    # what enters and leaves the network on the GPU stays as the model has it
    assert (first.inputs[0].dtype, first.inputs[0].formats) == ("float32", ("LINEAR",))
    assert last.outputs[0].dtype == "float32"


@pytest.mark.parametrize(
    ("precision", "scales"),
    [("fp16", SCALES), ("int8", {})],
    ids=["fp16 layers", "no scale"],
)
def test_without_int8_on_both_sides_a_border_is_fp16(precision, scales):
    model, network = toy()
    mixed = place_all(network, lambda x: "int8" if x.name == "b" else precision, lambda i: i)
    (lane,) = requested_lanes(cut_segments(model, network, plan_of(mixed)), "split", scales)
    (border,) = lane.engines[1].inputs
    assert (border.dtype, border.formats, border.scale) == ("float16", ("CHW16",), None)
    # NVIDIA's table of I/O formats: FP16 in CHW16 is only for the DLA
    (given,), (taken,) = lane.engines[0].outputs, lane.engines[2].inputs
    assert given.formats == taken.formats == ("LINEAR",)
    assert given.dtype == taken.dtype == "float16"


def test_a_format_that_only_the_dla_has_is_linear_on_the_gpu():
    model, network = toy()
    plan = plan_of(place_all(network, "int8", lambda i: i))
    from dataclasses import replace

    from edgekit.dla.verdicts import MemoryNeed
    from edgekit.placement.plan import PlannedLoadable

    chosen = PlannedLoadable(0, ("b",), MemoryNeed(0, 0, 0), {"a": "DLA_LINEAR", "b": "CHW32"})
    (lane,) = requested_lanes(
        cut_segments(model, network, replace(plan, loadables=(chosen,))), "split", SCALES
    )
    first, middle, last = lane.engines
    assert first.outputs[0].formats == ("LINEAR",)
    assert middle.inputs[0].formats == ("DLA_LINEAR",)
    assert middle.outputs[0].formats == last.inputs[0].formats == ("CHW32",)


def test_a_hybrid_engine_is_the_whole_network_with_device_types():
    model, network = toy()
    plan = plan_of(place_all(network, "int8", lambda i: i))
    (lane,) = requested_lanes(cut_segments(model, network, plan), "hybrid", SCALES)
    (engine,) = lane.engines
    assert (engine.kind, engine.device) == ("plan", "DLA0")
    assert [layer.device for layer in engine.layers] == ["GPU", "DLA", "GPU"]
    document = requested([lane], pools={"DLA_MANAGED_SRAM": 4096}).document["engines"][0]
    assert document["gpu_fallback"]
    assert document["pools"] == {"DLA_MANAGED_SRAM": 4096}


def test_a_frame_on_two_cores_is_no_hybrid_engine():
    model, network = toy()
    cores = ("GPU", "DLA0", "DLA1")
    plan = plan_of(place_all(network, "int8", lambda i: i, lambda n: cores[n]))
    with pytest.raises(BuildError) as caught:
        requested_lanes(cut_segments(model, network, plan), "hybrid", SCALES)
    assert caught.value.code == "build.cores"
    (lane,) = requested_lanes(cut_segments(model, network, plan), "split", SCALES)
    assert [engine.device for engine in lane.engines] == list(cores)


def test_a_strongly_typed_loadable_has_no_fp32_border():
    model, network = toy()
    plan = plan_of(place_all(network, "fp16", lambda i: i))
    with pytest.raises(BuildError) as caught:
        requested_lanes(cut_segments(model, network, plan), "split", None)
    assert (caught.value.code, caught.value.where) == ("build.border", "b")


def test_a_request_names_its_blobs_and_is_the_same_each_time():
    model, network = toy()
    plan = plan_of(place_all(network, "int8", lambda i: i))
    one = requested(
        requested_lanes(cut_segments(model, network, plan), "split", SCALES),
        calibration="TRT-1-E\n",
    )
    two = requested(
        requested_lanes(cut_segments(model, network, plan), "split", SCALES),
        calibration="TRT-1-E\n",
    )
    assert one.digest == two.digest
    named = {e["model"] for e in one.document["engines"]}
    named |= {e["calibration"] for e in one.document["engines"]}
    assert named == set(one.blobs)
    other = requested(
        requested_lanes(cut_segments(model, network, plan), "split", SCALES),
        calibration="TRT-2-E\n",
    )
    assert other.digest != one.digest


@pytest.mark.parametrize(
    ("tensorrt", "dtype"), [("8.5.2", "int32"), ("8.6", "int32"), ("10.3", "int64")]
)
def test_indices_have_a_type_that_the_release_has(tensorrt, dtype):
    model = model_of([node("ArgMax", "x", "i", axis=1)], {}, {"x": [1, 8, 6, 6]}, ["i"])
    network = network_of(model)
    plan = plan_of(place_all(network, "fp16", lambda i: 0))
    for mode in ("hybrid", "split"):
        (engine,) = requested(
            requested_lanes(cut_segments(model, network, plan), mode, {}), tensorrt
        ).document["engines"]
        assert [x["dtype"] for x in engine["inputs"] + engine["outputs"]] == ["float32", dtype]


def test_a_board_reads_the_request():
    from edgekit_device.build.request import read_request

    model, network = toy()
    plan = plan_of(place_all(network, "int8", lambda i: i))
    lanes = requested_lanes(cut_segments(model, network, plan), "split", SCALES)
    request = requested(lanes, calibration="TRT-1-E\n")
    document = {
        **request.document,
        "network": {
            "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 8, 6, 6]}],
            "outputs": [{"name": "c", "dtype": "float32", "shape": [1, 8, 6, 6]}],
        },
    }
    read = read_request(document)
    assert [engine.key for engine in read.engines] == [e.key for e in lanes[0].engines]


def test_a_request_that_tries_fewer_attempts_is_the_same_build_otherwise():
    model, network = toy()
    plan = plan_of(place_all(network, "int8", lambda i: i))
    first, second = Attempt((), ""), Attempt(("REFIT",), "stripping")
    lanes = requested_lanes(cut_segments(model, network, plan), "split", SCALES)
    options = BuildOptions("10.3", "weak", ("fp16", "int8"))
    requests = {"plan": [first, second], "loadable": [first]}
    whole = build_request(
        "toy",
        lanes,
        options,
        network=NetworkSpec((), ()),
        attempts=requests,
    )
    left = whole.with_attempts({"plan": [second], "loadable": [first]})
    plans = [one for one in left.document["engines"] if one["kind"] == "plan"]
    assert [one["attempts"] for one in plans] == [[write(second)], [write(second)]]
    assert left.blobs == whole.blobs
    assert left.digest != whole.digest
    assert whole.with_attempts(requests).digest == whole.digest
