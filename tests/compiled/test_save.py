"""Compiled networks saved, loaded and called like their module, left-out modules included."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import edgekit
import edgekit_device
from edgekit.bundles.files import read
from edgekit.errors import BundleError, UsageError
from edgekit_device.errors import DeviceError
from tests.bundles.bundle_toys import toy_bundle
from tests.compiled.conftest import TARGET, gap

Compile = Callable[..., Any]


def test_one_bundle_holds_the_parts_and_the_left_out_modules(
    nets: ModuleType, compiled: Compile, tmp_path: Path
) -> None:
    module, x = nets.called_twice(), nets.image()
    net = compiled(
        module, x, leave=["middle"], precision="int8", calibration=[nets.image(n) for n in range(4)]
    )
    path = net.save(tmp_path / "net.ekb")
    loaded = edgekit.load(path)
    for seed in (1, 2):
        assert gap(loaded(nets.image(seed)), net(nets.image(seed))) < 0.01
    assert loaded.name == "calledtwice"
    assert repr(loaded) == f"<LoadedNetwork calledtwice, bundle {loaded.digest[:12]}>"
    board = edgekit_device.load(path, trust_unsigned=True, verify="full")
    assert board.devices == ["CPU", "GPU"]
    assert np.array_equal(board({"x": x.numpy()})["output"], loaded(x).numpy())
    (lane,) = board.lanes
    assert [segment.device for segment in lane.segments] == ["GPU", "CPU", "GPU", "CPU", "GPU"]
    bundle = read(path)
    assert bundle.manifest.golden
    for data in bundle.blobs.values():
        assert b"tests/pytorch" not in bytes(memoryview(data).cast("B"))
    again = net.save(tmp_path / "again.ekb")
    assert read(again).digest == bundle.digest


def test_arguments_and_nested_results_come_back(nets: ModuleType, tmp_path: Path) -> None:
    import torch

    module, batch = nets.Nested().eval(), {"image": torch.randn(1, 3, 8, 8)}
    mask = torch.rand(1, 4, 8, 8)
    net = edgekit.compile(
        module, (batch, 0.5), {"mask": mask}, target=TARGET, precision="fp16", out=tmp_path / "out"
    )
    loaded = edgekit.load(net.save(tmp_path / "net.ekb"))
    found, wanted = loaded(batch, 0.5, mask=mask), net(batch, 0.5, mask=mask)
    assert list(found) == list(wanted)
    assert found["more"][1:] == [None, "classes"]
    assert torch.equal(found["more"][0][0], wanted["more"][0].where)
    assert torch.equal(found["out"], wanted["out"])
    with pytest.raises(UsageError, match=r"'scale' is 0\.25, and the network was"):
        loaded(batch, 0.25, mask=mask)
    with pytest.raises(UsageError, match="'mask' is missing"):
        loaded(batch, 0.5)


def test_half_modules_keep_their_types(nets: ModuleType, compiled: Compile, tmp_path: Path) -> None:
    import torch

    module, x = nets.lenet().to(torch.bfloat16), nets.image().to(torch.bfloat16)
    net = compiled(module, x, leave=["classifer.fc3"])
    found = edgekit.load(net.save(tmp_path / "net.ekb"))(x)
    assert found.dtype == torch.bfloat16
    assert gap(found.float(), module(x).float()) < 0.05


def test_without_pytorch_arrays_go_in_and_come_out(
    nets: ModuleType, compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = nets.lenet(), nets.image()
    net = compiled(module, x, leave=["classifer"])
    loaded, wanted = edgekit.load(net.save(tmp_path / "net.ekb")), net(x).numpy()
    assert np.abs(loaded(x.numpy()) - wanted).max() < 0.01 * np.abs(wanted).max()
    monkeypatch.setattr("edgekit.compiled.loaded.find_spec", lambda name: None)
    for found in (loaded(x.numpy()), loaded(x=x.numpy())):
        assert isinstance(found, np.ndarray)
        assert np.abs(found - wanted).max() < 0.01 * np.abs(wanted).max()
    with pytest.raises(UsageError, match="the network has 1 input"):
        loaded(x.numpy(), x.numpy())


def test_only_known_signers_bundles_are_loaded(
    nets: ModuleType, compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    net = compiled(nets.lenet(), nets.image())
    path = net.save(tmp_path / "net.ekb")
    edgekit.load(path)
    key = (tmp_path / "cache/keys/ed25519.pub").read_text()
    signers = tmp_path / "signers"
    signers.write_text(f'ann namespaces="edgekit-bundle" {key}')
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "stranger"))
    with pytest.raises(BundleError) as caught:
        edgekit.load(path)
    assert caught.value.code == "bundle.unknown-signer"
    edgekit.load(path, trust_unsigned=True)
    edgekit.load(path, allowed_signers=signers)
    data = bytearray(path.read_bytes())
    at = data.index(b'"backend"')
    data[at + 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError) as caught:
        edgekit.load(path, trust_unsigned=True)
    assert caught.value.code == "bundle.bad-signature"


def test_a_module_that_onnx_cannot_hold_is_named(
    nets: ModuleType, compiled: Compile, tmp_path: Path
) -> None:
    net = compiled(nets.routed(), nets.image(), leave=["router"])
    with pytest.raises(UsageError, match="cannot become an ONNX file") as caught:
        net.save(tmp_path / "net.ekb")
    assert (caught.value.code, caught.value.where) == ("compile.left", "router")
    assert "module 'router'" in caught.value.message
    assert 'python={"router": "package.module:factory"}' in caught.value.hint
    assert not (tmp_path / "net.ekb").exists()


ROUTER = """
import torch


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(4, 1, 1))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, more=None, *, power=1):
        if x.sum() > 0:
            x = x * 2
        return {"out": (x * self.scale + more["bias"][0]) ** power, "same": [x, None]}


