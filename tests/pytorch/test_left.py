"""Modules that stay in PyTorch are nodes of the exported file."""

from __future__ import annotations

from types import ModuleType

import onnx
import pytest

from edgekit.errors import UsageError
from edgekit.pytorch.export import export


@pytest.mark.parametrize(
    ("globs", "left"),
    [
        (["middle"], ["middle", "middle"]),
        (["*.second", "end"], ["middle.second", "middle.second", "end"]),
        (["middle*"], ["middle", "middle"]),
    ],
)
@pytest.mark.parametrize("release", ["10.3", "8.5"])
def test_a_file_with_left_out_modules_computes_what_the_module_computes(
    nets: ModuleType, globs: list[str], left: list[str], release: str
) -> None:
    net = nets.called_twice()
    state = {name: value.clone() for name, value in net.state_dict().items()}
    found = export(net, (nets.image(),), release=release, leave=globs)
    assert [one.module for one in found.left] == left
    assert [one.call for one in found.left] == list(range(len(left)))
    assert found.agreement.inputs == 3
    assert found.agreement.difference <= found.agreement.tolerance
    nodes = [node for node in onnx.load(found.file).graph.node if node.op_type == "Module"]
    assert [tuple(node.input) for node in nodes] == [one.inputs for one in found.left]
    assert found.left[0].bytes > 0
    assert {name: value.tolist() for name, value in net.state_dict().items()} == {
        name: value.tolist() for name, value in state.items()
    }


@pytest.mark.parametrize(
    ("glob", "code", "hint"),
    [("midle", "torch.leave", "middle"), ("unused", "torch.leave-not-called", "inside")],
)
def test_a_module_that_cannot_be_left_is_named(
    nets: ModuleType, glob: str, code: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        export(nets.called_twice(), (nets.image(),), release="10.3", leave=[glob])
    assert caught.value.code == code
    assert hint in caught.value.hint


def test_the_legacy_exporter_leaves_no_module(nets: ModuleType) -> None:
    with pytest.raises(UsageError, match="leaves no module"):
        export(nets.lenet(), (nets.image(),), release="10.3", leave=["feat"], exporter="legacy")


def test_a_module_with_control_flow_can_be_left(nets: ModuleType) -> None:
    found = export(nets.routed(), (nets.image(),), release="10.3", leave=["router"])
    assert [one.module for one in found.left] == ["router"]
