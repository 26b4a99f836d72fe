"""The plugin example: its NumPy reference, its kernels and C++ plugin on a CPU, its LeNet."""

from __future__ import annotations

import ctypes
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import edgekit
from benchmarks import plugin_kernel
from benchmarks.plugin_kernel import PLUGIN, ROOT, Case, custom_pool
from edgekit.cli.main import app
from edgekit.errors import EdgekitError, UsageError
from edgekit.pipeline.steps.build import Build

pool = custom_pool.pool
CONFIG = PLUGIN / "lenet.yaml"
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
Call = Callable[[Case, np.ndarray], np.ndarray]


def by_onnxruntime(x: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """What ONNX Runtime's own pooling gives."""
    plain = {"kernel_shape": attributes["kernel"], "strides": attributes["stride"]}
    plain["pads"] = [*attributes["padding"], *attributes["padding"]]
    kind = "MaxPool"
    if attributes["mode"] == "average":
        kind, plain["count_include_pad"] = "AveragePool", attributes["count_include_pad"]
    graph = helper.make_graph(
        [helper.make_node(kind, ["x"], ["y"], **plain)],
        "pool",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def test_the_reference_is_onnx_runtimes_pooling() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 11)).astype(np.float32)
    compared = 0
    for kernel, stride, padding, (mode, counted) in itertools.product(
        ((1, 1), (2, 2), (3, 2), (5, 4)),
        ((1, 1), (2, 1), (3, 3)),
        ((0, 0), (1, 0), (2, 1)),
        (("max", 1), ("average", 0), ("average", 1)),
    ):
        if padding[0] < kernel[0] and padding[1] < kernel[1]:
            given = {"kernel": kernel, "stride": stride, "padding": padding}
            given |= {"mode": mode, "count_include_pad": counted}
            found = pool(x, **given)
            np.testing.assert_allclose(found, by_onnxruntime(x, given), rtol=1e-6, atol=1e-6)
            assert found.dtype == np.float32
            compared += 1
    assert compared == 81


@pytest.mark.parametrize(
    ("codes", "scales", "wanted"),
    [
        # the mean is 2.5, 3.5, -2.5: half to even
        ([2, 3], (1.0, 1.0), 2),
        ([3, 4], (1.0, 1.0), 4),
        ([-2, -3], (1.0, 1.0), -2),
        # 50 * 0.5 / 0.1 is beyond the type's ends
        ([50, 50], (0.5, 0.1), 127),
        ([-50, -50], (0.5, 0.1), -128),
        # rounded once, after the scales: 2.5 * 3 is 7.5
        ([2, 3], (3.0, 1.0), 8),
    ],
)
def test_an_int8_mean_is_rounded_half_to_even_and_saturated(
    codes: list[int], scales: tuple[float, float], wanted: int
) -> None:
    x = np.array(codes, np.int8).reshape(1, 1, 1, 2)
    found = pool(x, kernel=(1, 2), mode="average", input_scale=scales[0], output_scale=scales[1])
    assert (found.dtype, found.item()) == (np.int8, wanted)


def test_padding_counts_as_zeros_or_not_at_all() -> None:
    x = np.full((1, 1, 2, 2), -8, np.int8)
    given: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": (1, 1)}
    given |= {"input_scale": 1.0, "output_scale": 1.0}
    # each window has one value and three of padding
    assert (pool(x, mode="average", count_include_pad=1, **given) == -2).all()
    assert (pool(x, mode="average", count_include_pad=0, **given) == -8).all()
    assert (pool(x, mode="max", **given) == -8).all()


