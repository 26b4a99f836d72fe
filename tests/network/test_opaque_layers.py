"""Operators that ONNX does not know, and shapes that the data decide: one GPU layer each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.errors import EdgekitError
from edgekit.network.loading.load import load
from edgekit.network.loading.opaque import before_opaque
from edgekit.network.session import session
from edgekit.placement.segments import cut_segments

ORIN = "jetson-agx-orin-64gb"
RANDOM = np.random.default_rng(0)
STEM = [
    helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c"], ["r"], name="relu"),
]
TAIL = [
    helper.make_node("Conv", ["d", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
    helper.make_node("Relu", ["c2"], ["y"], name="relu2"),
]
BOXES = [
    helper.make_node("Reshape", ["r", "flat"], ["f"], name="flatten"),
    helper.make_node("Transpose", ["f"], ["t"], name="turn", perm=[0, 2, 1]),
    helper.make_node("Slice", ["t", "zero", "four", "two"], ["boxes"], name="take_boxes"),
    helper.make_node("Slice", ["t", "four", "all", "two"], ["scores"], name="take_scores"),
    helper.make_node("Transpose", ["scores"], ["s"], name="turn_scores", perm=[0, 2, 1]),
]
WEIGHTS: dict[str, Any] = {
    "w": RANDOM.standard_normal((16, 3, 3, 3)).astype(np.float32),
    "w2": RANDOM.standard_normal((16, 16, 3, 3)).astype(np.float32),
    "flat": np.int64([1, 16, -1]),
    "zero": np.int64([0]),
    "four": np.int64([4]),
    "all": np.int64([16]),
    "two": np.int64([2]),
    "one": np.int64([1]),
    "most": np.int64([10]),
    "iou": np.float32([0.5]),
    "least": np.float32([0.2]),
}


def plugin(op: str, domain: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["r"], ["d"], name="own", domain=domain, **attributes)


def saved(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    outputs: Mapping[str, Sequence[int | str] | None],
    types: Mapping[str, int] | None = None,
) -> Path:
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 32, 32))],
        [
            helper.make_tensor_value_info(n, (types or {}).get(n, TensorProto.FLOAT), s)
            for n, s in outputs.items()
        ],
        [numpy_helper.from_array(v, n) for n, v in WEIGHTS.items() if n in read],
    )
    domains = {node.domain for node in nodes if node.domain}
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def detector(path: Path, domain: str = "TRT") -> Path:
    """Boxes and scores into the plugin that TensorRT brings."""
    end = helper.make_node(
        "EfficientNMS_TRT",
        ["boxes", "scores"],
        ["num", "kept", "best", "class"],
        name="nms",
        domain=domain,
        score_threshold=0.25,
        plugin_version="1",
    )
    sizes = {"num": (1, 1), "kept": (1, 100, 4), "best": (1, 100), "class": (1, 100)}
    whole = dict.fromkeys(("num", "class"), TensorProto.INT32)
    return saved(path, [*STEM, *BOXES[:4], end], sizes, whole)


def suppressed(path: Path) -> Path:
    """ONNX's own suppression, and a Gather of what it selects."""
    nodes = [
        helper.make_node(
            "NonMaxSuppression", ["boxes", "s", "most", "iou", "least"], ["chosen"], name="nms"
        ),
        helper.make_node("Gather", ["chosen", "two"], ["column"], name="column", axis=1),
        helper.make_node("Squeeze", ["column", "one"], ["index"], name="index"),
        helper.make_node("Gather", ["boxes", "index"], ["y"], name="kept", axis=1),
    ]
    return saved(path, [*STEM, *BOXES, *nodes], {"y": None})


def rows(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in document["layers"]}


