"""What holds for every layer, and layers that move elements: concatenation, slice, shuffle."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from tests.dla.limits.cases import ALWAYS, ON_ORIN, Case, since
from tests.dla.limits.sheet import Branch, Sheet, op

PLAIN = (1, 4, 2, 2)
IN_8 = since("8.0")  # TensorRT 7 was seen to refuse a batch of more than 32
RELU = op("Relu", PLAIN)


def _relu(*shape: int) -> Branch:
    return op("Relu", shape)


def _typed(kind: int) -> Branch:
    def draw(sheet: Sheet, name: str) -> None:
        sheet.add("Abs", name, sheet.input(*PLAIN, kind=kind))

    return draw


def _constant(sheet: Sheet, name: str) -> None:
    """A graph output that no input reaches, larger than what is computed when a model is read."""
    sheet.add("Tile", name, sheet.ones(1, 1, 1, 1), sheet.constant([1, 8, 1024, 1024]))


GENERAL = [
    Case("general.batch", _relu(4096, 1, 1, 1), _relu(4097, 1, 1, 1), "4097", "1..4096",
         inside_ok=IN_8),
    Case("general.batch", _relu(64, 64, 1, 1, 1), _relu(64, 65, 1, 1, 1), "4160", "1..4096",
         inside_ok=IN_8),
    Case("general.dimension", _relu(1, 8192, 1, 1), _relu(1, 8193, 1, 1), "8193", "1..8192"),
    Case("general.dimension", _relu(1, 1, 8192, 1), _relu(1, 1, 8193, 1), "8193", "1..8192"),
    Case("general.dimension", _relu(1, 1, 1, 8192), _relu(1, 1, 1, 8193), "8193", "1..8192"),
    # the limit holds for results too
    Case("general.dimension", op("Concat", (1, 4096, 1, 1), (1, 4096, 1, 1), axis=1),
         op("Concat", (1, 4096, 1, 1), (1, 4097, 1, 1), axis=1), "8193", "1..8192"),
    Case("general.rank", op("Abs", PLAIN), op("Abs", (4, 2, 2)), "4x2x2", "4", disputed=ALWAYS),
    Case("general.rank", op("Abs", (2, 1, 4, 2, 2)), op("Abs", (4, 2)), "4x2", "4",
         disputed=ALWAYS),
    Case("general.rank_shuffles", _relu(1, 4, 2, 2), _relu(4, 2, 2), "4x2x2", "4", risk=True),
    Case("general.rank_shuffles", _relu(2, 1, 4, 2, 2), _relu(4, 2), "4x2", "4", risk=True),
    Case("general.rank_shuffles", op("Add", PLAIN, PLAIN), op("Add", (4, 8), (4, 8)), "4x8", "4",
         risk=True),
    Case("general.type", _typed(TensorProto.FLOAT), _typed(TensorProto.INT64), "int64", "float"),
    Case("general.type", _typed(TensorProto.FLOAT16), _typed(TensorProto.INT32), "int32", "float"),
    Case("general.type", _typed(TensorProto.INT8), _typed(TensorProto.DOUBLE), "float64", "float"),
    Case("general.kind", RELU, op("Det", (1, 1, 3, 3)), "Det", "the layer types"),
    Case("general.uint8", _typed(TensorProto.FLOAT), _typed(TensorProto.UINT8), "uint8", "INT8"),
    Case("general.kind", RELU, op("Gather", PLAIN, constants=[[0, 1]], axis=1), "GATHER",
         "the layer types"),
    Case("general.kind", RELU, op("GridSample", PLAIN, (1, 2, 2, 2)), "GRID_SAMPLE",
         "the layer types"),
    Case("general.matrix_multiply", op("MatMul", (3, 4), constants=[[[1.0] * 5] * 4]),
         op("MatMul", (1, 1, 3, 4), (1, 1, 4, 5)), "MATRIX_MULTIPLY", "constant second operand",
         kind=""),
    Case("general.constant", RELU, _constant, "CONSTANT", "no CONSTANT layers"),
    Case("general.batch_old", _relu(32, 4, 2, 2), _relu(33, 4, 2, 2), "33", "1..32",
         breaks=~IN_8, disputed=ALWAYS),
]  # fmt: skip


def _half_constant(sheet: Sheet, name: str) -> None:
    sheet.add("Concat", name, sheet.input(*PLAIN), sheet.ones(*PLAIN), axis=1)


CONCATENATION = [
    *(
        Case(
            "concatenation.axis",
            op("Concat", PLAIN, PLAIN, axis=inside),
            op("Concat", PLAIN, PLAIN, axis=outside),
            found,
            "along C",
        )
        for inside, outside, found in ((1, 2, "along H"), (-3, -1, "along W"), (1, 0, "along N"))
    ),
    Case(
        "concatenation.inputs",
        op("Concat", PLAIN, PLAIN, axis=1),
        op("Concat", PLAIN, axis=1),
        "1",
        "at least 2",
    ),
    Case("concatenation.inputs", _half_constant, op("Concat", PLAIN, axis=1), "1", "at least 2"),
]


def _slice(
    starts: list[int],
    ends: list[int],
    axes: list[int],
    steps: list[int] | None = None,
    shape: tuple[int, ...] = (2, 4, 6, 6),
) -> Branch:
    return op("Slice", shape, constants=[starts, ends, axes, steps or [1] * len(axes)])


def _pad(value: float = 0.0, **more: Any) -> Branch:
    return op("Pad", PLAIN, constants=[[0, 0, 1, 1, 0, 0, 1, 1], value], **more)


def _split(axis: int) -> Branch:
    return op("Split", (4, 4, 2, 2), axis=axis, results=2)


CROP = _slice([1], [3], [1])

SLICE = [
    Case("slice.stride", _slice([0], [6], [2], [1]), _slice([0], [6], [2], [2]), "2", "1"),
    Case("slice.stride", _slice([-3], [99], [3], [1]), _slice([5], [0], [3], [-1]), "-1", "1"),
    Case("slice.stride", CROP, op("Expand", (1, 4, 1, 1), constants=[[1, 4, 2, 2]]), "0", "1"),
    Case("slice.batch", _slice([0], [2], [0]), _slice([0], [1], [0]), "a part", "whole"),
    Case("slice.batch", CROP, _slice([1], [2], [0]), "a part", "whole"),
    Case("slice.batch", _split(1), _split(0), "a part", "whole"),
    Case("slice.rank", CROP, _slice([1], [3], [1], shape=(2, 4, 6)), "2x4x6", "4"),
    Case("slice.rank", CROP, _slice([1], [3], [2], shape=(1, 1, 4, 2, 2)), "1x1x4x2x2", "4"),
    Case("slice.mode", _pad(), _pad(mode="reflect"), "REFLECT", "DEFAULT, STRICT_BOUNDS, WRAP"),
    Case("slice.mode", _pad(mode="wrap"), _pad(mode="edge"), "CLAMP", "WRAP, FILL", opset=19),
    Case("slice.fill", _pad(0.0), _pad(1.0), "1", "0"),
    Case("slice.out_of_bounds", CROP, _pad(), "FILL", "DEFAULT", risk=True),
    Case(
        "slice.out_of_bounds",
        _split(1),
        op("Tile", PLAIN, constants=[[1, 1, 2, 1]]),
        "WRAP",
        "DEFAULT",
        risk=True,
    ),
    Case("operators.not_exposed", CROP, _pad(), "Pad", "both allow", risk=True),
    Case(
        "operators.not_exposed",
        CROP,
        op("Tile", PLAIN, constants=[[1, 1, 2, 1]]),
        "Tile",
        "both allow",
        risk=True,
    ),
]


def _reshape(*shape: int, source: tuple[int, ...] = (2, 4, 2, 2)) -> Branch:
    return op("Reshape", source, constants=[list(shape)])


def _transpose(*perm: int) -> Branch:
    return op("Transpose", (2, 4, 2, 2), perm=perm)


def _next_to(kind: str) -> Branch:
    """A reshape, judged, whose result goes to a node of ``kind``."""

    def draw(sheet: Sheet, name: str) -> None:
        made = sheet.add("Reshape", name, sheet.input(2, 4, 2, 2), sheet.constant([2, 2, 4, 2]))
        if kind == "Concat":
            sheet.add(kind, f"{name}-after", made, sheet.input(2, 1, 4, 2), axis=1)
        elif kind == "Slice":
            bounds = [sheet.constant([value]) for value in (0, 1, 1)]
            sheet.add(kind, f"{name}-after", made, *bounds)
        else:
            sheet.add(kind, f"{name}-after", made)

    return draw


SHUFFLE = [
    Case("shuffle.xavier", RELU, _transpose(0, 2, 1, 3), "TRANSPOSE", "Orin", breaks=~ON_ORIN,
         risk=True),
    *(
        Case("shuffle.rank", _reshape(2, 2, 4, 2), outside, found, "4", disputed=ALWAYS)
        for outside, found in (
            (op("Flatten", (2, 4, 2, 2)), "to 2x16"), (_reshape(2, 4, 4), "to 2x4x4"),
            (_reshape(2, 4, 2, 2, source=(2, 4, 4)), "2x4x4 to"),
            (_reshape(2, 1, 4, 2, 2), "to 2x1x4x2x2"),
            (op("Squeeze", (2, 4, 1, 2), constants=[[2]]), "to 2x4x2"),
            (op("Unsqueeze", (2, 4, 4), constants=[[3]]), "2x4x4 to"),
            (op("Transpose", (2, 4, 4), perm=[0, 2, 1]), "2x4x4 to"),
        )
    ),
    Case("shuffle.batch", _reshape(2, 16, 1, 1), _reshape(1, 8, 2, 2), "to 1x8x2x2", "same"),
    Case("shuffle.batch", _transpose(0, 3, 1, 2), _transpose(1, 0, 2, 3), "to 4x2x2x2", "same"),
    Case("shuffle.batch", _transpose(0, 2, 3, 1), _transpose(2, 1, 0, 3), "2x4x2x2 to", "same"),
    *(
        Case("shuffle.mode", _transpose(0, 1, 3, 2), op(kind, PLAIN, blocksize=2), found,
             "RESHAPE, TRANSPOSE")
        for kind, found in (("DepthToSpace", "DEPTH_TO_SPACE"), ("SpaceToDepth", "SPACE_TO_DEPTH"))
    ),
    *(
        Case("shuffle.neighbours", _next_to("Relu"), _next_to(kind), found, "SLICE, CONCATENATION",
             disputed=ALWAYS)
        for kind, found in (("Concat", "CONCATENATION"), ("Slice", "SLICE"))
    ),
]  # fmt: skip

CASES = [*GENERAL, *CONCATENATION, *SLICE, *SHUFFLE]
