"""Prediction against builder: names, placement, slots, pools, reasons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.buildlog.comparison import LogComparison, compare
from edgekit.buildlog.parser import parse_log
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network
from tests.buildlog.logs import lines, text
from tests.buildlog.nets import classifier, judged, ladder
from tests.network.onnx_making import make, node, values

VERBOSE = "trt103_trtexec_verbose.log"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return classifier(Path(tmp_path_factory.mktemp("classifier")))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return ladder(Path(tmp_path_factory.mktemp("ladder")), 4)


def _by_name(found: LogComparison, name: str):
    return next(layer for layer in found.layers if layer.layer == name)


def test_a_verbose_log_agrees(net: Network) -> None:
    found = compare(net, judged(net), parse_log(lines(VERBOSE)))
    assert found.counts == {"agree": 5, "disagree": 0, "slots": 0, "unseen": 0}
    assert found.warnings == ()
    assert [(row.same, row.builder.layers) for row in found.loadables] == [(True, 2), (True, 1)]
    pool = _by_name(found, "/pool/GlobalAveragePool")
    assert (pool.predicted, pool.builder, pool.reasons) == ("GPU", "GPU", "same")
    assert "reduce.function" in pool.builder_rules
    assert {row.name: row.into for row in found.absorbed} == {
        "/flat/Flatten": "/head/Gemm",
        "head.weight": "/head/Gemm",
    }
    assert found.only_builder == ()
    document = found.to_json()
    assert json.loads(json.dumps(document)) == document
    assert document["schema"] == "edgekit.compare-log/1"


@pytest.mark.parametrize(
    ("mebibytes", "verdict"), [(4, "right"), (2, "one power above"), (1, "above"), (8, "below")]
)
def test_pools(net: Network, mebibytes: int, verdict: str) -> None:
    # the smallest global pool that is predicted is 4 MiB, as in real builds
    said = text(VERBOSE).replace("Global DRAM = 4 MiB", f"Global DRAM = {mebibytes} MiB")
    stem = compare(net, judged(net), parse_log(said.splitlines())).loadables[0]
    assert [pool.verdict for pool in stem.pools] == ["right", "right", verdict]


def test_disagreement_both_ways(net: Network) -> None:
    said = (
        text(VERBOSE)
        .replace("[DlaLayer] /stem/Relu", "[GpuLayer] ACTIVATION: /stem/Relu")
        .replace(".../stem/Relu", "")
        .replace("Layer(ACTIVATION): /stem/Relu,", "Layer(REDUCE): /pool/GlobalAveragePool,")
        .replace("[GpuLayer] REDUCE: /pool/GlobalAveragePool", "[DlaLayer] /pool/GlobalAveragePool")
    )
    found = compare(net, judged(net), parse_log(said.splitlines()))
    wrong = {layer.layer: (layer.predicted, layer.builder) for layer in found.disagreements}
    assert wrong == {
        "/stem/Relu": ("DLA", "GPU"),
        "/pool/GlobalAveragePool": ("GPU", "DLA"),
    }
    row = found.loadables[0]
    assert (row.same, row.only_predicted, row.only_builder) == (
        False,
        ("/stem/Relu",),
        ("/pool/GlobalAveragePool",),
    )


@pytest.mark.parametrize("dla_core", [None, False])
def test_an_empty_list_of_the_dla_makes_the_other_the_placement(net: Network, dla_core) -> None:
    said = [
        "[TRT] [I] ---------- Layers Running on DLA ----------",
        "[TRT] [I] ---------- Layers Running on GPU ----------",
        "[TRT] [I] [GpuLayer] CONVOLUTION: /stem/Conv + /stem/Relu",
        "[TRT] [I] [GpuLayer] REDUCE: /pool/GlobalAveragePool",
    ]
    header = [] if dla_core is None else ["[I] DLACore: "]
    found = compare(net, judged(net), parse_log([*header, *said]))
    where = {layer.layer: layer.builder for layer in found.layers}
    wrong = [layer.layer for layer in found.disagreements]
    if dla_core is None:
        assert found.evidence == "placement"
        assert any("maybe the build did not use" in warning for warning in found.warnings)
        assert wrong == ["/stem/Conv", "/stem/Relu"]
        assert where["/pool/GlobalAveragePool"] == "GPU"
    else:  # a build that did not ask for one proves nothing
        assert (found.evidence, wrong, set(where.values())) == ("none", [], {None})
    # without the heading the log does not say that there is nothing to list
    assert compare(net, judged(net), parse_log(said[1:])).evidence == "none"


def test_a_refusal_alone_is_a_disagreement(net: Network) -> None:
    said = [
        "[W] [TRT] /stem/Relu: Activation type: HARD_SIGMOID is not supported on DLA",
        "[W] [TRT] Layer '/stem/Relu' (ACTIVATION): Unsupported on DLA. Switching ...",
    ]
    found = compare(net, judged(net), parse_log(said))
    relu = _by_name(found, "/stem/Relu")
    assert (relu.status, relu.builder_rules) == ("disagree", ("activation.function",))
    # the log names every refused node, so the average ran past the builder's checks
    assert _by_name(found, "/pool/GlobalAveragePool").status == "disagree"
    assert _by_name(found, "/stem/Conv").builder == "capable"
    assert _by_name(found, "reshape_after_/head/Gemm").status == "unseen"
    assert any("--verbose" in warning for warning in found.warnings)


def test_names_of_8_map_to_ours(tmp_path: Path) -> None:
    net = classifier(tmp_path, names="old")
    found = compare(net, judged(net, tensorrt="8.4.1"), parse_log(lines("trt84_trtexec_info.log")))
    assert found.counts["agree"] == 5
    assert [row.built for row in found.loadables] == [("Conv_0", "Relu_1"), ("Gemm_4",)]
    assert _by_name(found, "reshape_after_Gemm_4").builder == "GPU"
    # the copy at the input is the builder's own
    assert (found.only_builder, found.absorbed) == ((), ())


def test_layers_without_a_slot_are_no_disagreement(steps: Network) -> None:
    capable = [layer.name for layer in steps.layers if not layer.name.startswith("m")]
    said = [
        "[V] [TRT] ---------- Layers Running on DLA ----------",
        *(f"[V] [TRT] [DlaLayer] {name}" for name in capable),
        "[V] [TRT] ---------- Layers Running on GPU ----------",
        *(f"[V] [TRT] [GpuLayer] REDUCE: m{index}" for index in range(4)),
        "[V] [TRT] {ForeignNode[c2...extra]} successfully offloaded to DLA.",
        "[V] [TRT] {ForeignNode[c3]} successfully offloaded to DLA.",
        "[V] [TRT] Number of DLA node candidates offloaded : 2 out of 4",
    ]
    found = compare(steps, judged(steps, max_loadables=2), parse_log(said))
    # the largest is kept on both sides; of equal ones the builder took another than we
    differ = [layer for layer in found.layers if layer.status == "slots"]
    assert {layer.layer: (layer.predicted, layer.builder) for layer in differ} == {
        "c0": ("DLA", "slots"),
        "c3": ("slots", "DLA"),
    }
    assert (_by_name(found, "c1").predicted, _by_name(found, "c1").status) == ("slots", "agree")
    assert found.disagreements == ()
    assert sorted(row.same for row in found.loadables) == [False, False, True]
    none = [*said[:-3], "[V] [TRT] Number of DLA node candidates offloaded : 0 out of 4"]
    nothing = compare(steps, judged(steps), parse_log(none))
    assert nothing.counts["slots"] == 5
    assert nothing.counts["agree"] == 4


def test_a_range_leaves_out_what_the_gpu_has(steps: Network) -> None:
    said = [
        "[I] [TRT] ---------- Layers Running on DLA ----------",
        "[I] [TRT] [DlaLayer] {ForeignNode[c0...c3]}",
        "[I] [TRT] [DlaLayer] {ForeignNode[c1]}",
        "[I] [TRT] ---------- Layers Running on GPU ----------",
        *(f"[I] [TRT] [GpuLayer] m{index}" for index in range(4)),
    ]
    found = compare(steps, judged(steps), parse_log(said))
    assert {row.name: row.built for row in found.loadables if row.name} == {
        "{ForeignNode[c0...c3]}": ("c0", "c2", "extra", "c3"),
        "{ForeignNode[c1]}": ("c1",),
    }


def test_fused_names_are_all_their_layers(net: Network) -> None:
    said = [
        "[I] [TRT] ---------- Layers Running on DLA ----------",
        "[I] [TRT] [DlaLayer] {ForeignNode[/head/Gemm]}",
        "[I] [TRT] ---------- Layers Running on GPU ----------",
        "[I] [TRT] [GpuLayer] PWN(/stem/Conv + /stem/Relu, (Unnamed Layer* 3) [Shuffle])",
    ]
    found = compare(net, judged(net), parse_log(said))
    assert [_by_name(found, name).builder for name in ("/stem/Conv", "/stem/Relu")] == ["GPU"] * 2


def test_unnamed_nodes_go_by_their_output(net: Network) -> None:
    tensor = net.layer("/stem/Conv").outputs[0]
    said = [f"[W] [TRT] Layer 'node_of_{tensor}' (CONVOLUTION): Unsupported on DLA. Switching"]
    found = compare(net, judged(net), parse_log(said))
    assert _by_name(found, "/stem/Conv").status == "disagree"


def test_warnings_say_why_the_two_differ(net: Network) -> None:
    said = text(VERBOSE).replace("8.7", "7.2").replace("Device Types: ", "Device Types: a:GPU")
    found = compare(
        net, judged(net, precision="fp16", tensorrt="8.6.2"), parse_log(said.splitlines())
    )
    warnings = "\n".join(found.warnings)
    for part in (
        "TensorRT 8.6.2, built with 10.3.0",
        "in fp16, built in int8",
        "Orin, 7.2",
        "a:GPU",
    ):
        assert part in warnings
    assert compare(net, judged(net, tensorrt="10.3.0.30"), parse_log(lines(VERBOSE))).warnings == ()
    gpu = [
        "[I] DLACore: ",
        "[I] [TRT] ---------- Layers Running on DLA ----------",
        "[I] [TRT] [GpuLayer] /stem/Conv + /stem/Relu",
    ]
    found = compare(net, judged(net), parse_log(gpu))
    assert found.counts["unseen"] == len(net.layers)
    assert any("did not use a DLA" in warning for warning in found.warnings)
    with_dla = compare(net, judged(net), parse_log(["[I] DLACore: 0", *gpu[1:]]))
    assert [layer.layer for layer in with_dla.disagreements] == ["/stem/Conv", "/stem/Relu"]


def test_the_log_of_another_model(net: Network) -> None:
    found = compare(net, judged(net), parse_log(lines("trt85_python.log")))
    assert {row.name for row in found.only_builder} >= {"/neck/Slice_1", "/neck/Tile"}
    foreign = [line for line in lines("trt85_python.log") if "/stem" not in line]
    refused = [line for line in foreign if "Layers Running" not in line and "[GpuL" not in line]
    found = compare(net, judged(net), parse_log(refused))
    assert found.counts["agree"] == 0
    assert any("the log is of another network: none of" in warning for warning in found.warnings)
    assert (found.absorbed, found.loadables) == ((), ())
    # a name that the importer gives in every network does not make it ours
    common = "[W] [TRT] Layer 'ONNXTRT_Broadcast' (SHUFFLE): Unsupported on DLA. Switching ..."
    found = compare(net, judged(net), parse_log([*refused, common]))
    assert "ONNXTRT_Broadcast" in {row.name for row in found.only_builder}
    assert found.counts["unseen"] == len(net.layers)


def test_a_constant_that_stays_is_a_layer_of_both() -> None:
    nodes = [node("Relu", "x", "r", name="relu"), node("Max", "r k", "y", name="largest")]
    proto = make(nodes, {"x": [1, 4, 3, 3]}, ["y"], {"k": values([1, 4, 3, 3])})
    net = layers(canonical(proto, None))
    said = [
        "[W] [TRT] Layer 'k' (CONSTANT): Unsupported on DLA. Switching this layer's device type",
        "[V] [TRT] ---------- Layers Running on DLA ----------",
        "[V] [TRT] [DlaLayer] {ForeignNode[relu...largest]}",
        "[V] [TRT] ---------- Layers Running on GPU ----------",
        "[V] [TRT] [GpuLayer] CONSTANT: k",
    ]
    found = compare(net, judged(net), parse_log(said))
    assert found.counts == {"agree": 3, "disagree": 0, "slots": 0, "unseen": 0}
    assert (_by_name(found, "k").reasons, found.absorbed) == ("same", ())


def test_a_profile_with_a_range_leaves_everything_to_the_gpu(net: Network) -> None:
    said = (
        "[W] [TRT] DLA requests all profiles have same min, max, and opt value. "
        "All dla layers are falling back to GPU"
    )
    found = compare(net, judged(net), parse_log([said]))
    assert {layer.builder for layer in found.layers} == {"GPU"}
    assert _by_name(found, "/stem/Conv").builder_rules == ("general.dynamic_shapes",)
    assert any("falling back" in warning for warning in found.warnings)
    # a build for the GPU alone prints it as well
    assert parse_log(["[I] DLACore: ", said]).evidence == "none"
