"""``edgekit.compile`` of ONNX files: arrays or tensors in their order, with and without PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.errors import EdgekitError, ModelError, UsageError
from tests.compiled.conftest import TARGET, gap

Compile = Callable[..., Any]
FLOAT = TensorProto.FLOAT


def two_inputs(path: Path, seed: int = 0, *, bias: bool = True, batch: int | str = 1) -> Path:
    """Writes a network of two inputs that are read, one that is not, and two outputs."""
    values = np.random.default_rng(seed)
    weight = values.standard_normal((4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["im.age", "w", *(["b"] if bias else [])], ["c"], "conv"),
        helper.make_node("Relu", ["c"], ["features"], "relu"),
        helper.make_node("GlobalAveragePool", ["features"], ["pooled"], "pool"),
        helper.make_node("Mul", ["pooled", "scale"], ["scaled"], "mul"),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [
            helper.make_tensor_value_info("im.age", FLOAT, [batch, 3, 8, 8]),
            helper.make_tensor_value_info("unread", FLOAT, [2]),
            helper.make_tensor_value_info("scale", FLOAT, [1]),
        ],
        [
            helper.make_tensor_value_info("scaled", FLOAT, [batch, 4, 1, 1]),
            helper.make_tensor_value_info("features", FLOAT, [batch, 4, 6, 6]),
        ],
        [
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(values.standard_normal(4).astype(np.float32), "b"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def example(batch: int = 1, seed: int = 1) -> tuple[np.ndarray, ...]:
    values = np.random.default_rng(seed)
    image = values.standard_normal((batch, 3, 8, 8)).astype(np.float32)
    return image, np.zeros(2, np.float32), np.full(1, 2.0, np.float32)


def wanted(path: Path, given: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    found: list[np.ndarray] = session.run(None, dict(zip(names, given, strict=True)))
    return found


def near(found: Any, wanted: list[np.ndarray]) -> bool:
    return all(
        one.shape == other.shape and np.allclose(one, other, rtol=0.01, atol=0.01)
        for one, other in zip(found, wanted, strict=True)
    )


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without PyTorch, and an empty cache."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "torch", None)


def test_arrays_go_in_and_come_out_without_pytorch(
    without_torch: None, compiled: Compile, tmp_path: Path
) -> None:
    path, given = two_inputs(tmp_path / "two.onnx"), example()
    net = compiled(path, *given)
    found = net(*given)
    assert isinstance(found, tuple)
    assert all(isinstance(one, np.ndarray) for one in found)
    assert near(found, wanted(path, given))
    image, unread, scale = given
    assert near(net(unread, scale, **{"im.age": image}), wanted(path, given))
    about = net.report.exported
    assert (about.kind, about.torch, about.exporter, about.agreement) == ("onnx", None, None, None)
    assert [one.name for one in about.inputs] == ["im.age", "unread", "scale"]
    assert edgekit.read_document(net.report.to_json()) == net.report
    assert net.plan.layers
    assert [one.where for one in net.report.modules] == ["GPU"]
    loaded = edgekit.load(net.save(tmp_path / "net.ekb"))
    assert near(loaded(*given), net(*given))
    assert str(tmp_path).encode() not in (tmp_path / "net.ekb").read_bytes()
    net.refit(two_inputs(tmp_path / "other.onnx", 5))
    assert near(net(*given), wanted(tmp_path / "other.onnx", given))
    two_inputs(path, 7)
    again = compiled(path, *given)
    assert near(again(*given), wanted(path, given))
    two_inputs(path, 8)
    again.refit()
    assert near(again(*given), wanted(path, given))


def test_calibration_takes_arrays(without_torch: None, compiled: Compile, tmp_path: Path) -> None:
    path = two_inputs(tmp_path / "two.onnx")
    image, unread, scale = example()
    batches = [example(seed=seed) for seed in range(4)]
    batches += [{"im.age": image, "unread": unread, "scale": scale}]  # type: ignore[list-item]
    net = compiled(path, precision="int8", calibration=batches)
    assert net.plan.precision == "int8"
    found, theirs = net(image, unread, scale), wanted(path, (image, unread, scale))
    assert all(
        np.abs(one - other).max() < 0.1 * np.abs(other).max()
        for one, other in zip(found, theirs, strict=True)
    )


@pytest.mark.parametrize("sizes", [{"im.age": "4x3x8x8:float32"}, {"im.age": "4x3x8x8"}])
def test_an_open_batch_has_the_examples_size(
    without_torch: None, compiled: Compile, tmp_path: Path, sizes: dict[str, str]
) -> None:
    path, given = two_inputs(tmp_path / "two.onnx", batch="N"), example(batch=4)
    assert near(compiled(path, *given)(*given), wanted(path, given))
    assert near(compiled(path, inputs=sizes)(*given), wanted(path, given))
    assert any("batch" in note for note in compiled(path).report.notes)


def test_tensors_come_back_as_tensors(nets: ModuleType, compiled: Compile, tmp_path: Path) -> None:
    import torch

    path, given = two_inputs(tmp_path / "two.onnx"), example()
    net = compiled(path, *map(torch.from_numpy, given))
    for called in (net, edgekit.load(net.save(tmp_path / "net.ekb"))):
        for others in (map(torch.from_numpy, given[1:]), given[1:]):
            found = called(torch.from_numpy(given[0]), *others)
            assert all(isinstance(one, torch.Tensor) for one in found)
            assert near([one.numpy() for one in found], wanted(path, given))
        assert isinstance(called(*given)[0], np.ndarray)


def test_modules_of_a_file_that_names_them_are_left_out(
    nets: ModuleType, compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = nets.called_twice(), nets.image()
    path, other = tmp_path / "net.onnx", tmp_path / "other.onnx"
    edgekit.export(module, (x,), target=TARGET, save=path)
    net = compiled(path, x.numpy(), leave=["middle"])
    assert len(net.plans) > 1
    left = [one for one in net.report.modules if one.module == "middle"]
    assert {one.where for one in left} == {"ONNX Runtime"}
    assert gap(net(x), module(x)) < 0.01
    assert np.allclose(net(x.numpy()), net(x).numpy())
    loaded = edgekit.load(net.save(tmp_path / "net.ekb"))
    assert gap(loaded(x), module(x)) < 0.01
    changed = nets.called_twice()
    for parameter in changed.parameters():
        parameter.data.mul_(1.25)
    edgekit.export(changed, (x,), target=TARGET, save=other)
    net.refit(other)
    assert gap(net(x), changed(x)) < 0.01
    with pytest.raises(UsageError, match="an ONNX file was compiled"):
        net.refit(module)
    monkeypatch.setitem(sys.modules, "torch", None)
    bare = compiled(path, x.numpy(), leave=["middle"])
    assert np.allclose(bare(x.numpy()), module(x).detach().numpy(), rtol=0.01, atol=0.01)
    with pytest.raises(UsageError, match="no module matches 'midle'"):
        compiled(path, x, leave=["midle"])
    with pytest.raises(UsageError, match="does not name the modules"):
        compiled(two_inputs(tmp_path / "two.onnx"), *example(), leave=["middle"])


@pytest.mark.parametrize(
    ("args", "options", "kind", "problem"),
    [
        ((*example(), 1), {}, UsageError, "4 arguments, and the network has 3 inputs"),
        (example()[:2], {}, UsageError, "'scale' is missing"),
        (example(batch=2), {}, ModelError, "im.age"),
        ((example()[0].astype(np.float64), *example()[1:]), {}, UsageError, "float64"),
        (([1.0], *example()[1:]), {}, UsageError, "is a list, and no array or tensor"),
        ((), {"kwargs": {"x": example()[0]}}, UsageError, "there is no input 'x'"),
        ((), {"inputs": {"x": "1x3"}}, ModelError, "'x', which is not"),
        ((), {"inputs": {"im.age": "1x3x8x8:int8"}}, UsageError, "is float32, and not int8"),
        ((), {"inputs": {"im.age": "large"}}, UsageError, "'large' is not the size"),
        ((), {"exporter": "legacy"}, UsageError, "exporter is for PyTorch networks"),
    ],
)
def test_what_does_not_fit_is_refused(
    without_torch: None,
    tmp_path: Path,
    args: Any,
    options: dict[str, Any],
    kind: type[EdgekitError],
    problem: str,
) -> None:
    path = two_inputs(tmp_path / "two.onnx")
    with pytest.raises(kind, match=problem):
        edgekit.compile(path, args, target=TARGET, precision="fp16", **options)


def test_other_networks_are_refused_by_refit(
    without_torch: None, compiled: Compile, tmp_path: Path
) -> None:
    path, given = two_inputs(tmp_path / "two.onnx", bias=False), example()
    net = compiled(path, *given)
    with pytest.raises(UsageError, match="no parameter 'b'") as caught:
        net.refit(two_inputs(tmp_path / "bias.onnx"))
    assert "compile" in caught.value.hint
    renamed = onnx.load(path)
    renamed.graph.output[0].name = renamed.graph.node[-1].output[0] = "other"
    onnx.save(renamed, tmp_path / "renamed.onnx")
    with pytest.raises(UsageError, match="other, features"):
        net.refit(tmp_path / "renamed.onnx")
    assert near(net(*given), wanted(path, given))
