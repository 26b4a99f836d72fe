"""Sizes that no board has, and large weights: an answer or one clear error, soon and in memory."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.config.loader import load_config
from edgekit.errors import ConfigError, ModelError
from edgekit.network.loading.load import load
from edgekit.network.writing import save

TARGET = "jetson-agx-orin-64gb"
MOST = 2**31 - 1
MIB = 1 << 20
# the kernel's own count of this process alone
PEAK = """
import sys
from edgekit.cli.main import main
try: main(sys.argv[1:])
except SystemExit as end: assert not end.code, end.code
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def write(
    folder: Path, nodes: list[onnx.NodeProto], shape: list[int], **constants: np.ndarray
) -> Path:
    """Writes a network from ``x`` to ``y``, whose shape is left to inference."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def peak(*arguments: str) -> int:
    """Returns the most memory that a command took, in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1]) // 1024


def pads(*sides: int) -> dict[str, np.ndarray]:
    return {"p": np.array(sides), "w": np.ones((4, 4, 3, 3), np.float32)}


PAD = [
    helper.make_node("Pad", ["x", "p"], ["a"], "pad"),
    helper.make_node("Conv", ["a", "w"], ["y"], "conv"),
]


def pool(op: str, kernel: list[int], around: list[int], **attrs: int) -> list[onnx.NodeProto]:
    return [helper.make_node(op, ["x"], ["y"], "pool", kernel_shape=kernel, pads=around, **attrs)]


def conv(around: int) -> list[onnx.NodeProto]:
    return [helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[around] * 4)]


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        (PAD, pads(0, 0, 50_000, 50_000, 0, 0, 50_000, 50_000)),
        (PAD, pads(0, 0, MOST, MOST, 0, 0, MOST, MOST)),
        (conv(MOST), {"w": np.ones((4, 4, 3, 3), np.float32)}),
        (pool("MaxPool", [MOST, MOST], [MOST - 8] * 4), {}),
        ([helper.make_node("Tile", ["x", "r"], ["y"], "t")], {"r": np.array([1, 1, MOST, MOST])}),
    ],
)
def test_a_tensor_that_tensorrt_cannot_have_is_one_error(
    tmp_path: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]
) -> None:
    path = write(tmp_path, nodes, [1, 4, 8, 8], **constants)
    began = time.process_time()
    with pytest.raises(ModelError) as failed:
        edgekit.check(str(path), target=TARGET)
    assert time.process_time() - began < 10
    assert failed.value.code == "model.too_large"
    assert "2,147,483,647" in (failed.value.hint or "")


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        # thousands of convolutions would pad as much; a map of windows and elements took 20 GB
        (PAD, pads(0, 0, 0, 250_000, 0, 0, 0, 0)),
        (pool("AveragePool", [20_000, 1], [19_999, 0, 19_999, 0]), {}),
        ([helper.make_node("CumSum", ["x", "a"], ["y"], "sum")], {"a": np.array(1)}),
    ],
)
def test_what_tensorrt_can_have_gets_an_answer(
    tmp_path: Path, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]
) -> None:
    wide = nodes[0].op_type == "CumSum"
    path = write(tmp_path, nodes, [1, 20_000 if wide else 4, 8, 8], **constants)
    began = time.process_time()
    found = edgekit.check(str(path), target=TARGET).to_json()
    assert time.process_time() - began < 10
    assert {row["placed"] for row in found["layers"]} == {"GPU"}


def test_a_graph_of_too_many_nodes_is_one_error(tmp_path: Path) -> None:
    count = 100_000
    names = ["x", *(f"a{index}" for index in range(1, count)), "y"]
    nodes = [
        helper.make_node("Relu", [names[index]], [names[index + 1]], f"n{index}")
        for index in range(count)
    ]
    path = write(tmp_path, nodes, [1, 4, 8, 8])
    began = time.process_time()
    with pytest.raises(ModelError) as failed:
        edgekit.check(str(path), target=TARGET)
    assert time.process_time() - began < 10
    assert failed.value.code == "model.too_large"
    assert "100,000" in failed.value.message


@pytest.mark.whole
@pytest.mark.parametrize(
    "tail",
    [
        "key{}: 1\n",
        "- [[1], [2]]\n",
        "- {{layer: l{}}}\n",
    ],
)
def test_a_configuration_of_10_mb_is_one_error(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "edgekit.yaml"
    head = "version: 1\n" + ("pin:\n" if tail.startswith("-") else "")
    lines = 10_000_000 // len(tail)
    path.write_text(head + "".join(tail.format(index) for index in range(lines)))
    began = time.process_time()
    with pytest.raises(ConfigError) as failed:
        load_config(path)
    assert time.process_time() - began < 10
    assert "too large" in failed.value.problems[0].message


@pytest.mark.few(1)
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_checking_a_recurrence_makes_no_dense_matrix(tmp_path: Path, op: str) -> None:
    steps, features, hidden = 50, 32, 128
    gates = {"LSTM": 4, "GRU": 3}[op] * hidden
    random = np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32) * np.float32(0.1)

    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], "in", perm=[1, 0, 2]),
        helper.make_node(
            op, ["t", "w", "r"], ["s"], "rnn", hidden_size=hidden, direction="bidirectional"
        ),
        helper.make_node("Transpose", ["s"], ["u"], "both", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["u", "s_"], ["v"], "join"),
        helper.make_node("Transpose", ["v"], ["o"], "out", perm=[1, 0, 2]),
        helper.make_node("MatMul", ["o", "f"], ["y"], "head"),
    ]
    path = write(
        tmp_path,
        nodes,
        [1, steps, features],
        w=weight(2, gates, features),
        r=weight(2, gates, hidden),
        f=weight(2 * hidden, 10),
        s_=np.array([0, 0, -1]),
    )
    weights = path.stat().st_size / MIB
    assert peak("check", str(path), "--target", TARGET) < 2 * weights + 300


@pytest.mark.whole
def test_rewriting_and_writing_large_weights_takes_twice_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depth, maps = 16_384, 2048
    nodes = [
        helper.make_node("Flatten", ["x"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "w", "b"], ["g"], "dense", transB=1),
        helper.make_node("Relu", ["g"], ["y"], "relu"),
    ]
    path = write(
        tmp_path,
        nodes,
        [1, depth // 64, 8, 8],
        w=np.full((maps, depth), 0.01, np.float32),
        b=np.ones(maps, np.float32),
    )
    weights = path.stat().st_size / MIB
    out = tmp_path / "out.onnx"
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    most = peak("rewrite", str(path), "--target", TARGET, "-o", str(out), "-q")
    assert most < 2 * weights + 300
    assert "Conv" in {node.op_type for node in onnx.load(out, load_external_data=False).graph.node}


def test_a_written_model_is_what_protobuf_writes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Pad", ["a", "p"], ["y"], "pad"),
    ]
    random = np.random.default_rng(0)
    w = random.standard_normal((4, 4, 16, 16)).astype(np.float32)
    model = load(write(tmp_path, nodes, [1, 4, 32, 32], w=w, p=np.array([0, 0, 1, 1] * 2)))
    out = tmp_path / "out.onnx"
    save(model, out)
    written = onnx.ModelProto.FromString(out.read_bytes())
    assert written.SerializeToString() == out.read_bytes()
    (found,) = (item for item in written.graph.initializer if item.name == "w")
    assert np.array_equal(numpy_helper.to_array(found), w)
