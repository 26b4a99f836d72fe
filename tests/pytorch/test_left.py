"""Modules that stay in PyTorch are nodes of the exported network."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from edgekit.errors import UsageError
from edgekit.network.parts import LeftPart, parts
from edgekit.pytorch.left import leave_out

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


class Middle(nn.Module):
    """Called twice, with and without a keyword; nested results, one no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(6, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 1)

    def forward(self, x: Any, scale: float = 1.0) -> dict[str, Any]:
        y = self.first(x)
        return {"scaled": y * scale, "more": (self.second(y), 7)}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv2d(1, 6, 3)
        self.middle = Middle()
        self.unused = nn.Linear(2, 2)
        self.end = nn.Linear(6, 3)
        self.register_buffer("weight", torch.ones(6, 1, 1))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        x = F.relu(self.start(x))
        found = self.middle(x * self.weight, scale=2.0)
        x = found["scaled"] + x + found["more"][0] * found["more"][1]
        found = self.middle(x)
        return self.end((found["scaled"] + found["more"][0]).mean((2, 3)))


@pytest.fixture(scope="module")
def net() -> Any:
    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.parametrize(
    ("globs", "left"),
    [
        (["middle"], ["middle", "middle"]),
        (["*.second", "end"], ["middle.second", "middle.second", "end"]),
        (["middle*"], ["middle", "middle"]),
    ],
)
def test_the_parts_give_what_the_module_gives(net: Any, globs: list[str], left: list[str]) -> None:
    x = torch.randn(1, 1, 16, 16)
    state = {name: value.clone() for name, value in net.state_dict().items()}
    found = leave_out(net, globs, (x,), {})
    program = torch.export.export(found.twin, (x,))
    model = torch.onnx.export(program, dynamo=True, verbose=False).model_proto
    known = {"x": x.numpy()}
    steps = parts(model)
    for step in steps:
        if isinstance(step, LeftPart):
            tensors = [torch.from_numpy(known[name]) for name in step.inputs]
            with torch.no_grad():
                made = found.calls[step.call].run(net.get_submodule(step.module), tensors)
            known.update(zip(step.outputs, (one.numpy() for one in made), strict=True))
        else:
            session = ort.InferenceSession(step.model.SerializeToString())
            feeds = {name: known[name] for name in step.inputs}
            known.update(zip(step.outputs, session.run(step.outputs, feeds), strict=True))
    assert [step.module for step in steps if isinstance(step, LeftPart)] == left
    for name, value in net.state_dict().items():  # neither export changed the caller's module
        assert torch.equal(value, state[name])
    with torch.no_grad():
        wanted = net(x).numpy()
    net.calls.zero_()
    np.testing.assert_allclose(known[model.graph.output[0].name], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("glob", "code", "hint"),
    [("midle", "pytorch.leave", "middle"), ("unused", "pytorch.leave-not-called", "inside")],
)
def test_a_module_that_cannot_be_left_is_named(net: Any, glob: str, code: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        leave_out(net, [glob], (torch.randn(1, 1, 16, 16),), {})
    assert caught.value.code == code
    assert hint in caught.value.hint
