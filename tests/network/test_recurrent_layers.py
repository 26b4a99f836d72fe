"""What recurrent layers count: multiply-accumulates and steps, and the time of steps in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.cli import main
from edgekit.dla.judge import judge
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.placement.forecast import find_fixes, make_timer
from edgekit.targets.loader import get

ORIN = "jetson-agx-orin-64gb"
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def network(
    path: Path,
    op: str,
    steps: int,
    batch: int,
    width: int,
    hidden: int,
    *,
    directions: int = 1,
    batch_first: bool = False,
) -> Path:
    """A convolution of 8 x 8 by 1 x 1 beside a recurrence."""
    gates = GATES[op] * hidden
    weights = {
        "w": np.zeros((directions, gates, width), np.float32),
        "r": np.zeros((directions, gates, hidden), np.float32),
        "k": np.ones((16, 16, 1, 1), np.float32),
    }
    order = (batch, steps) if batch_first else (steps, batch)
    attributes: dict[str, Any] = {"layout": 1} if batch_first else {}
    if directions == 2:
        attributes["direction"] = "bidirectional"
    nodes = [
        helper.make_node("Conv", ["i", "k"], ["c"], name="conv"),
        helper.make_node(
            op, ["x", "w", "r"], ["y"], name="memory", hidden_size=hidden, **attributes
        ),
    ]
    inputs = [
        helper.make_tensor_value_info("i", TensorProto.FLOAT, (1, 16, 8, 8)),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (*order, width)),
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "cy"]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def checked(path: Path, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    document = edgekit.check(path, target=ORIN, **options).to_json()
    return document, next(row for row in document["layers"] if row["name"] == "memory")


@pytest.mark.few(4)
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("batch_first", [False, True])
def test_every_step_s_products_count(
    tmp_path: Path, op: str, directions: int, batch_first: bool
) -> None:
    path = network(
        tmp_path / "m.onnx", op, 25, 3, 40, 24, directions=directions, batch_first=batch_first
    )
    document, layer = checked(path)
    assert layer["macs"] == 25 * 3 * directions * GATES[op] * 24 * (40 + 24)
    assert layer["steps"] == 25
    conv = 64 * 16 * 16
    share = document["summary"]["dla_macs_fraction"]
    if batch_first:  # the parser ignores the layout, so the network is refused
        assert not document["parse"]["ok"]
        return
    assert layer["placed"] == "GPU"
    assert share == pytest.approx(conv / (conv + layer["macs"]))


def test_fail_under_counts_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = network(tmp_path / "m.onnx", "LSTM", 50, 1, 64, 64, directions=2)
    with pytest.raises(SystemExit) as caught:
        main.main(["check", str(path), "-t", ORIN, "--fail-under", "90", "--json"])
    capsys.readouterr()
    assert caught.value.code == 1


@pytest.mark.whole
def test_steps_take_their_time_one_after_the_other(tmp_path: Path) -> None:
    def us(steps: int, batch: int, hidden: int = 64) -> float:
        path = network(tmp_path / "m.onnx", "LSTM", steps, batch, 64, hidden)
        document = checked(path)[0]
        return float(document["predicted"]["layers"]["memory"])

    # as long as the launches of as many kernels at least, in proportion to the steps
    assert us(50, 1) > 50 * 5
    assert us(200, 1) == pytest.approx(4 * us(50, 1), rel=0.05)
    # a larger batch goes in the same steps, where two halves would take twice as many
    assert us(50, 8) < 1.2 * us(50, 1)
    # weights of 50 MB are read in every step: 10 steps at the 204.8 GB/s of the board's DRAM
    assert us(10, 1, 2500) > 10 * 51e6 / 204.8e3


def test_an_einsum_counts_what_it_sums(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Einsum", ["a", "b"], ["y"], name="sum", equation="bhid,bhjd->bhij"),
        helper.make_node("Einsum", ["y", "c"], ["z"], name="dot", equation="...ij,jk"),
    ]
    sizes = {"a": (2, 4, 10, 16), "b": (2, 4, 12, 16), "c": (12, 5)}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in sizes.items()]
    graph = helper.make_graph(
        nodes, "net", inputs, [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    macs = {
        row["name"]: row["macs"] for row in edgekit.check(path, target=ORIN).to_json()["layers"]
    }
    assert macs == {"sum": 2 * 4 * 10 * 12 * 16, "dot": 2 * 4 * 10 * 12 * 5}


@pytest.mark.parametrize("op", GATES)
def test_a_plan_with_a_recurrence_is_extrapolated(tmp_path: Path, op: str) -> None:
    path = network(tmp_path / "m.onnx", op, 6, 1, 16, 16)
    made = edgekit.plan(path, target=ORIN)
    assert made.optimal
    assert any("recurrent" in why for why in made.extrapolated)
    low, high = made.bands["latency_us"]
    assert low < 0.5 * made.predicted.latency_us < 2 * made.predicted.latency_us < high


def test_on_a_dla_it_would_be_written_out_step_by_step(tmp_path: Path) -> None:
    """What bringing a recurrence to the DLA is priced at follows its steps; for 1 it took 8 us."""

    def then(steps: int, directions: int = 1) -> float:
        path = network(tmp_path / "m.onnx", "LSTM", steps, 1, 64, 64, directions=directions)
        board = get(ORIN)
        graph = layers(load(path))
        judged = judge(graph, board)
        clock = make_timer(graph, judged, board)
        (fix,) = find_fixes(graph, judged, clock)
        return float(fix.auto_us or 0.0)

    assert then(120) - then(60) == pytest.approx(then(180) - then(120), rel=0.05)
    assert then(120) - then(60) > 60 * 10
    assert then(60, directions=2) - then(60) > 60 * 10


@pytest.mark.parametrize("op", GATES)
def test_its_fix_is_by_hand_and_names_no_other_operator_s_recipe(tmp_path: Path, op: str) -> None:
    layer = checked(network(tmp_path / "m.onnx", op, 4, 1, 16, 16))[1]
    (fix,) = [r["fix"] for r in layer["dla"]["reasons"] if r["rule"] == "general.kind"]
    assert "by hand: write the steps of a short sequence out" in fix
    assert all(f"{other}.py" not in fix for other in GATES if other != op)
