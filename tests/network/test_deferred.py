"""Large folded constants wait until somebody asks for their values, and are the same then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgekit.errors import ModelError
from edgekit.network import model as deferred
from edgekit.network.loading import folding as defer
from edgekit.network.loading.load import canonical, load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, joined_weights
from edgekit.network.session import session
from edgekit.network.writing import save
from tests.network.onnx_making import make, node, values, write

HALF = values([4, 6], 1).astype(np.float16)
FULL = values([4, 6], 2)
TWO = np.array(2, np.float32)
PICKED = np.array([3, 0, 2, 1], np.int64)
# from w ([4, 6]; h in half precision) to v, whose 2 last dimensions MatMul reads
CHAINS = {
    "Cast": [node("Cast", "h", "v", to=1)],
    "Cast-Cast": [
        node("Cast", "h", "a", to=1),
        node("Cast", "a", "b", to=10),
        node("Cast", "b", "v", to=1),
    ],
    "Mul": [node("Mul", "w two", "v")],
    "Div": [node("Div", "w two", "v")],
    "Concat": [node("Concat", "w w", "v", axis=1)],
    "Transpose": [
        node("Transpose", "w", "a", perm=[1, 0]),
        node("Cast", "a", "b", to=10),
        node("Cast", "b", "c", to=1),
        node("Transpose", "c", "v", perm=[1, 0]),
    ],
    "standardised": [
        node("ReduceMean", "w", "m", axes=[1]),
        node("Sub", "w m", "d"),
        node("Mul", "d d", "q"),
        node("ReduceMean", "q", "s", axes=[1]),
        node("Sqrt", "s", "r"),
        node("Div", "d r", "v"),
    ],
    "Reshape": [
        node("Cast", "h", "a", to=1),
        node("Reshape", "a shape", "b"),
        node("Reshape", "b back", "v"),
    ],
    "Gather": [node("Cast", "h", "a", to=1), node("Gather", "a picked", "v", axis=0)],
    "Split": [
        node("Cast", "h", "a", to=1),
        node("Split", "a", "b c", axis=1),
        node("Concat", "c b", "v", axis=1),
    ],
    "MatMul": [node("MatMul", "w square", "v")],
    "Slice": [node("Cast", "h", "a", to=1), node("Slice", "a zero four one", "v")],
    # no such list has it: what waits behind it is computed at once
    "CumSum": [node("Mul", "w two", "a"), node("CumSum", "a first", "v")],
}
CONSTANTS = {
    "h": HALF,
    "w": FULL,
    "two": TWO,
    "picked": PICKED,
    "square": values([6, 6], 3),
    "shape": np.array([2, 12], np.int64),
    "back": np.array([4, 6], np.int64),
    "zero": np.array([0], np.int64),
    "four": np.array([4], np.int64),
    "one": np.array([1], np.int64),
    "first": np.array(0, np.int64),
}


def net(chain: str) -> onnx.ModelProto:
    return make([*CHAINS[chain], node("MatMul", "x v", "y")], {"x": [3, 4]}, ["y"], CONSTANTS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that can wait does."""
    monkeypatch.setattr(defer, "_LARGEST_NOW", 0)


def waiting(model: Model) -> set[str]:
    found = deferred.entries(model.weights)
    return {name for name, value in found.items() if isinstance(value, deferred.Deferred)}


