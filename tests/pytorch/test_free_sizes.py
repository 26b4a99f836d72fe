"""PyTorch networks whose sizes vary: their ranges become those of the ONNX file."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import onnx
import pytest

import edgekit
from edgekit.errors import EdgekitError

ORIN = "jetson-agx-orin-64gb"


def axes(file: str) -> list[int | str]:
    (value,) = onnx.load(file).graph.input
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def varying(nets: ModuleType) -> object:
    torch = nets.torch
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 5),
    ).eval()


def test_dims_of_a_module_are_named_and_compared_at_both_ends(nets: ModuleType) -> None:
    torch = nets.torch
    sizes = {
        0: torch.export.Dim("batch", min=1, max=8),
        2: torch.export.Dim("height", min=16, max=64),
    }
    made = edgekit.export(
        varying(nets), (torch.randn(2, 3, 32, 16),), target=ORIN, dynamic_shapes=(sizes,)
    )
    assert axes(made.file) == ["batch", 3, "height", 16]
    assert made.dimensions == {"batch": "1..2..8", "height": "16..32..64"}
    assert made.agreement.inputs == 5
    found = edgekit.check(made.file, target=ORIN, model={"dimensions": made.dimensions})
    assert found.buckets[0].shapes == {"input": (2, 3, 32, 16)}


def test_a_module_takes_no_other_sizes_than_its_dims(nets: ModuleType) -> None:
    torch = nets.torch
    dims = ({0: torch.export.Dim("batch", min=1, max=4)},)

    def plan(rows: int, **model: object) -> None:
        example = (torch.randn(rows, 3, 16, 16),)
        edgekit.check(varying(nets), example, target=ORIN, dynamic_shapes=dims, model=model)

    for model, where in [
        ({"dimensions": {"batch": "1..8"}}, "option model.dimensions.batch"),
        ({"shapes": {"input": "8x3x16x16"}}, "option model.shapes.input"),
    ]:
        with pytest.raises(
            EdgekitError, match=r"exported for input: 1\.\.2\.\.4x3x16x16"
        ) as caught:
            plan(2, **model)
        assert (caught.value.code, caught.value.where) == ("torch.dynamic_shapes", where)
    plan(2, dimensions={"batch": "1..3"})
    with pytest.raises(EdgekitError, match="axis 0 of 'input' is 8 in the example") as caught:
        plan(8)
    assert "give an example within the range" in caught.value.hint


def test_a_program_keeps_its_ranges(nets: ModuleType, tmp_path: Path) -> None:
    torch = nets.torch
    program = torch.export.export(
        varying(nets),
        (torch.randn(2, 3, 32, 16),),
        strict=False,
        dynamic_shapes={"input": {0: torch.export.Dim("batch", min=1, max=8)}},
    )
    torch.export.save(program, tmp_path / "net.pt2")
    (tmp_path / "net.yaml").write_text(
        f"version: 1\nname: net\nmodel: {{pt2: net.pt2}}\ntarget: {ORIN}\n"
    )
    found = edgekit.check(tmp_path / "net.yaml")
    assert found.buckets[0].shapes == {"input": (2, 3, 32, 16)}
    for shape in ("9x3x32x16", "1..9x3x32x16"):
        with pytest.raises(EdgekitError, match=r"exported for input: 1\.\.2\.\.8x3x32x16"):
            edgekit.check(tmp_path / "net.yaml", model={"shapes": {"input": shape}})
    assert edgekit.check(tmp_path / "net.yaml", model={"shapes": {"input": "8x3x32x16"}}).layers
    with pytest.raises(EdgekitError, match=r"1\.\.8x3x32x16") as caught:
        edgekit.export(tmp_path / "net.pt2", target=ORIN, inputs={"input": "9x3x32x16"})
    assert caught.value.code == "torch.inputs"


def test_ranges_among_sizes_export_open_axes(nets: ModuleType) -> None:
    found = edgekit.check(
        varying(nets),
        target=ORIN,
        inputs={"input": "1x3x16..32x16:float32"},
        model={"buckets": ["16x16"]},
    )
    assert found.buckets[0].shapes == {"input": (1, 3, 16, 16)}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"inputs": {"x": "1x1x32..16x32"}}, "above the largest"),
        ({"inputs": {"x": "1x1x16..32x32"}}, "does not take the range"),
        ({"inputs": {"x": "1..8x1x32x32"}, "exporter": "legacy"}, "exports one size"),
        ({"inputs": {"x": "1..8x1x32x32"}, "leave": "conv*"}, "left-out modules"),
    ],
)
def test_a_range_that_cannot_be_is_refused(
    nets: ModuleType, given: dict[str, object], says: str
) -> None:
    with pytest.raises(EdgekitError) as caught:
        edgekit.export(nets.lenet(), target=ORIN, **given)
    assert says in str(caught.value)
    assert caught.value.hint


def test_a_compiled_network_has_one_size(nets: ModuleType) -> None:
    with pytest.raises(EdgekitError, match="one size") as caught:
        edgekit.compile(nets.lenet(), target=ORIN, inputs={"x": "1..8x1x32x32"})
    assert caught.value.code == "torch.dynamic_shapes"
