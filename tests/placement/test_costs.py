"""The cost model against the measurements it was fitted on, and its rules."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path
from types import ModuleType

import pytest

from edgekit import targets
from edgekit.network import Layer, Network, Tensor
from edgekit.placement._costs import CostModel, cost_data, model_error
from edgekit.placement._kernels import fuse

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def fitting() -> ModuleType:
    path = list(sys.path)
    spec = importlib.util.spec_from_file_location("fit_costs", SCRIPTS / "fit_costs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_error_on_the_anchors_is_as_written(fitting: ModuleType) -> None:
    rows = [(row, fitting.network_of(row)) for row in cost_data("anchors")["rows"]]
    sizes = [100 * abs(e) for e in fitting.errors(rows, cost_data("devices"))]
    kept = cost_data("error")
    assert kept["rows"] == len(sizes)
    assert kept["median_percent"] == round(statistics.median(sizes), 1)
    assert kept["max_percent"] == round(max(sizes), 1)
    assert statistics.median(sizes) < 20
    assert max(sizes) < 100
    assert f"{kept['median_percent']} %" in model_error()


def model(target: str = "jetson-agx-orin-64gb", mode: str = "MAXN") -> CostModel:
    board = targets.get(target)
    return CostModel(board, board.mode(mode), "int8", frozenset(), cost_data("devices"))


def gemm(rows: int) -> Network:
    shape = (rows, 256)
    layer = Layer(
        "gemm", "CONVOLUTION", "Gemm", ("gemm",), ("gemm",), ("x",), ("y",), {"out_maps": 256},
        macs=rows * 65536, weight_elements=65536,
    )  # fmt: skip
    tensors = {n: Tensor(n, shape, "float32") for n in "xy"}
    return Network("gemm", (layer,), tensors, ("x",), ("y",))


@pytest.mark.parametrize(("rows", "measured"), [(100, 672 / 2), (850, 5360 / 2)])
def test_gemm_rows_are_a_batch_on_the_dla(rows: int, measured: float) -> None:
    net = gemm(rows)
    (kernel,) = fuse(net, ["CONVOLUTION"], [], lambda _: None)
    assert model().kernel_us(net, kernel, "DLA0") == pytest.approx(measured, rel=0.2)
    assert model().kernel_us(net, kernel, "GPU") < measured / 10


def test_every_target_has_costs_in_every_mode() -> None:
    net = gemm(1)
    (kernel,) = fuse(net, ["CONVOLUTION"], [], lambda _: None)
    for name in targets.names():
        board = targets.get(name)
        for mode in board.power_modes:
            costs = model(name, mode)
            for device in ("GPU", *(f"DLA{core}" for core in range(board.dla.cores))):
                assert costs.kernel_us(net, kernel, device) > 0
                assert costs.watts(device) > 0


def test_every_constant_names_where_it_comes_from() -> None:
    devices = cost_data("devices")
    for family in ("gpu", "dla"):
        for constants in devices[family].values():
            assert constants["source"]
    assert cost_data("power")["source"]
    sources = cost_data("anchors")["sources"]
    assert all(row["source"] in sources for row in cost_data("anchors")["rows"])