@pytest.mark.parametrize("chain", CHAINS)
def test_values_digests_and_answers_are_those_of_folding_at_once(
    chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = canonical(net(chain), None)
    monkeypatch.setattr(defer, "_LARGEST_NOW", 0)
    later = canonical(net(chain), None)
    assert waiting(at_once) == set()
    assert waiting(later) == (set() if chain == "CumSum" else {"v"})
    assert later.proto == at_once.proto
    assert later.folded == at_once.folded
    assert layers(later).layers == layers(at_once).layers
    assert later.weights["v"].tobytes() == at_once.weights["v"].tobytes()
    assert later.digest == at_once.digest
    feed = {"x": values([3, 4], 9)}
    answers = [session(model).run(None, feed)[0] for model in (at_once, later)]
    assert answers[0].tobytes() == answers[1].tobytes()


def test_saving_and_editing_keep_what_waits(impatient: None, tmp_path: Path) -> None:
    model = canonical(net("Cast-Cast"), None)
    assert waiting(model) == {"v"}
    again = canonical(model.proto, None, weights=model.weights)
    assert waiting(again) == {"v"}
    assert again.digest == model.digest
    assert waiting(Model(model.proto, joined_weights({}, model.weights, ["v"]), None, "")) == {"v"}
    save(model, tmp_path / "saved.onnx")
    assert load(tmp_path / "saved.onnx").digest == model.digest


def test_each_step_that_makes_a_weight_runs_once_and_results_are_not_stored(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = [node("Add", f"a{i} a{i}", f"a{i + 1}") for i in range(40)]
    nodes = [node("Cast", "h", "a0", to=1), *doubled, node("MatMul", "x a40", "y")]
    model = canonical(make(nodes, {"x": [3, 4]}, ["y"], CONSTANTS), None)
    runs = []
    fold = defer.fold
    monkeypatch.setattr(defer, "fold", lambda *given: runs.append(given[0]) or fold(*given))
    first = model.weights["a40"]
    assert len(runs) == 41
    assert np.array_equal(first, HALF.astype(np.float32) * np.float32(2**40))
    assert not first.flags.writeable
    assert model.weights["a40"] is first
    del first
    assert model.digest == model.digest
    assert len(runs) == 82


def test_small_values_that_shapes_depend_on_are_computed(impatient: None) -> None:
    nodes = [
        node("Cast", "float_shape", "a", to=7),
        node("Mul", "a one", "b"),
        node("Reshape", "x b", "z"),
        node("Mul", "low two", "l"),
        node("Clip", "z l", "y"),
    ]
    constants = {**CONSTANTS, "float_shape": np.array([2, -1.0]), "low": np.array(-1, np.float32)}
    model = canonical(make(nodes, {"x": [3, 4]}, ["y"], constants), None)
    assert [dim.dim_value for dim in model.proto.graph.output[0].type.tensor_type.shape.dim] == [
        2,
        6,
    ]
    assert dict(model.weights) == {}
    layer = layers(model).layers[-1]
    assert -2.0 in layer.params.values()


def test_what_the_reference_cannot_do_stays_a_node(impatient: None) -> None:
    outside = np.array([4], np.int64)
    nodes = [node("Cast", "h", "a", to=1), node("Gather", "a out", "v"), node("Add", "x v", "y")]
    model = canonical(make(nodes, {"x": [1, 6]}, ["y"], {**CONSTANTS, "out": outside}), None)
    assert [n.op_type for n in model.proto.graph.node] == ["Gather", "Add"]


def test_a_value_that_cannot_be_computed_is_named(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = canonical(net("Cast"), None)
    monkeypatch.setattr(defer, "fold", lambda *given: None)
    with pytest.raises(ModelError) as caught:
        _ = model.weights["v"]
    assert caught.value.code == "model.constant"
    assert caught.value.where == "Cast_0"


def test_many_small_ones_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Mul", "w two", f"v{i}") for i in range(4)]
    nodes += [node("MatMul", f"x v{i}", f"y{i}") for i in range(4)]
    proto = make(
        nodes, {"x": [3, 40]}, [f"y{i}" for i in range(4)], {"w": values([40, 60]), "two": TWO}
    )
    assert waiting(canonical(proto, None)) == set()
    # each reads and makes 19,204 bytes
    monkeypatch.setattr(defer, "_ALL_NOW", 30_000)
    assert waiting(canonical(proto, None)) == {"v2", "v3"}


CODE = """
import contextlib, io, json, sys
from edgekit.cli.main import main

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))

found = {}
for name in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(["check", name, "--target", "jetson-agx-orin-64gb", "--json"])
    found[name] = [peak(), len(json.loads(out.getvalue())["layers"])]
print(json.dumps(found))
"""
MIB = 1 << 20


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_check_does_not_read_large_weights_through_nodes(tmp_path: Path) -> None:
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(512 * MIB)
    half = {"Cast", "Cast-Cast"}
    for chain in ("Cast", "Cast-Cast", "Mul", "Div", "Concat", "Transpose", "standardised"):
        source, size = ("h", 2) if chain in half else ("w", 4)
        shape = [1024, 512 * MIB // size // 1024]
        stub = TensorProto(
            name=source,
            dims=shape,
            data_location=TensorProto.EXTERNAL,
            data_type=TensorProto.FLOAT16 if size == 2 else TensorProto.FLOAT,
        )
        stub.external_data.add(key="location", value="w.bin")
        proto = make(
            [*CHAINS[chain], node("MatMul", "x v", "y", name="last")],
            {"x": [1, 1024]},
            ["y"],
            {"two": TWO},
        )
        proto.graph.initializer.append(stub)
        write(proto, tmp_path, f"{chain}.onnx")
    names = sorted(path.name for path in tmp_path.glob("*.onnx"))
    done = subprocess.run(
        [sys.executable, "-c", CODE, *names],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=tmp_path,
    )
    found = json.loads(done.stdout)
    assert list(found) == names
    assert all(count >= 1 for _, count in found.values())
    assert max(kib for kib, _ in found.values()) / 1024 < 400
