"""The error for open axes proposes sizes, by the file's own word or by its kind."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import edgekit
from edgekit.cli import main
from edgekit.errors import ModelError
from edgekit.network.ranges import read_shapes

ORIN = "jetson-agx-orin-64gb"
Dims = list[int | str | None]


def write(
    folder: Path,
    dims: Dims,
    outputs: dict[str, Dims],
    metadata: dict[str, str] | None = None,
    name: str = "x",
    operator: str = "Relu",
) -> Path:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node(operator, [name], [one]) for one in outputs]
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "g", [info(name, kind, dims)], [info(n, kind, d) for n, d in outputs.items()]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(proto, metadata or {})
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


PICTURE: Dims = ["batch", 3, "height", "width"]


@pytest.mark.parametrize(
    ("dims", "outputs", "metadata", "static", "ranged", "rule"),
    [
        (
            PICTURE, {"output0": ["batch", 84, "anchors"]},
            {"imgsz": "[480, 640]", "stride": "32", "task": "detect"},
            "1x3x480x640", "1x3x224..480..960x320..640..1280", "metadata (imgsz, stride 32)",
        ),
        (PICTURE, {"y": ["batch", 84, "anchors"]}, {"imgsz": "320"}, "1x3x320x320",
         "1x3x160..320..640x160..320..640", "metadata (imgsz)"),
        (PICTURE, {"y": ["batch", 84, "anchors"]}, {}, "1x3x640x640",
         "1x3x320..640..1280x320..640..1280", "a detector's usual size"),
        (PICTURE, {"boxes": ["n", 4], "scores": ["n"], "labels": ["n"]}, {"imgsz": "no"},
         "1x3x640x640", "1x3x320..640..1280x320..640..1280", "a detector's usual size"),
        (PICTURE, {"y": ["batch", 1000]}, {}, "1x3x224x224",
         "1x3x112..224..448x112..224..448", "a classifier's usual size"),
        ([None, 3, 48, None], {"softmax": [None, None, 97]}, {}, "1x3x48x320",
         "1x3x48x160..320..1280", "text recogniser takes lines of height 48 (by its output"),
        ([None, 3, None, None], {"softmax": [None, None, 6625]}, {}, "1x3x48x320",
         "1x3x48x160..320..1280", "text recogniser"),
        ([None, 3, 32, None], {"y": [None, None, 40]}, {"character": "a\nb"}, "1x3x32x320",
         "1x3x32x160..320..1280", "the file's metadata has its characters"),
        ([None, 3, None, None], {"sigmoid_0": [None, 1, None, None]}, {}, "1x3x640x640",
         "1x3x320..640..960x320..640..960", "multiples of 32"),
        (["batch", "height", "width", 3], {"y": ["batch", 1000]}, {}, "1x224x224x3",
         "1x112..224..448x112..224..448x3", "a classifier's usual size"),
        (["batch", "sequence"], {"y": ["batch", "sequence"]}, {}, "1x128", "1x1..128..512",
         "length of a sequence"),
    ],
)  # fmt: skip
def test_both_spellings_are_proposed_and_can_be_copied(
    tmp_path: Path,
    dims: Dims,
    outputs: dict[str, Dims],
    metadata: dict[str, str],
    static: str,
    ranged: str,
    rule: str,
) -> None:
    path = write(tmp_path, dims, outputs, metadata)
    with pytest.raises(ModelError) as caught:
        edgekit.check(path, target=ORIN)
    error = caught.value
    assert error.code == "model.dynamic_shape"
    assert error.options == f"--shape x:{static}, or --shape x:{ranged}"
    assert f", or a range: model.shapes: {{x: [{ranged.replace('x', ', ')}]}} (" in error.hint
    assert "--" not in error.hint
    assert rule in error.hint
    for spelling in (static, ranged):
        shapes = read_shapes([f"x:{spelling}"])
        found = edgekit.check(path, target=ORIN, model={"shapes": shapes})
        assert bool(found.buckets) == (spelling == ranged)


@pytest.mark.parametrize(
    ("operator", "height", "static", "rule"),
    [
        ("Softmax", 32, "[1, 3, 32, 320]", "a text recogniser takes lines of height 32"),
        ("Relu", 32, "[1, 3, 32, 640]", "640 is a detector's usual size"),
        ("Softmax", None, "[1, 3, 640, 640]", "640 is a detector's usual size"),
    ],
)
def test_few_classes_along_a_line_are_a_recognisers_where_a_softmax_makes_them(
    tmp_path: Path, operator: str, height: int | None, static: str, rule: str
) -> None:
    # ten digits and the blank
    dims: Dims = [None, 3, height, None]
    path = write(tmp_path, dims, {"y": [None, None, 11]}, operator=operator)
    with pytest.raises(ModelError) as caught:
        edgekit.check(path, target=ORIN)
    assert f"model.shapes: {{x: {static}}}, or a range" in caught.value.hint
    assert rule in caught.value.hint


def test_init_writes_the_proposal(tmp_path: Path) -> None:
    path = write(tmp_path, PICTURE, {"y": ["batch", 84, "anchors"]}, {"imgsz": "[320, 320]"})
    made = edgekit.init(path, ORIN, output=tmp_path / "c.yaml")
    assert "shapes: {x: [1, 3, 320, 320]}" in Path(made.path).read_text()
    assert edgekit.check(made.path).to_json()["layers"]


def test_a_shell_is_offered_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, PICTURE, {"y": ["batch", 1000]}, name="in")
    words = f"edgekit plan {path} --shape in : 1x3x"
    monkeypatch.setenv("_EDGEKIT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", "6")
    with pytest.raises(SystemExit):
        main.main([])
    offered = capsys.readouterr().out.splitlines()
    assert offered == ["plain,1x3x224x224", "plain,1x3x112..224..448x112..224..448"]


def test_several_options_of_an_input_are_its_profiles(tmp_path: Path) -> None:
    small, large = read_shapes(["x:1x3x8..16x8", "x:2x3x8x8"])["x"]
    assert small == {"min": [1, 3, 8, 8], "opt": [1, 3, 16, 8], "max": [1, 3, 16, 8]}
    assert large == {"min": [2, 3, 8, 8], "opt": [2, 3, 8, 8], "max": [2, 3, 8, 8]}
