"""Modules that keep something between calls, and small mistakes of callers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import edgekit
from edgekit.errors import ModelError, UsageError

ORIN = "jetson-agx-orin-64gb"


def counting() -> tuple[object, object]:
    import torch

    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.n.add_(1)
            return x * self.n

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.buf = torch.nn.Conv2d(3, 8, 3), Counter()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.buf(self.a(x))

    return Net().eval(), torch.randn(1, 3, 16, 16)


def test_a_module_that_counts_its_calls_is_named_and_left_out(
    nets: ModuleType, tmp_path: Path
) -> None:
    net, x = counting()
    with pytest.raises(ModelError) as caught:
        edgekit.export(net, (x,), target=ORIN)
    error = caught.value
    assert error.code == "torch.state"
    assert "module 'buf' (Counter)" in error.message
    assert "self.n.add_(1)" in error.message
    assert __file__ in error.where
    assert 'leave=["buf"]' in error.hint
    made = edgekit.compile(
        net,
        (x,),
        target=ORIN,
        precision="fp16",
        leave="buf",
        out=tmp_path,
        calibration=[x],
    )
    assert "calibration is not read: fp16 has no scales" in made.report.notes
    first = made(x)
    with pytest.raises(UsageError, match="cannot become an ONNX file"):
        made.save(tmp_path / "net.ekb")
    second = made(x)
    assert (second / 2 - first).abs().max() < 1e-3 * first.abs().max()
    made.refit()
    assert "calibration is not read: fp16 has no scales" in made.report.notes
    assert int(net.buf.n) == 0
    with pytest.raises(UsageError, match="input 'x' is missing"):
        made()
    with pytest.raises(UsageError) as labels:
        made(x, x)
    assert "labels" in labels.value.hint


def test_the_state_of_a_left_out_module_is_not_called_fixed(nets: ModuleType) -> None:
    net, x = counting()
    assert edgekit.export(net, (x,), target=ORIN, leave=["buf"]).notes == []


def test_a_module_of_random_numbers_is_named_and_left_out(nets: ModuleType) -> None:
    torch, x = nets.torch, nets.torch.randn(1, 4)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), nets.Noisy()).eval()
    for source in (net, torch.export.export(net, (x,))):
        with pytest.raises(ModelError) as caught:
            edgekit.export(source, (x,), target=ORIN)
        error = caught.value
        assert error.code == "torch.random"
        assert "module '1' (Noisy)" in error.message
        assert "torch.rand_like" in error.message
        assert 'leave=["1"]' in error.hint
    found = edgekit.export(net, (x,), target=ORIN, leave=["1"])
    assert [one.module for one in found.left] == ["1"]
    assert found.agreement is not None
    assert found.agreement.inputs == 3
    twice = torch.nn.Sequential(nets.Noisy(), net).eval()
    with pytest.raises(ModelError, match=r"module '0' \(Noisy\)"):
        edgekit.export(twice, (x,), target=ORIN, leave=["1.1"])


def test_sizes_that_are_no_dimensions_are_refused_with_the_example_s(nets: ModuleType) -> None:
    example = (nets.image(),)
    for function in (edgekit.compile, edgekit.check, edgekit.plan):
        with pytest.raises(UsageError) as caught:
            function(nets.lenet(), example, target=ORIN, dynamic_shapes={"x": {0: "n"}})
        assert caught.value.code == "torch.dynamic_shapes"
        assert "x 1x1x32x32:float32" in caught.value.hint


def test_a_class_is_no_module(nets: ModuleType) -> None:
    with pytest.raises(UsageError) as caught:
        edgekit.export(nets.LeNet, (nets.image(),), target=ORIN)
    assert "LeNet(...)" in caught.value.hint