def test_float16_is_summed_in_float32() -> None:
    x = np.full((1, 1, 4, 4), 60000, np.float16)
    found = pool(x, kernel=(4, 4), mode="average")
    assert (found.dtype, found.item()) == (np.float16, x[0, 0, 0, 0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kernel": (2, 2), "padding": (2, 0)}, "the padding must be less than the kernel"),
        ({"kernel": (5, 5)}, "a window must fit"),
        ({"kernel": (2, 2), "mode": "median"}, "'median' is neither"),
        ({"kernel": (2, 2)}, "INT8 needs 'input_scale'"),
    ],
)
def test_what_the_reference_refuses(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pool(np.zeros((1, 1, 4, 4), np.int8), **given)


def test_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match="float32, float16, int8, not float64"):
        pool(np.zeros((1, 1, 4, 4)), kernel=(2, 2))


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_plugin_compiles_against_the_stub(compiler: str) -> None:
    if compiler not in COMPILERS:
        pytest.skip(f"{compiler} is not installed")
    stub = PLUGIN / "stub"
    subprocess.run(
        [
            compiler,
            "-std=c++17",
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
            stub,
            "-I",
            stub / "cuda",
            PLUGIN / "custom_pool_plugin.cpp",
        ],
        check=True,
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Kernels and C++ plugin, for the CPU."""
    if not COMPILERS:
        pytest.skip("no C++ compiler is installed")
    path = tmp_path_factory.mktemp("plugin") / "plugin.so"
    folders = (
        PLUGIN,
        PLUGIN / "stub",
        PLUGIN / "stub" / "cuda",
        ROOT / "benchmarks",
        ROOT / "tests" / "edgekit_device" / "cuda" / "kernel_emulation",
    )
    subprocess.run(
        [
            COMPILERS[0],
            "-std=c++17",
            "-O1",
            "-ffp-contract=off",
            "-w",
            "-fPIC",
            "-shared",
            *(word for folder in folders for word in ("-I", folder)),
            "-o",
            path,
            Path(__file__).with_name("plugin_on_cpu.cpp"),
        ],
        check=True,
    )
    return ctypes.CDLL(str(path))


@pytest.fixture
def called(library: ctypes.CDLL) -> Call:
    def call(case: Case, x: np.ndarray) -> np.ndarray:
        found = np.full(case.out, 77, x.dtype)
        plugin_kernel.call_library(library, case, x.ctypes.data, found.ctypes.data)
        return found

    return call


@pytest.mark.slow
def test_kernels_and_plugin_give_the_references_bits(called: Call) -> None:
    rows = plugin_kernel.compare(called)
    assert {dtype: (row.calls, row.different, row.first) for dtype, row in rows.items()} == {
        "float32": (288, 0, []),
        "float16": (288, 0, []),
        "int8": (1152, 0, []),
    }


@pytest.mark.parametrize(
    ("changed", "step"),
    [
        ({"mode": "median"}, 1),
        ({"padding": (2, 0)}, 1),
        ({"stride": (0, 1)}, 1),
        # no scale, neither from TensorRT nor as a field
        ({"output_scale": 0.0}, 9),
    ],
)
def test_what_the_plugin_refuses(
    library: ctypes.CDLL, changed: dict[str, Any], step: int, capfd: pytest.CaptureFixture[str]
) -> None:
    given = {"kernel": (2, 2), "stride": (1, 1), "padding": (0, 0), "mode": "max"}
    given |= {"count_include_pad": 1, "input_scale": 0.1, "output_scale": 0.1}
    x = np.zeros((1, 1, 3, 3), np.int8)
    case = SimpleNamespace(
        dtype="int8", shape=x.shape, out=(1, 1, 2, 2), attributes=given | changed
    )
    with pytest.raises(RuntimeError, match=f"step {step} "):
        plugin_kernel.call_library(library, case, x.ctypes.data, x.ctypes.data)
    assert "CustomPool: " in capfd.readouterr().err


class CustomPool(OpRun):
    """The operator for ONNX's reference evaluator."""

    op_domain = "edgekit.examples"

    def _run(self, x: np.ndarray, **attributes: Any) -> tuple[np.ndarray]:
        names = ("kernel", "stride", "padding", "mode", "count_include_pad")
        return (pool(x, **{name: attributes[name] for name in names}),)


def test_lenet_reads_ten_digits() -> None:
    model = onnx.load(PLUGIN / "lenet.onnx")
    (node,) = (one for one in model.graph.node if one.domain)
    assert (node.domain, node.op_type) == (CustomPool.op_domain, CustomPool.__name__)
    evaluator = ReferenceEvaluator(model, new_ops=[CustomPool])
    shown = np.load(PLUGIN / "digits.npz")
    found = [evaluator.run(None, {"x": image[None]})[0].argmax() for image in shown["x"]]
    assert found == list(shown["labels"]) == list(range(10))


def test_run_reads_ten_digits_on_any_machine(tmp_path: Path) -> None:
    found = edgekit.run(CONFIG, out=tmp_path)
    assert isinstance(found, Build)
    assert "10 of 10 labels of digits.npz right as built, 10 in FP32" in found.notes
    assert "cannot contain custom_pool:pool" in found.notes[-1]
    assert found.accuracy.cosine > 0.999
    # the plugin on the GPU, in INT8; what is before and after it on the DLA
    placed = {one.name: (one.device, one.precision) for one in edgekit.plan(CONFIG).layers}
    assert placed["p1"] == ("GPU", "int8")
    assert placed["r1"] == placed["c2"] == ("DLA0", "int8")
    assert [one.device for one in found.segments] == ["DLA0", "GPU", "DLA0", "GPU"]


def test_its_function_is_in_no_bundle() -> None:
    with pytest.raises(EdgekitError) as caught:
        edgekit.bundle(CONFIG)
    assert caught.value.code == "bundle.plugin"
    assert "custom_pool:pool, which computes node 'p1'" in caught.value.message


def test_run_prints_the_build_where_it_ends_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["run", str(CONFIG), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "edgekit.build/1"
    assert app(["run", str(CONFIG), "-q"]) == 0
    assert "4 segments, backend reference" in capsys.readouterr().out
    with pytest.raises(UsageError, match="--markdown needs a report"):
        app(["run", str(CONFIG), "-q", "--markdown", "-"])


def test_without_wheels_nvidias_builder_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import check_plugin

    def nothing(folder: Path) -> None:
        raise check_plugin.Unavailable("no matching distribution")

    monkeypatch.setattr(check_plugin, "fetch", nothing)
    monkeypatch.setattr("sys.argv", ["check_plugin.py"])
    assert check_plugin.main() == 0
    assert (
        capsys.readouterr().out == "check_plugin: not run, no wheels (no matching distribution)\n"
    )


class _Sizes(list):
    """Stands in for tensorrt.plugin.ShapeExprs: the sizes are numbers."""

    def numel(self) -> int:
        return int(np.prod(self))


class _Desc:
    def __init__(self, shape: Sequence[int], dtype: str = "", scale: float = 0.0) -> None:
        self.shape_expr, self.dtype, self.scale = _Sizes(shape), dtype, scale

    def like(self) -> _Desc:
        return _Desc(self.shape_expr, self.dtype)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[..., Any]]:
    """What custom_pool.py registers with a stand-in for tensorrt.plugin, by decorator."""
    found: dict[str, Callable[..., Any]] = {}

    def decorator(name: str) -> Callable[..., Any]:
        def named(plugin: str) -> Callable[..., Any]:
            assert plugin == "edgekit::CustomPool"
            return lambda function: found.setdefault(name, function)

        return named

    plugin = ModuleType("tensorrt.plugin")
    for name in ("register", "autotune", "aot_impl"):
        setattr(plugin, name, decorator(name))
    plugin.TensorDesc = _Desc
    plugin.AutoTuneCombination = lambda *words: words
    plugin.KernelLaunchParams = SimpleNamespace
    plugin.SymInt32, plugin.SymExprs = int, list
    plugin.SymIntExprs = SimpleNamespace(from_tuple=list)
    plugin.cdiv = lambda first, second: -(-first // second)
    trt = ModuleType("tensorrt")
    trt.float32, trt.float16, trt.int8, trt.plugin = "float", "half", "int8", plugin
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    monkeypatch.setitem(sys.modules, "tensorrt.plugin", plugin)
    monkeypatch.delitem(sys.modules, "custom_pool")
    fresh = __import__("custom_pool")
    monkeypatch.setattr(fresh, "compile_ptx", lambda: b"ptx")
    return found


@pytest.mark.parametrize("as_fields", [False, True])
def test_the_python_plugin_launches_the_kernel_as_the_benchmark_does(
    registered: dict[str, Callable[..., Any]], as_fields: bool
) -> None:
    fields = (np.array([3, 2], np.int32), np.array([2, 1], np.int32), np.array([1, 0], np.int32))
    given = dict(zip(("kernel", "stride", "padding"), fields, strict=True))
    scales = (0.5, 0.25)
    named = given | {"mode": "average", "count_include_pad": 0}
    case = Case(
        "int8", (2, 3, 9, 11), named | {"input_scale": scales[0], "output_scale": scales[1]}
    )
    x = _Desc(case.shape, "int8", 0.0 if as_fields else scales[0])
    last = scales if as_fields else (0.0, 0.0)
    y = registered["register"](x, *fields, "average", 0, *last)
    assert tuple(y.shape_expr) == case.out
    y.scale = 0.0 if as_fields else scales[1]
    name, ptx, launch, extra = registered["aot_impl"](x, *fields, "average", 0, *last, (y,), 0)
    assert (name, ptx) == ("pool_int8", b"ptx")
    assert (launch.grid_x, launch.block_x) == (2, custom_pool.THREADS)
    assert tuple(extra) == custom_pool.launch_numbers(
        case.dtype, case.shape, case.out, **case.attributes
    )
    assert registered["autotune"](x, (y,)) == [("FP32|FP16|INT8, FP32|FP16|INT8", "LINEAR")]
