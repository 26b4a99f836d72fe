"""What `check` and `explain` import: a heavy module there would be paid for at every start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import edgekit
from tests.pipeline.nets import small_net

HEAVY = {
    "edgekit.build",
    "edgekit.config",
    "edgekit.quantize",
    "edgekit.pipeline.pipeline",
    "edgekit.rewriting.rewrite",
    "edgekit.targets.jetpack",
    "difflib",
    "hashlib",
    "jinja2",
    "onnxruntime",
    "ortools",
    "paramiko",
    "PIL",
    "pydantic",
    "rich",
    "traceback",
}
ROOT = str(Path(edgekit.__file__).parents[1])
CODE = """
import json, os, sys
from edgekit.cli.main import main
stdout, sys.stdout = sys.stdout, open(os.devnull, "w")
try:
    main(sys.argv[1:])
except SystemExit as end:
    with open("/proc/self/status") as file:
        peak = [line.split()[1] for line in file if line.startswith("VmHWM")]
    print(json.dumps([end.code, sorted(sys.modules), int(peak[0])]), file=stdout)
"""


def after(*arguments, **variables):
    """Returns the modules that a command has imported when it is done, and its peak in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={**os.environ, **variables},
    )
    status, modules, peak = json.loads(done.stdout)
    assert status == 0, done.stderr
    return set(modules), peak / 1024


def modules_after(*arguments, **variables):
    return after(*arguments, **variables)[0]


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "small.onnx"
    small_net(path)
    return str(path)


pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc"
)


@pytest.mark.parametrize("form", ["--json", "--by-layer"])
def test_check_of_a_model_imports_nothing_heavy(form, net, tmp_path):
    arguments = ("check", net, "--target", "jetson-agx-orin-64gb", form)
    cache = str(tmp_path / "cache")
    first = modules_after(*arguments, EDGEKIT_CACHE=cache)
    assert first & HEAVY == set()
    assert "yaml" in first
    again = modules_after(*arguments, EDGEKIT_CACHE=cache)
    assert again & {*HEAVY, "yaml"} == set()


# with which the codec, pathlib and all that pathlib imports stay away
_NOT_IMPORTED_BY_HELP = {
    *HEAVY,
    "edgekit_device.protocol.codec",
    "ipaddress",
    "ntpath",
    "onnx",
    "numpy",
    "pathlib",
    "urllib.parse",
    "yaml",
}


def test_help_imports_neither_the_codec_nor_pathlib():
    assert modules_after("--help") & _NOT_IMPORTED_BY_HELP == set()


@pytest.mark.parametrize("module", ["edgekit", "edgekit.api"])
def test_to_import_edgekit_imports_neither_the_codec_nor_pathlib(module):
    code = f"import sys, {module}; print(*sys.modules)"
    # -S: an editable installation's own start may import anything
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert set(done.stdout.split()) & _NOT_IMPORTED_BY_HELP == set()


def test_explain_imports_no_onnx(tmp_path):
    assert modules_after("explain", "general.batch") & {*HEAVY, "onnx", "numpy"} == set()


def test_two_gib_of_weights_stay_in_their_file(tmp_path):
    weights = tmp_path / "net.data"
    shape = [4096, 4096, 4, 8]
    with weights.open("wb") as file:
        file.truncate(4 * 4096 * 4096 * 4 * 8)
    stub = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape)
    stub.data_location = TensorProto.EXTERNAL
    stub.external_data.add(key="location", value=weights.name)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], "conv")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4096, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4096, 5, 1])],
        [stub],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "net.onnx")
    arguments = ("check", str(tmp_path / "net.onnx"), "-t", "jetson-agx-orin-64gb", "--json")
    assert after(*arguments)[1] < 400


def test_almost_nothing_is_imported_before_interrupts_are_taken_care_of():
    code = (
        "import sys; old = set(sys.modules); import edgekit._entry; print(set(sys.modules) - old)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert "typing" not in done.stdout
    assert "edgekit._entry" in done.stdout


def test_the_configuration_schema_reads_no_knowledge_when_it_is_imported():
    code = (
        "import sys\n"
        "read = []\n"
        "sys.addaudithook(lambda name, args: name == 'open' and read.append(str(args[0])))\n"
        "import edgekit.config.schema\n"
        "print([file for file in read if file.endswith(('.yaml', '.json', '.record'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout == "[]\n"
