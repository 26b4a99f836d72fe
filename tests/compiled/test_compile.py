"""``edgekit.compile``: called like the module, with what stays in PyTorch between the parts."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import edgekit
from edgekit.errors import DataError, UsageError
from edgekit.pipeline.progress import SilentProgress
from tests.compiled.conftest import TARGET, gap


def test_the_seeds_lenet_with_one_submodule_left_out(
    nets: ModuleType, compiled: Callable[..., Any]
) -> None:
    module, x = nets.lenet(), nets.image()
    state = {name: value.tolist() for name, value in module.state_dict().items()}
    net = compiled(module, x, leave=["classifer"])
    wanted = module(x)
    assert gap(net(x), wanted) < 0.01
    assert net(x).dtype == wanted.dtype
    rows = [(one.module, one.where) for one in net.report.modules]
    assert rows == [("feat", "GPU"), ("classifer", "PyTorch")]
    feat, left = net.report.modules
    assert (feat.clock, left.clock) == ("predicted", "cpu-measured")
    assert left.us > 0
    assert left.bytes == 4 * (16 * 6 * 6 + 10)
    assert net.plan.layers == net.plans[0].layers
    assert {name: value.tolist() for name, value in module.state_dict().items()} == state
    words = str(net.report)
    assert "this machine's CPU" in words
    assert re.search(r"classifer +PyTorch +[\d.]+ us measured on this machine's CPU", words)


def test_the_time_of_a_left_out_module_is_the_shortest_of_several_runs(
    nets: ModuleType, compiled: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the first five runs after the warm-up take a second, the others 2 us
    steps = ((0.0, 1.0 if run < 5 else 2e-6) for run in itertools.count())
    clock = itertools.accumulate(itertools.chain.from_iterable(steps))
    time = SimpleNamespace(perf_counter=lambda: next(clock))
    monkeypatch.setattr("edgekit.compiled.cut.time", time)
    net = compiled(nets.lenet(), nets.image(), leave=["classifer"])
    assert net.report.modules[-1].us == pytest.approx(2, rel=1e-3)


def test_a_module_in_the_middle_makes_several_parts(
    nets: ModuleType, compiled: Callable[..., Any]
) -> None:
    module, x = nets.called_twice(), nets.image()
    net = compiled(module, x, leave=["middle"])
    assert len(net.plans) == 3
    with pytest.raises(UsageError, match="has 3 compiled parts") as several:
        assert net.plan
    assert "net.plans" in several.value.hint
    assert repr(net) == (
        f"<CompiledNetwork calledtwice for {TARGET}: 3 compiled parts, 2 left-out calls, "
        "on this machine's CPU>"
    )
    assert str(net.report.exported).startswith(f"{net.report.exported.file}: exported from PyTorch")
    assert [one.module for one in net.report.modules if one.where == "PyTorch"] == ["middle"] * 2
    assert gap(net(x), nets.called_twice()(x)) < 0.01
    assert [part.name for part in net.report.parts] == [f"calledtwice-{k}" for k in (1, 2, 3)]


@pytest.mark.whole
def test_the_bytes_that_cross_are_those_of_the_tensors(
    nets: ModuleType, compiled: Callable[..., Any]
) -> None:
    # 1x1x32x32 -> conv1 6x30x30 -> pool 6x15x15 -> conv2 16x13x13 -> pool 16x6x6
    net = compiled(nets.lenet(), nets.image(), leave=["feat.conv2"])
    first, left, second, *rest = net.report.modules
    size = 4  # of float32
    into, out_of = 6 * 15 * 15 * size, 16 * 13 * 13 * size
    assert (left.module, left.where) == ("feat.conv2", "PyTorch")
    assert left.bytes == into + out_of
    assert (first.where, first.bytes) == ("GPU", 0)
    assert (second.where, second.bytes) == ("GPU", out_of)
    assert {one.bytes for one in rest} == {0}
    before, after = net.report.parts
    assert (before.outputs, after.inputs) == (
        list(net.report.exported.left[0].inputs),
        list(net.report.exported.left[0].outputs),
    )
    half = compiled(nets.lenet().half(), nets.image().half(), leave=["feat.conv2"])
    assert half.report.modules[1].bytes == (into + out_of) // 2


def test_arguments_and_results_are_the_modules_own(
    nets: ModuleType, compiled: Callable[..., Any]
) -> None:
    import torch

    module, batch = nets.Nested().eval(), {"image": torch.randn(1, 3, 8, 8)}
    mask = torch.rand(1, 4, 8, 8)
    net = edgekit.compile(module, (batch, 0.5), {"mask": mask}, target=TARGET, precision="fp16")
    found, wanted = net(batch, 0.5, mask=mask), module(batch, 0.5, mask=mask)
    assert list(found) == list(wanted)
    assert type(found["more"][0]) is nets.Boxes
    assert found["more"][1:] == [None, "classes"]
    assert gap(found["more"][0].where, wanted["more"][0].where) < 0.01
    assert gap(found["image"], batch["image"]) < 0.01
    with pytest.raises(UsageError, match=r"'scale' is 0\.25, and the network was"):
        net(batch, 0.25, mask=mask)
    with pytest.raises(UsageError, match="'mask' is missing"):
        net(batch, 0.5)


def test_wrong_arguments_are_named(compiled: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Any, *, scale: Any = None, mask: Any = None, flag: int = 2) -> Any:
            x = self.conv(x) * flag
            return x * scale if scale is not None else x

    x, scale = torch.randn(1, 3, 8, 8), torch.rand(1)
    net = compiled(Scaled().eval(), x, kwargs={"scale": scale})
    for same in ({}, {"flag": 2}, {"mask": None}):
        assert gap(net(x, scale=scale, **same), net(x, scale=scale)) == 0

    def problem(*args: Any, **kwargs: Any) -> str:
        with pytest.raises(UsageError) as caught:
            net(*args, **kwargs)
        assert caught.value.code == "torch.inputs"
        return f"{caught.value.message}; {caught.value.hint}"

    for given in (problem(x.numpy(), scale=scale), problem(x.numpy(), scale=scale.numpy())):
        assert given == (
            "input 'x' is a NumPy array, and PyTorch takes tensors; give a tensor: "
            "torch.from_numpy(array)"
        )
    assert "'flag' is 3, and the network was compiled with 2" in problem(x, scale=scale, flag=3)
    assert problem(x, scale=scale, bogus=1) == (
        "there is no argument 'bogus'; the arguments are x, scale, mask, flag"
    )
    assert problem(x, scale) == (
        "there are 2 positional arguments, and the module takes 1 (x); give scale by name"
    )
    assert "a data loader's labels" in problem(x, x, scale=scale)
    assert "compiled without the tensor 'mask'" in problem(x, scale=scale, mask=scale)
    assert "there is no input 'bogus'" in problem(x, scale=scale, bogus=scale)
    assert problem(x, scale=0.5) == "input 'scale' is 0.5, and no tensor; give a tensor"
    assert "input 'scale' is missing" in problem(x)
    with pytest.raises(UsageError, match="input 'x' is a NumPy array"):
        compiled(Scaled().eval(), x.numpy())


def test_other_sizes_and_types_are_refused_with_those_that_fit(
    nets: ModuleType, compiled: Callable[..., Any]
) -> None:
    x = nets.image()
    net = compiled(nets.lenet(), x)
    for given, problem in (
        (x[..., :8], "input 'x' is 1x1x32x8:float32"),
        (x.double(), "input 'x' is 1x1x32x32:float64"),
    ):
        with pytest.raises(UsageError, match=problem) as caught:
            net(given)
        assert "1x1x32x32:float32" in caught.value.hint


def test_modules_of_other_types_take_and_return_tensors_of_these(
    nets: ModuleType, compiled: Callable[..., Any]
) -> None:
    import torch

    for kind in (torch.float16, torch.bfloat16, torch.float64):
        module, x = nets.lenet().to(kind), nets.image().to(kind)
        net = compiled(module, x, leave=["classifer.fc3"])
        assert net(x).dtype == kind
        assert gap(net(x).float(), module(x).float()) < 0.05


@pytest.mark.parametrize("exporter", ["legacy", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_inputs_that_nothing_reads_and_results_that_are_constants(
    nets: ModuleType, compiled: Callable[..., Any], tmp_path: Path, exporter: str
) -> None:
    import torch

    module, args = nets.Anchored().eval(), (torch.randn(3), torch.randn(1, 3, 8, 8))
    net = compiled(module, *args, exporter=exporter)
    for called in (net, edgekit.load(net.save(tmp_path / "net.ekb"))):
        features, weight, anchors, given = called(*args)
        assert gap(features, module(*args)[0]) < 0.01
        assert gap(weight, module.stem.weight) < 0.001
        assert torch.equal(anchors, module.anchors)
        assert gap(given, args[1]) < 0.001


def batches(nets: ModuleType) -> Iterator[Any]:
    return (nets.image(seed) for seed in itertools.count())


def test_calibration_is_any_iterable_of_inputs(
    nets: ModuleType, compiled: Callable[..., Any], tmp_path: Path
) -> None:
    module, x = nets.lenet(), nets.image()
    for inputs in (
        [nets.image(seed) for seed in range(4)],
        [(nets.image(seed),) for seed in range(4)],
        ({"x": nets.image(seed)} for seed in range(4)),
        batches(nets),
    ):
        net = compiled(module, x, precision="int8", calibration=inputs, leave=["classifer.fc1"])
        assert gap(net(x), module(x)) < 0.1
        assert {part.plan.precision for part in net.report.parts} == {"int8"}
        assert not any(
            "synthetic" in note or "without calibration" in note for note in net.report.notes
        )
    with pytest.raises(DataError, match="no calibration inputs"):
        compiled(module, x, precision="int8", calibration=iter(()))
    for wrong, problem, hint in (
        ([x, x[..., :8, :8]], r"calibration input 1: input 'x' is 1x1x8x8", "x 1x1x32x32:float32"),
        ("images", "calibration is a str", 'calibration={"data": "images"}'),
        (5, "calibration is a int, and no iterable", "each like one call"),
    ):
        with pytest.raises(UsageError, match=problem) as caught:
            compiled(module, x, precision="int8", calibration=wrong)
        assert hint in caught.value.hint


def test_pins_name_modules_of_any_part(nets: ModuleType, compiled: Callable[..., Any]) -> None:
    module, x = nets.lenet(), nets.image()
    pin = {"feat.conv1": "dla0", "feat.conv2": "gpu", "classifer.fc3": "gpu"}
    net = compiled(module, x, leave=["classifer.fc1"], pin=pin)
    rows = {one.module: one for one in net.report.modules}
    assert rows["feat.conv1"].where == "DLA0"
    assert (rows["feat.conv2"].where, rows["feat.conv2"].bytes) == ("GPU", 6 * 15 * 15 * 2)
    assert rows["classifer.fc1"].where == "PyTorch"
    with pytest.raises(UsageError, match=r"'feat\.conv9' matches no") as caught:
        compiled(module, x, leave=["classifer.fc1"], pin={"feat.conv9": "gpu"})
    assert "feat.conv" in caught.value.hint
    for left, glob in (("classifer.fc1", "*.fc1"), ("classifer", "classifer.fc*")):
        with pytest.raises(UsageError, match=f"compiled layer: {left} is left out") as caught:
            compiled(module, x, leave=[left], pin={glob: "dla"})
        assert caught.value.code == "plan.pin"


def test_changed_weights_are_noticed_and_refitted(
    nets: ModuleType, compiled: Callable[..., Any]
) -> None:
    import torch

    module, x = nets.lenet(), nets.image()
    net = compiled(module, x, leave=["classifer.fc1"])
    before = net(x)
    with torch.no_grad():
        module.feat.conv1.weight.mul_(2)
    with pytest.warns(UserWarning, match="weights changed"):
        assert torch.equal(net(x), before)
    net.refit()
    assert gap(net(x), module(x)) < 0.01
    assert gap(net(x), before) > 0.05
    module.feat.conv2.weight.data.mul_(2)
    with pytest.warns(UserWarning, match="weights changed"):
        net(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(x)
    other = nets.lenet(seed=5)
    net.refit(other)
    assert gap(net(x), other(x)) < 0.01


def test_old_weights_are_saved_with_a_warning_each_time(
    nets: ModuleType, compiled: Callable[..., Any], tmp_path: Path
) -> None:
    import torch

    module, x, path = nets.lenet(), nets.image(), tmp_path / "net.ekb"
    net = compiled(module, x)
    before = net(x)
    with torch.no_grad():
        module.feat.conv1.weight.mul_(2)
    for _ in range(2):
        with pytest.warns(UserWarning, match="weights changed") as caught:
            net.save(path)
        assert caught[0].filename == __file__
    assert gap(edgekit.load(path)(x), before) < 0.01
    net.refit()
    assert gap(edgekit.load(net.save(path))(x), module(x)) < 0.01


def test_a_refit_takes_a_bias_of_zeros_which_the_exporter_drops(
    nets: ModuleType, compiled: Callable[..., Any]
) -> None:
    import torch

    module, x = nets.lenet(), nets.image()
    net = compiled(module, x)
    for bias in (module.feat.conv1.bias, module.classifer.fc3.bias):
        torch.nn.init.zeros_(bias)
    net.refit()
    assert gap(net(x), module(x)) < 0.01
    with pytest.raises(UsageError, match="another one") as caught:
        net.refit(nets.called_twice())
    assert "the compiled one has MaxPool with 1 input in module 'feat'" in str(caught.value)
    without = compiled(module, x)
    with pytest.raises(UsageError, match=r"no parameter 'feat\.conv1\.bias'") as caught:
        without.refit(nets.lenet(seed=5))
    assert "compile it again" in caught.value.hint


def test_any_source_of_the_structure_refits_what_leaves_modules_out(
    nets: ModuleType, compiled: Callable[..., Any], tmp_path: Path
) -> None:
    import torch

    module, other, x, path = nets.lenet(), nets.lenet(seed=5), nets.image(), tmp_path / "lenet.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    net = compiled(path, x, leave=["classifer.fc1"])

    def where() -> str:
        return str(next(one.where for one in net.report.modules if one.module == "classifer.fc1"))

    assert where() == "ONNX Runtime"
    net.refit(other)
    assert where() == "PyTorch"
    assert gap(net(x), other(x)) < 0.01
    third = nets.lenet(seed=6)
    net.refit(torch.export.export(third, (x,)))
    assert where() == "ONNX Runtime"
    assert gap(net(x), third(x)) < 0.01
    assert gap(edgekit.load(net.save(tmp_path / "net.ekb"))(x), third(x)) < 0.01


def test_a_refit_tells_what_differs(nets: ModuleType, compiled: Callable[..., Any]) -> None:
    from torch import nn

    module, x = nets.lenet(), nets.image()
    net = compiled(module, x, leave=["classifer.fc1"])

    def problem(source: Any) -> str:
        with pytest.raises(UsageError, match="is another one than the compiled one") as caught:
            net.refit(source)
        assert (caught.value.code, "compile it" in caught.value.hint) == ("compile.structure", True)
        return str(caught.value)

    wider, dilated = nets.lenet(), nets.lenet()
    wider.classifer.fc2, wider.classifer.fc3 = nn.Linear(120, 50), nn.Linear(50, 10)
    assert "weights 50x120:float32" in problem(wider)
    assert "weights 84x120:float32, weights 84:float32 in module 'classifer.fc2'" in problem(wider)
    dilated.feat.conv2 = nn.Conv2d(6, 16, 3, padding=1, dilation=2)
    assert "Conv with pads = [1, 1, 1, 1], dilations = [2, 2], the compiled" in problem(dilated)
    assert "modules are left out: no module matches 'classifer.fc1'" in problem(nets.called_twice())


class Steps(SilentProgress):
    """The steps of a compilation, with what became of each."""

    def __init__(self) -> None:
        self.ended: dict[str, set[str]] = {}

    def end(self, name: str, status: str, seconds: float, detail: str) -> None:
        self.ended.setdefault(name, set()).add(status)


@pytest.mark.parametrize("leave", [[], ["classifer.fc1"]])
def test_other_weights_take_the_plan_and_engines_of_their_structure(
    nets: ModuleType, compiled: Callable[..., Any], leave: list[str]
) -> None:
    x, other, first, again = nets.image(), nets.lenet(seed=5), Steps(), Steps()
    before = compiled(nets.lenet(), x, leave=leave, progress=first)
    assert "done" in first.ended["plan"] & first.ended["build"]
    net = compiled(other, x, leave=leave, progress=again)
    assert again.ended["plan"] == again.ended["build"] == {"reused"}
    assert gap(net(x), other(x)) < 0.01
    assert net.report.exported.structure == before.report.exported.structure
    note = "only the weights differ"
    assert any(note in one for one in net.report.notes)
    assert not any(note in one for one in before.report.notes)
    assert net.report.parts[0].digest != before.report.parts[0].digest
    changed, pinned = Steps(), {"feat.conv1": "gpu"}
    other.feat.conv2 = type(other.feat.conv2)(6, 16, 3, bias=False)
    third = compiled(other.eval(), x, leave=leave, progress=changed)
    assert "done" in changed.ended["plan"] & changed.ended["build"]
    assert gap(third(x), other(x)) < 0.01
    assert not any(note in one for one in third.report.notes)
    assert not any(
        note in one for one in compiled(nets.lenet(1), x, leave=leave, pin=pinned).report.notes
    )


def test_programs_and_files_leave_modules_out_as_onnx_files(
    nets: ModuleType, compiled: Callable[..., Any], tmp_path: Path
) -> None:
    import torch

    module, x = nets.lenet(), nets.image()
    program = torch.export.export(module, (x,))
    torch.export.save(program, tmp_path / "lenet.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated; the category depends on the release
        torch.jit.save(torch.jit.trace(module, x), tmp_path / "lenet.ts")
    for source in (program, tmp_path / "lenet.pt2"):
        net = edgekit.compile(source, target=TARGET, precision="fp16", out=tmp_path / "out")
        assert gap(net(x), module(x)) < 0.01
    for source in (program, tmp_path / "lenet.pt2", tmp_path / "lenet.ts"):
        net = compiled(source, x, leave=["classifer.*"])
        assert gap(net(x), module(x)) < 0.01
        rows = {one.module: (one.where, one.bytes) for one in net.report.modules}
        assert rows["classifer"] == ("ONNX Runtime", 4 * (16 * 6 * 6 + 10))
        assert net.report.modules[-1].clock == "cpu-measured"
        assert re.search(r"classifer +ONNX Runtime +[\d.]+ us measured", str(net.report))
        with pytest.raises(UsageError, match="no module matches 'clasifer'") as caught:
            compiled(source, x, leave=["clasifer"])
        assert "classifer" in caught.value.hint


def test_a_factory_leaves_modules_out_and_travels(
    nets: ModuleType, compiled: Callable[..., Any], tmp_path: Path
) -> None:
    module, factory = nets.called_twice(), "tests.pytorch.nets:called_twice"
    options = {"precision": "int8", "calibration": [nets.image(n) for n in range(4)]}
    net = compiled(factory, nets.image(), leave=["middle"], **options)
    assert len(net.plans) > 1
    assert {one.where for one in net.report.modules} >= {"GPU", "ONNX Runtime"}
    for seed in (1, 2):
        assert gap(net(nets.image(seed)), module(nets.image(seed))) < 0.05
    path = net.save(tmp_path / "net.ekb")
    loaded = edgekit.load(path)
    assert gap(loaded(nets.image(2)), net(nets.image(2))) < 0.01
    assert str(tmp_path).encode() not in path.read_bytes()
    with pytest.raises(UsageError, match="cannot become a Python part"):
        net.save(tmp_path / "other.ekb", python={"middle": "a.b:make"})