def make():
    return Router()
"""


@pytest.fixture
def routed(
    nets: ModuleType, compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Any, Any]:
    """A network whose router branches on values, its input, and the module of the source file."""
    import torch
    from torch import nn

    (tmp_path / "routing.py").write_text(ROUTER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    routing = importlib.import_module("routing")
    monkeypatch.delitem(sys.modules, "routing")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.router = nn.Conv2d(1, 4, 3), routing.Router()

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            found = self.router(x, {"bias": (x, 1.5)}, power=2)
            return found["out"].mean((2, 3)) + found["same"][0].mean((2, 3))

    torch.manual_seed(0)
    module, x = Net().eval(), nets.image()
    with torch.no_grad():
        module.router.scale.mul_(3)
    return compiled(module, x, leave=["router"]), x, module


def test_a_module_that_onnx_cannot_hold_travels_as_a_python_part(
    routed: tuple[Any, Any, Any], tmp_path: Path
) -> None:
    net, x, module = routed
    path = net.save(tmp_path / "net.ekb", python={"rout*": "routing:make"})
    loaded = edgekit.load(path)
    for value in (x, -x):
        assert gap(loaded(value), module(value)) < 0.01
    bundle = read(path)
    kinds = [entry.kind for entry in bundle.manifest.blobs.values()]
    assert sorted(set(kinds) - {"golden", "record"}) == ["engine", "python", "source", "state"]
    assert bundle.manifest.requires is not None
    assert not bundle.manifest.requires.cpu
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(path, trust_unsigned=True)
    assert caught.value.code == "engine.untrusted"


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        ({"head": "routing:make"}, "no module that stays in PyTorch matches 'head'"),
        ({"router": "routing:Missing"}, "has no attribute 'Missing'"),
        ({"router": "nowhere_at_all:make"}, "its source file cannot be read"),
        ({"router": "routing"}, "is no package.module:factory"),
        ({"router": "torch.nn:Identity"}, "cannot become a Python part"),
    ],
)
def test_what_is_no_python_part_is_refused(
    routed: tuple[Any, Any, Any], tmp_path: Path, python: dict[str, str], problem: str
) -> None:
    net, _, _ = routed
    with pytest.raises(UsageError, match=re.escape(problem)):
        net.save(tmp_path / "net.ekb", python=python)
    assert not (tmp_path / "net.ekb").exists()


def test_other_bundles_tell_no_call(tmp_path: Path) -> None:
    from edgekit.bundles.files import write

    path = write(toy_bundle(), tmp_path / "toy.ekb", stripped=False)
    with pytest.raises(UsageError) as caught:
        edgekit.load(path, trust_unsigned=True)
    assert caught.value.code == "bundle.no-call"


def test_networks_of_one_name_keep_their_own_bundles(
    nets: ModuleType, compiled: Callable[..., Any], tmp_path: Path
) -> None:
    x = nets.image()
    modules = [nets.lenet(seed) for seed in (1, 2)]
    made = [compiled(one, x, leave=["classifer.fc1"]) for one in modules]
    modules.append(nets.lenet(seed=3))
    made.append(compiled(modules[2], x, leave=["classifer.fc1"]))
    made[2].refit(modules[0])
    modules[2] = modules[0]
    for number, (net, module) in enumerate(zip(made, modules, strict=True)):
        loaded = edgekit.load(net.save(tmp_path / f"{number}.ekb"))
        assert gap(loaded(x), module(x)) < 0.01
        assert gap(net(x), module(x)) < 0.01
