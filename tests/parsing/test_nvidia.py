"""The word of NVIDIA's own parser: a child process asks the module, here one that a test writes."""

import importlib.util
import json
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.cli.main import main
from edgekit.errors import BuildError, UsageError
from edgekit.parsing import nvidia
from tests.parsing.parser_module import write_module

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"
IMPORTS = (
    "return b'LayerNormalization' in model and len(model) > 500 and 'A_SECRET' not in os.environ"
)
REFUSES = "return self.refuse()"
SAID = {"release": "TensorRT for RTX 9.8.7", "ok": True, "problems": []}
PROBLEM = {
    "node": "norm",
    "operator": "LayerNormalization",
    "message": "INVALID_NODE: Assertion failed: no such thing",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def net(tmp_path):
    """A LayerNormalization, which the parser imports from 8.6 on; its weights take 576 bytes."""
    weights = {"w": np.ones((4, 4, 3, 3), np.float32), "s": np.ones(8, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("LayerNormalization", ["c", "s"], ["y"], "norm"),
    ]
    proto = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])],
            [numpy_helper.from_array(value, key) for key, value in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(proto, tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


@pytest.fixture
def config(net, tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(
        f"version: 1\nname: net\ntarget: {ORIN}\nprecision: fp16\nmodel: {{onnx: {net}}}\n"
        "parser: true\n"
    )
    return str(path)


@pytest.fixture
def parser(tmp_path, monkeypatch):
    """Installs a module in the place of NVIDIA's, whose parser does that with a file."""

    def installed(does):
        monkeypatch.syspath_prepend(write_module(tmp_path / "site", does))

    return installed


@pytest.fixture
def no_parser(monkeypatch):
    monkeypatch.setitem(sys.modules, nvidia.MODULE, None)


def command(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return end.value.code or 0, capsys.readouterr()


def test_it_reads_the_model_with_its_weights_and_nothing_of_the_environment(
    net, parser, monkeypatch
):
    monkeypatch.setenv("A_SECRET", "1")
    parser(IMPORTS)
    document = edgekit.check(net, target=ORIN, parser=True).to_json()

    assert document["parser"] == SAID
    assert document["parse"]["ok"]
    (line,) = (one for one in document["warnings"] if "NVIDIA's parser" in one)
    assert "TensorRT for RTX 9.8.7, of the 11 family" in line
    assert "disputed" not in line


def test_nobody_is_asked_without_the_option(net, no_parser):
    assert "parser" not in edgekit.check(net, target=ORIN).to_json()
    assert "parser" not in edgekit.plan(net, target=ORIN).to_json()


def test_its_no_is_disputed_and_changes_no_exit_code(net, parser, capsys, tmp_path):
    parser(REFUSES)
    page, sarif = tmp_path / "check.md", tmp_path / "check.sarif"
    files = ("--markdown", page, "--sarif", sarif)
    code, said = command(capsys, "check", net, "-t", ORIN, "--parser", *files)

    assert code == 0
    text = " ".join(said.out.split())
    assert "disputed: by edgekit's table the parser of TensorRT 10.3 imports the model" in text
    assert "(TensorRT for RTX 9.8.7, of the 11 family) refuses LayerNormalization 'norm'" in text
    assert "(1 more)" in text
    assert "no such thing" in page.read_text()
    run = json.loads(sarif.read_text())["runs"][0]
    results = [one for one in run["results"] if one["ruleId"] == "model.parser"]
    assert {one["level"] for one in results} == {"note"}
    assert run["tool"]["driver"]["rules"][results[0]["ruleIndex"]]["id"] == "model.parser"
    assert PROBLEM["message"] in results[0]["message"]["text"]


def test_its_yes_does_not_override_the_table(net, parser, capsys):
    parser(IMPORTS)
    code, said = command(capsys, "check", net, "-t", XAVIER, "--parser", "--json")
    document = json.loads(said.out)

    assert (code, document["parse"]["ok"], document["parser"]["ok"]) == (1, False, True)
    assert document["predicted"] is None
    (line,) = (one for one in document["warnings"] if "NVIDIA's parser" in one)
    assert "not the parser of TensorRT 8.5.2" in line


def test_plan_build_and_run_have_its_word(config, parser, tmp_path, capsys):
    parser(REFUSES)
    word = {"release": SAID["release"], "ok": False, "problems": [PROBLEM, PROBLEM]}
    documents = [
        edgekit.plan(config).to_json(),
        edgekit.build(config).to_json(),
        json.loads((command(capsys, "run", config, "--out", tmp_path / "out", "--json"))[1].out),
    ]

    assert [one["parser"] for one in documents] == [word] * 3
    for one in documents:
        assert [note[:9] for note in one["notes"] if "NVIDIA's parser" in note] == ["disputed:"]


def test_the_options_of_the_commands_ask_it(net, parser, capsys):
    parser(IMPORTS)
    code, said = command(capsys, "plan", net, "-t", ORIN, "--parser", "--json")

    assert (code, json.loads(said.out)["parser"]) == (0, SAID)


def test_a_plan_is_read_with_the_word(net, parser):
    from edgekit.placement.plan import plan_from_json

    parser(REFUSES)
    plan = edgekit.plan(net, target=ORIN, parser=True)

    assert plan_from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("does", "code", "words"),
    [
        ("os.abort()", "parser.failed", "crashed (SIGABRT)"),
        ("os._exit(3)", "parser.failed", "crashed (exit code 3)"),
        ("bytearray(1 << 45)", "parser.memory", "out of memory"),
        ("os.kill(os.getpid(), 9)", "parser.memory", "out of memory"),
        ("raise ImportError('libcuda.so')", "parser.failed", "ImportError: libcuda.so"),
        ("return False", None, "it gives no reason"),
    ],
)
def test_a_parser_that_ends_badly_is_one_error(does, code, words, net, parser):
    parser(does)
    if code is None:
        problems = edgekit.check(net, target=ORIN, parser=True).to_json()["parser"]["problems"]
        assert [one["message"] for one in problems] == [words]
        return
    with pytest.raises(BuildError) as failed:
        edgekit.check(net, target=ORIN, parser=True)
    assert (failed.value.code, failed.value.where) == (code, net)
    assert words in failed.value.message
    assert "--parser" in failed.value.hint


def test_a_crash_shows_no_traceback(net, parser, capsys):
    parser("os.abort()")
    code, said = command(capsys, "check", net, "-t", ORIN, "--parser")

    assert code == 4
    assert "crashed (SIGABRT)" in said.err
    assert "Traceback" not in said.err + said.out


def test_a_parser_that_never_ends_is_ended(net, parser, monkeypatch):
    monkeypatch.setattr("edgekit.timeouts.PARSER_CPU_S", 1)
    parser("while True: pass")
    with pytest.raises(BuildError, match="over 1 s of the processor") as failed:
        edgekit.check(net, target=ORIN, parser=True)
    assert failed.value.code == "parser.timeout"


@pytest.mark.parametrize("ask", [edgekit.check, edgekit.plan, edgekit.build, edgekit.run])
def test_missing_wheels_are_said_before_any_work(ask, config, no_parser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as missing:
        ask(config)
    assert (missing.value.code, missing.value.exit_code) == ("parser.missing", 2)
    assert "pip install 'edgekit[parser]'" in missing.value.hint
    assert not (tmp_path / "edgekit-out").exists()


def test_missing_wheels_are_said_of_a_file_that_is_not_read(no_parser, tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(UsageError, match="not installed"):
        edgekit.check(broken, target=ORIN, parser=True)


@pytest.mark.skipif(
    importlib.util.find_spec(nvidia.MODULE) is None, reason="edgekit[parser] is not installed"
)
def test_the_real_parser_imports_the_model(net):
    word = edgekit.check(net, target=ORIN, parser=True).to_json()["parser"]

    assert word["release"].startswith("TensorRT for RTX 1.")
    assert (word["ok"], word["problems"]) == (True, [])