def test_the_parser_ignores_the_domain_of_an_operator_that_it_imports(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", [*STEM, plugin("Relu", "acme"), *TAIL], {"y": None})
    document = edgekit.check(path, target=ORIN).to_json()
    assert (rows(document)["own"]["kind"], document["unknown_cost"]) == ("ACTIVATION", [])


@pytest.mark.parametrize(
    ("op", "domain"),
    [
        ("DCNv2", "mmdeploy"),
        ("FusedThing", "com.microsoft"),
        ("RPROI_TRT", ""),
        ("DCNv2", ""),
        ("GroupNormalizationPlugin", ""),
    ],
)
def test_an_unknown_operator_is_one_gpu_layer(tmp_path: Path, op: str, domain: str) -> None:
    path = saved(tmp_path / "m.onnx", [*STEM, plugin(op, domain), *TAIL], {"y": None})
    document = edgekit.check(path, target=ORIN, model={"plugins": [op]}).to_json()
    layers = rows(document)
    assert [layers[n]["placed"] for n in ("conv", "relu", "own")] == ["DLA", "DLA", "GPU"]
    (reason,) = layers["own"]["dla"]["reasons"]
    assert reason["rule"] == "general.plugin"
    assert op in reason["message"]
    assert any(f"plugin {op}, version 1" in note for note in document["warnings"])
    assert document["unknown_cost"][0] == {
        "layer": "own",
        "operator": op,
        "why": "plugin",
        "plugin": {"plugin": op, "plugin_version": "1", "plugin_namespace": ""},
    }
    assert document["predicted"]["layers"]["own"] is None
    # nobody says what shape it writes: what is behind it runs on the GPU
    assert {layers[n]["opaque"] for n in ("conv2", "relu2")} == {"shapes"}


def test_given_shapes_restore_what_follows(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", [*STEM, plugin("DCNv2", "mmdeploy"), *TAIL], {"y": None})
    model = {"shapes": {"d": [1, 16, 32, 32]}, "plugins": ["DCNv2"]}
    layers = rows(edgekit.check(path, target=ORIN, model=model).to_json())
    assert [name for name, row in layers.items() if row["placed"] == "GPU"] == ["own"]
    assert layers["conv2"]["macs"] == 32 * 32 * 16 * 16 * 9
    with pytest.raises(EdgekitError) as caught:
        edgekit.check(path, target=ORIN, model={"shapes": {"r": [1, 16, 8, 8]}})
    assert caught.value.code == "model.shape_conflict"


def test_a_plugin_s_version_and_namespace_are_said(tmp_path: Path) -> None:
    node = plugin("DCNv2", "mmdeploy", plugin_version="2", plugin_namespace="mm")
    path = saved(tmp_path / "m.onnx", [*STEM, node, *TAIL], {"y": None})
    document = edgekit.check(path, target=ORIN).to_json()
    named = 'named "DCNv2", version "2", namespace "mm"'
    assert named in document["parse"]["problems"][0]["fix"]
    notes = edgekit.check(path, target=ORIN, model={"plugins": ["DCNv2"]}).warnings
    assert any("plugin DCNv2, version 2 of 'mm'" in note for note in notes)


def test_onnx_runtime_s_own_operators_have_shapes(tmp_path: Path) -> None:
    node = helper.make_node(
        "FusedConv",
        ["x", "w"],
        ["d"],
        name="own",
        domain="com.microsoft",
        activation="Relu",
        pads=[1, 1, 1, 1],
    )
    path = saved(tmp_path / "m.onnx", [node, *TAIL], {"y": None})
    document = edgekit.check(path, target=ORIN, model={"plugins": ["FusedConv"]}).to_json()
    layers = rows(document)
    assert [layers[n]["placed"] for n in ("own", "conv2", "relu2")] == ["GPU", "DLA", "DLA"]


@pytest.mark.whole
@pytest.mark.parametrize("domain", ["TRT", ""])
def test_a_detector_up_to_its_plugin_is_planned_and_calibrated(tmp_path: Path, domain: str) -> None:
    path = detector(tmp_path / "m.onnx", domain)
    layers = rows(edgekit.check(path, target=ORIN).to_json())
    assert layers["conv"]["placed"] == "DLA"
    assert layers["nms"]["output_bytes"] > 0
    plan = edgekit.plan(path, target=ORIN, placement={"pin": [{"layers": "conv", "device": "DLA"}]})
    devices = {layer.name: layer.device for layer in plan.layers}
    assert devices["conv"] == "DLA0"
    assert devices["nms"] == "GPU"
    assert plan.unknown_cost == ("nms",)
    assert any("unknown cost" in note for note in plan.notes)
    assert plan.to_json()["unknown_cost"] == ["nms"]
    scales = edgekit.calibrate(path, target=ORIN, calibration={"count": 2}).to_json()
    assert {"x", "c", "r", "boxes", "scores"} <= scales["scales"].keys()
    assert "kept" not in scales["scales"]
    assert any("measured up to boxes, scores" in note for note in scales["notes"])


def test_data_dependent_shapes_are_gpu_layers(tmp_path: Path) -> None:
    path = suppressed(tmp_path / "m.onnx")
    document = edgekit.check(path, target=ORIN).to_json()
    layers = rows(document)
    assert {n for n, row in layers.items() if "opaque" in row} == {"nms", "column", "index", "kept"}
    assert layers["nms"]["kind"] == "NMS"
    (reason,) = layers["nms"]["dla"]["reasons"]
    assert reason["rule"] == "general.dynamic_shapes"
    # fixed inputs do not fix what the data decide
    assert "GPU" in reason["fix"]
    assert "--outputs" in reason["fix"]
    assert "fixed sizes" not in reason["fix"]
    assert layers["conv"]["placed"] == "DLA"
    assert any("shape of 'chosen'" in note for note in document["warnings"])
    given = edgekit.check(path, target=ORIN, model={"shapes": {"chosen": [10, 3]}}).to_json()
    # how many boxes it compares the data decide all the same
    assert [row["layer"] for row in given["unknown_cost"]] == ["nms"]
    plan = edgekit.plan(path, target=ORIN)
    assert set(plan.unknown_cost) == {"nms", "column", "index", "kept"}


def test_rewrites_carry_opaque_nodes_over(tmp_path: Path) -> None:
    path, out = detector(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    document = edgekit.rewrite(path, save=out, target=ORIN).to_json()
    assert document["rewrites"]
    assert not any("report it" in note for note in document["notes"])
    before, after = (
        next(n for n in onnx.load(p).graph.node if n.name == "nms") for p in (path, out)
    )
    assert after == before
    assert {o.domain for o in onnx.load(out).opset_import} == {"", "TRT"}
    # up to the plugin both give the same
    feed = {"x": RANDOM.standard_normal((1, 3, 32, 32)).astype(np.float32)}
    results = [session(before_opaque(load(p))).run(["boxes", "scores"], feed) for p in (path, out)]
    for old, new in zip(*results, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-5)


def test_misspelt_operators_are_still_mistakes(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", [*STEM, plugin("Rellu"), *TAIL], {"y": None})
    with pytest.raises(EdgekitError) as caught:
        edgekit.check(path, target=ORIN)
    assert caught.value.code == "model.operator"
    assert "Relu" in caught.value.hint


def test_a_build_here_says_what_the_board_must_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = detector(tmp_path / "m.onnx")
    with pytest.raises(EdgekitError) as caught:
        edgekit.build(path, target=ORIN)
    assert caught.value.code == "build.opaque"
    assert "plugin EfficientNMS_TRT, version 1" in caught.value.message
    assert "--outputs boxes --outputs scores" in caught.value.hint
    assert [step["name"] for step in caught.value.extra["steps"]] == ["check"]


def test_no_bundle_has_outputs_without_a_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = suppressed(tmp_path / "m.onnx")
    board = {"boards": [{"name": "lab", "host": "192.0.2.1", "host_key": "SHA256:" + "A" * 43}]}
    with pytest.raises(EdgekitError) as caught:
        edgekit.build(path, target=ORIN, deploy=board)
    assert caught.value.code == "model.shape_unknown"
    assert "--outputs boxes" in caught.value.hint


def test_accuracy_is_that_of_what_comes_before(tmp_path: Path) -> None:
    """What a build on a board is compared by: its own engines run nowhere else."""
    from edgekit.network.lowering.layers import layers
    from edgekit.network.synthetic import synthetic_inputs
    from edgekit.quantize.calibration.calibrate import calibrate
    from edgekit.reference.accuracy import accuracy
    from edgekit.reference.build import build_reference

    path = detector(tmp_path / "m.onnx")
    pins = [{"layers": "conv", "device": "DLA"}]
    plan = edgekit.plan(path, target=ORIN, placement={"pin": pins}, rewrite={"enable": "none"})
    model = load(path)
    scales = calibrate(model, layers(model), synthetic_inputs(model, 2))
    built = build_reference(cut_segments(model, layers(model), plan), scales)
    assert built.outputs == ("boxes", "scores")
    found = accuracy(model, built, synthetic_inputs(model, 2))
    assert {part.device for part in found.per_segment} == {"DLA0", "GPU"}
    assert 0.98 < found.cosine < 1


@pytest.mark.whole
def test_sensitivity_is_of_what_comes_before(tmp_path: Path) -> None:
    path = detector(tmp_path / "m.onnx")
    document = edgekit.sensitivity(path, target=ORIN, calibration={"count": 2})
    named = {name for row in document.kernels for name in row.layers}
    assert "conv" in named
    assert "nms" not in named


def test_a_run_reports_the_plugin_before_it_uses_a_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgekit.config.loader import open_config
    from edgekit.pipeline.pipeline import Pipeline
    from edgekit.pipeline.progress import SilentProgress

    class RecordedProgress(SilentProgress):
        def __init__(self) -> None:
            self.said: list[str] = []

        def begin(self, number: int, total: int, name: str) -> None:
            self.said.append(name)

        def note(self, text: str) -> None:
            self.said.append(text)

    monkeypatch.chdir(tmp_path)
    board = {"name": "lab", "host": "127.0.0.1", "port": 1, "host_key": "SHA256:" + "A" * 43}
    config = open_config(
        detector(tmp_path / "m.onnx"),
        target=ORIN,
        deploy={"boards": [board]},
        calibration={"count": 1},
    )
    progress = RecordedProgress()
    with Pipeline(config, progress=progress) as pipeline, pytest.raises(EdgekitError) as caught:
        pipeline.build()
    assert caught.value.code == "board.unreachable"
    plugin_note = next(
        i for i, text in enumerate(progress.said) if "plugin EfficientNMS_TRT" in text
    )
    assert progress.said.index("check") < plugin_note
