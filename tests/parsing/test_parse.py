"""A network that the parser of the board's TensorRT refuses: no placement, no time, no build."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.cli.main import main
from edgekit.errors import GateError

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"
FLOAT = TensorProto.FLOAT


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def save(tmp_path):
    """Writes a model of these nodes behind a convolution; returns its path."""

    def saved(*nodes, opset=17, constants=None, domains=(), name="net.onnx"):
        weights = {"w": np.ones((4, 4, 3, 3), np.float32), **(constants or {})}
        proto = helper.make_model(
            helper.make_graph(
                [helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4), *nodes],
                "g",
                [helper.make_tensor_value_info("x", FLOAT, [1, 4, 8, 8])],
                [helper.make_tensor_value_info("y", FLOAT, [1, 4, 8, 8])],
                [numpy_helper.from_array(value, key) for key, value in weights.items()],
            ),
            opset_imports=[helper.make_opsetid("", opset)]
            + [helper.make_opsetid(domain, 1) for domain in domains],
            ir_version=8,
        )
        onnx.save(proto, tmp_path / name)
        return str(tmp_path / name)

    return saved


@pytest.fixture
def normalised(save):
    """A LayerNormalization, which the parser of 8.5 does not import."""
    scale = {"s": np.ones(8, np.float32)}
    return save(helper.make_node("LayerNormalization", ["c", "s"], ["y"], "ln"), constants=scale)


@pytest.fixture
def quantised(save):
    """An activation quantised to uint8 with the zero point 128, as ONNX Runtime may write it."""
    return save(
        helper.make_node("QuantizeLinear", ["c", "scale", "zero"], ["q"], "quant"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], "dequant"),
        constants={"scale": np.float32(0.1), "zero": np.uint8(128)},
    )


def command(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return end.value.code, capsys.readouterr()


def test_check_refuses_with_the_node_and_places_nothing(normalised):
    document = edgekit.check(normalised, target=XAVIER).to_json()

    parse = document["parse"]
    assert (parse["ok"], parse["release"]) == (False, "8.5.2")
    (problem,) = parse["problems"]
    assert (problem["node"], problem["operator"]) == ("ln", "LayerNormalization")
    assert "opset 16" in problem["fix"]
    assert {layer["placed"] for layer in document["layers"]} == {None}
    assert document["predicted"] is None
    assert document["loadables"] == document["candidates"] == 0
    assert document["summary"]["dla_layers"] == document["summary"]["gpu_layers"] == 0


def test_a_release_that_has_the_importer_places_it(normalised):
    document = edgekit.check(normalised, target=XAVIER, tensorrt="8.6.2").to_json()

    assert document["parse"] == {
        "ok": True,
        "release": "8.6.2",
        "problems": [],
        "model": "as given",
        "converted": False,
    }
    assert document["predicted"] is not None
    assert {layer["placed"] for layer in document["layers"]} <= {"DLA", "GPU"}


def test_the_command_prints_the_document_and_exits_with_1(normalised, capsys):
    code, said = command(capsys, "check", normalised, "-t", XAVIER, "--json")

    assert code == 1
    assert json.loads(said.out)["parse"]["problems"][0]["node"] == "ln"


def test_people_see_node_and_fix_and_no_placement(normalised, capsys, tmp_path):
    page, sarif = tmp_path / "check.md", tmp_path / "check.sarif"
    code, said = command(
        capsys, "check", normalised, "-t", XAVIER, "--markdown", page, "--sarif", sarif
    )

    assert code == 1
    assert "cannot parse" in said.out
    assert "opset 16" in said.out.replace("\n", " ").replace("      ", "")
    assert "predicted" not in said.out
    assert "LayerNormalization" in page.read_text()
    run = json.loads(sarif.read_text())["runs"][0]
    (result,) = (one for one in run["results"] if one["ruleId"] == "model.parse")
    assert (result["level"], run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"]) == (
        "error",
        "model.parse",
    )
    assert "opset 16" in result["message"]["text"]


def test_an_operator_that_no_section_names_is_told_once_with_how_to_bring_its_library(save, capsys):
    path = save(
        helper.make_node("MyOp", ["c"], ["p"], "mine", domain="acme"),
        helper.make_node("Relu", ["p"], ["y"], "relu"),
        domains=("acme",),
    )
    code, said = command(capsys, "check", path, "-t", XAVIER)

    assert code == 1
    assert "needs the plugin" not in said.out
    fix = "give its library under model.plugins (operator: acme::MyOp, library: FILE.so)"
    assert fix in " ".join(said.out.split())
    (hint,) = (line for line in said.err.splitlines() if "hint:" in line)
    assert fix in hint

    code, said = command(capsys, "check", path, "-t", XAVIER, "--plugin", "MyOp")
    assert code == 0
    assert "The board's TensorRT needs the plugin MyOp" in said.out


@pytest.mark.parametrize("step", ["plan", "build", "calibrate", "bundle", "why"])
def test_steps_that_place_or_build_refuse(normalised, step):
    arguments = ("conv",) if step == "why" else ()
    with pytest.raises(GateError) as refused:
        getattr(edgekit, step)(normalised, *arguments, target=XAVIER)

    error = refused.value
    assert (error.code, error.exit_code, error.where) == ("model.parse", 1, "ln")
    # no JetPack of a Xavier has a newer TensorRT
    assert "opset 16" in error.hint
    assert "8.6" not in error.hint


def test_run_refuses_before_anything_is_written(normalised, tmp_path, capsys):
    config = tmp_path / "net.yaml"
    config.write_text(
        f"version: 1\nname: net\ntarget: jetson-agx-xavier\nmodel: {{onnx: {normalised}}}\n"
    )
    code, said = command(capsys, "run", config, "--out", tmp_path / "out", "--json")

    document = json.loads(said.out)
    assert (code, document["error"]["code"]) == (1, "model.parse")
    assert document["parse"]["problems"][0]["node"] == "ln"
    assert [one["status"] for one in document["steps"]] == ["failed"]
    assert not (tmp_path / "out").exists()


def test_several_nodes_are_counted(save):
    path = save(
        helper.make_node("Gelu", ["c"], ["d"], "one"),
        helper.make_node("Gelu", ["d"], ["y"], "two"),
        opset=20,
    )
    with pytest.raises(GateError, match=r"1 more: 'two'"):
        edgekit.plan(path, target=ORIN, tensorrt="8.6.2")


def test_check_refuses_the_file_that_plan_converts_and_says_which_model_is_placed(
    quantised, capsys
):
    """An implicit INT8 build has no Q/DQ nodes, which the parser refuses in the file."""
    document = edgekit.check(quantised, target=ORIN).to_json()
    parse = document["parse"]

    assert (parse["ok"], parse["model"], parse["converted"]) == (False, "as given", True)
    assert parse["problems"][0]["node"] == "quant"
    assert "from-qdq" in parse["problems"][0]["fix"]
    assert document["predicted"] is not None
    assert edgekit.plan(quantised, target=ORIN).layers
    code, said = command(capsys, "check", quantised, "-t", ORIN)
    assert code == 1
    assert "what follows is of the converted model" in " ".join(said.out.split())


def test_a_q_dq_model_that_is_built_as_it_is_is_refused(quantised):
    """In FP16 nothing is translated: the board gets the Q/DQ nodes."""
    with pytest.raises(GateError) as refused:
        edgekit.plan(quantised, target=ORIN, precision="fp16")
    assert refused.value.where == "quant"


def test_a_network_of_several_is_refused_too(normalised, tmp_path):
    config = tmp_path / "two.yaml"
    config.write_text(
        "version: 1\nname: two\ntarget: jetson-agx-xavier\nmodel:\n  networks:\n"
        f"    - {{name: a, onnx: {normalised}}}\n    - {{name: b, onnx: {normalised}}}\n"
    )
    with pytest.raises(GateError) as refused:
        edgekit.plan_networks(config)
    assert refused.value.code == "model.parse"


def test_rewriting_tells_no_times_of_it_but_that_the_board_cannot_parse_it(normalised):
    document = edgekit.rewrite(normalised, target=XAVIER).to_json()

    (note,) = (one for one in document["notes"] if "cannot parse" in one)
    assert "LayerNormalization 'ln'" in note
    assert "opset 16" in note

    assert document["before"]["predicted"] is document["after"]["predicted"] is None


def test_an_operator_in_another_domain_meets_the_importer_of_its_name(save):
    path = save(
        helper.make_node("Gelu", ["c"], ["y"], "gelu", domain="com.microsoft"),
        domains=["com.microsoft"],
    )
    new, old = (
        edgekit.check(path, target=ORIN, tensorrt=one).to_json() for one in ("10.3", "8.6.2")
    )

    assert new["parse"]["ok"]
    assert new["unknown_cost"] == []
    assert [one["node"] for one in old["parse"]["problems"]] == ["gelu"]


def test_an_operator_of_no_importer_needs_a_plugin_that_the_user_names(save, capsys, tmp_path):
    path = save(
        helper.make_node("Inverse", ["c"], ["y"], "inv", domain="com.microsoft"),
        domains=["com.microsoft"],
    )
    refused, _ = command(capsys, "check", path, "-t", ORIN)
    with pytest.raises(GateError) as error:
        edgekit.plan(path, target=ORIN)
    code, said = command(capsys, "check", path, "-t", ORIN, "--plugin", "Inverse", "--json")
    document = json.loads(said.out)
    config = tmp_path / "net.yaml"
    config.write_text(
        f"version: 1\nname: net\ntarget: {ORIN}\nmodel: {{onnx: {path}, plugins: [Inverse]}}\n"
    )

    assert refused == 1
    assert error.value.code == "model.parse"
    assert "--plugin Inverse" in error.value.hint
    assert code == 0
    assert document["parse"]["ok"]
    assert [row["operator"] for row in document["unknown_cost"]] == ["Inverse"]
    assert edgekit.plan(config).layers
    assert command(capsys, "plan", path, "-t", ORIN, "--plugin", "Inverse")[0] == 0


def test_hardmax_is_native_from_10_0_on(save):
    path = save(helper.make_node("Hardmax", ["c"], ["y"], "hard"))

    assert edgekit.check(path, target=ORIN, tensorrt="10.3").to_json()["parse"]["ok"]
    assert not edgekit.check(path, target=ORIN, tensorrt="8.6.2").to_json()["parse"]["ok"]


@pytest.mark.parametrize("form", ["--json", "--quiet"])
def test_a_model_that_cannot_be_read_costs_the_others_no_answer(save, form, capsys, tmp_path):
    good = save(helper.make_node("Relu", ["c"], ["y"], "relu"), name="good.onnx")
    scale = {"s": np.ones(8, np.float32)}
    node = helper.make_node("LayerNormalization", ["c", "s"], ["y"], "ln")
    refused = save(node, constants=scale, name="refused.onnx")
    missing, config = str(tmp_path / "missing.onnx"), tmp_path / "net.yaml"
    config.write_text(f"version: 1\nname: net\ntarget: {XAVIER}\nmodel: {{onnx: {missing}}}\n")
    models = (missing, good, refused, str(config))
    code, said = command(capsys, "check", *models, "-t", XAVIER, form)

    # the exit code is that of the model that has no answer
    assert code == 2
    assert "3 of 4 models" in said.err or form == "--json"
    if form == "--json":
        document = json.loads(said.out)
        assert [one["model"] for one in document["checks"]] == [good, refused]
        places = [one["where"] for one in document["failures"]]
        assert [any(model in place for place in places) for model in models] == [
            True,
            False,
            True,
            True,
        ]
    else:
        assert f"{missing}: the file does not exist" in said.err
        assert f"{config}: " in said.err


def test_models_of_which_none_can_be_read_are_one_error(capsys, tmp_path):
    missing = str(tmp_path / "missing.onnx")
    code, said = command(capsys, "check", missing, f"{missing}2", "-t", XAVIER, "--json")

    assert code == 2
    assert json.loads(said.out)["error"]["where"] == missing


def test_a_plan_notes_a_release_that_no_jetpack_brings(save):
    path = save(helper.make_node("Relu", ["c"], ["y"], "relu"))
    notes = edgekit.plan(path, target=XAVIER, tensorrt="8.6").notes

    assert any("no JetPack" in note for note in notes)


def test_uint8_between_nodes_is_not_told_to_be_an_image(save):
    """Only an input of the network can be converted before the network."""
    path = save(
        helper.make_node("Cast", ["c"], ["small"], "down", to=TensorProto.UINT8),
        helper.make_node("Cast", ["small"], ["y"], "up", to=FLOAT),
    )
    layers = {
        layer["name"]: layer for layer in edgekit.check(path, target=ORIN).to_json()["layers"]
    }
    (reason,) = (one for one in layers["up"]["dla"]["reasons"] if one["rule"] == "general.uint8")

    assert "leave out the Cast to uint8" in reason["fix"]
    assert "image" not in reason["fix"]


def test_a_shipped_plugin_is_not_asked_of_the_board(save):
    path = save(
        helper.make_node("EfficientNMS_TRT", ["c"], ["y"], "nms", domain="TRT"), domains=["TRT"]
    )
    document = edgekit.check(path, target=ORIN).to_json()
    layers = {layer["name"]: layer for layer in document["layers"]}

    assert document["parse"]["ok"]
    assert any("TensorRT ships the plugin EfficientNMS_TRT" in one for one in document["warnings"])
    assert "one that it ships" in layers["nms"]["dla"]["reasons"][0]["message"]
