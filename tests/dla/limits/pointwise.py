"""Activations, element-wise operations, comparisons and unary functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.dla.limits.cases import (
    ALWAYS,
    IN_FP16,
    IN_INT8,
    NEVER,
    ON_ORIN,
    Case,
    Where,
    since,
)
from tests.dla.limits.sheet import Branch, Sheet, op

PLAIN = (1, 4, 2, 2)
DEEP = (1, 2, 4, 2, 2)
IN_8 = since("8.0")
IN_8_6 = since("8.6")
IN_8_6_12 = since("8.6.12")
IN_10_7 = since("10.7")


def _clip(low: float, high: float) -> Branch:
    return op("Clip", PLAIN, constants=[low, high])


ACTIVATION = [
    *(
        Case("activation.function", op(inside, PLAIN), op(outside, PLAIN), found,
             "RELU, SIGMOID, TANH, CLIP, LEAKY_RELU")
        for inside, outside, found in (
            ("Relu", "Elu", "ELU"), ("Sigmoid", "HardSigmoid", "HARD_SIGMOID"),
            ("Tanh", "Softsign", "SOFTSIGN"), ("Relu", "ThresholdedRelu", "THRESHOLDED_RELU"),
            ("Relu", "Selu", "SELU"), ("Sigmoid", "Softplus", "SOFTPLUS"),
        )
    ),
    Case("activation.clip_upper", _clip(0.0, 127.0), _clip(0.0, 128.0), "128", "1..127"),
    Case("activation.clip_upper", _clip(0.0, 126.5), _clip(0.0, 127.5), "127.5", "1..127"),
    Case("activation.clip_upper", _clip(0.0, 1.0), _clip(0.0, 0.5), "0.5", "1..127"),
    # with an input for the bound that is left out, the parser makes a MAX and a MIN
    Case("activation.clip_upper", op("Clip", PLAIN, min=0.0, max=6.0), op("Clip", PLAIN, min=0.0),
         "unbounded", "1..127", opset=10),
    Case("activation.clip_lower", _clip(0.0, 6.0), _clip(-0.5, 6.0), "-0.5", "0",
         disputed=ALWAYS),
    Case("activation.clip_lower", _clip(0.0, 6.0), _clip(0.5, 6.0), "0.5", "0", disputed=ALWAYS),
    Case("activation.clip_lower", op("Clip", PLAIN, min=0.0, max=6.0), op("Clip", PLAIN, max=6.0),
         "unbounded", "0", disputed=ALWAYS, opset=10),
    Case("activation.clip_upper", op("Clip", PLAIN, min=0.0, max=127.0),
         op("Clip", PLAIN, min=0.0, max=128.0), "128", "1..127", opset=10),
    Case("activation.leaky_old", op("Relu", PLAIN), op("LeakyRelu", PLAIN), "LEAKY_RELU",
         "TensorRT 8", breaks=~IN_8, disputed=ALWAYS),
    Case("prelu.slope", op("PRelu", PLAIN, constants=[[[[0.1]]] * 4]), op("PRelu", PLAIN, PLAIN),
         "computed", "constant"),
]  # fmt: skip

ADD = op("Add", PLAIN, PLAIN)


def _either(sheet: Sheet, name: str) -> None:
    """An operation that no DLA has, on two truth values."""
    sheet.add("Or", name, *(sheet.input(*PLAIN, kind=TensorProto.BOOL) for _ in range(2)))


SQUARE = op("Pow", PLAIN, constants=[2.0])


def _since(rule: str, kind: str, found: str, when: Where) -> Case:
    """A function that came with a release; the Add beside it is as old as the DLA."""
    outside = op(kind, PLAIN, PLAIN)
    return Case(f"elementwise.{rule}", ADD, outside, found, "TensorRT 8", breaks=~when)


def _forms(inside: tuple[int, ...], outside: tuple[int, ...], left: bool = False) -> Case:
    """NCHW = (2, 4, 3, 5) with an operand of an allowed form and one of another."""
    whole = (2, 4, 3, 5)
    branches = [
        op("Add", *((form, whole) if left else (whole, form))) for form in (inside, outside)
    ]
    return Case(
        "elementwise.broadcast",
        branches[0],
        branches[1],
        "x".join(map(str, outside)),
        "NCHW, NC11, N111",
    )


ELEMENTWISE = [
    *(
        Case("elementwise.function", op(inside, PLAIN, PLAIN), _either,
             "OR", "SUM, PROD, MAX, MIN, SUB")
        for inside in ("Add", "Mul", "Max", "Min", "Sum")
    ),
    Case("operators.composed", op("Max", PLAIN, PLAIN), op("Mean", PLAIN, PLAIN), "Mean",
         "both allow", risk=True),
    Case("operators.not_exposed", op("Max", PLAIN, PLAIN), op("Min", PLAIN, PLAIN), "Min",
         "both allow", risk=True),
    _since("sub", "Sub", "SUB", IN_8),
    Case("elementwise.div", ADD, op("Div", PLAIN, PLAIN), "DIV", "TensorRT 8.6.12",
         breaks=~IN_8_6_12, outside_ok=IN_INT8),
    Case("elementwise.div_int8", ADD, op("Div", PLAIN, PLAIN), "FP16", "INT8",
         breaks=IN_8_6_12 & IN_FP16, outside_ok=IN_8_6_12),
    # a division by a constant is a scale layer, and the rules of divisions hold all the same
    *(
        Case("elementwise.div_constant", op("Mul", PLAIN, constants=[2.0]),
             op("Div", PLAIN, constants=[several]), "several", "one value", breaks=IN_8_6_12,
             outside_ok=NEVER)
        for several in (
            [[[1.0]], [[2.0]], [[4.0]], [[4.0]]], [[[[1.0, 2.0], [1.0, 1.0]]] * 4],
        )
    ),
    Case("elementwise.div_int8", op("Mul", PLAIN, constants=[2.0]),
         op("Div", PLAIN, constants=[[[[2.0]]] * 4]), "FP16", "INT8",
         breaks=IN_8_6_12 & IN_FP16, outside_ok=IN_8_6_12),
    Case("elementwise.pow", ADD, SQUARE, "POW", "TensorRT 8.6", breaks=~IN_8_6,
         outside_ok=IN_8_6_12 & IN_INT8),
    Case("elementwise.pow_old", ADD, SQUARE, "POW", "TensorRT 8.6.12",
         breaks=IN_8_6 & ~IN_8_6_12, disputed=ALWAYS, outside_ok=IN_8_6_12 & IN_INT8),
    Case("elementwise.pow_unsure", ADD, SQUARE, "POW", "TensorRT 10.7",
         breaks=IN_8_6_12 & ~IN_10_7, risk=True, tried=IN_INT8, outside_ok=IN_10_7),
    Case("elementwise.pow_int8", ADD, SQUARE, "FP16", "INT8", breaks=IN_8_6_12 & IN_FP16,
         outside_ok=IN_8_6_12),
    Case("elementwise.pow_constant", ADD, op("Pow", PLAIN, PLAIN), "two computed", "one constant",
         breaks=IN_8_6_12, outside_ok=NEVER),
    Case("elementwise.pow_constant", ADD,
         op("Pow", PLAIN, constants=[[[[1.0]]] * 2 + [[[2.0]]] * 2]), "several", "one constant",
         breaks=IN_8_6_12, outside_ok=NEVER),
    # three spatial dimensions, or a batch of two: the guide can be read both ways
    Case("general.spatial", op("Sigmoid", PLAIN), op("Sigmoid", DEEP), "1x2x4x2x2",
         "4 dimensions", risk=True),
    Case("general.spatial", op("Mul", PLAIN, constants=[2.0]), op("Mul", DEEP, constants=[2.0]),
         "1x2x4x2x2", "4 dimensions", risk=True),
    *(
        Case("elementwise.dims", op(kind, PLAIN, PLAIN), op(kind, DEEP, DEEP), "1x2x4x2x2",
             "4 dimensions", disputed=ALWAYS)
        for kind in ("Mul", "Add", "Max")
    ),
    _forms((2, 4, 3, 5), (1, 4, 3, 5)),
    _forms((2, 4, 1, 1), (2, 4, 1, 5)),
    _forms((2, 4, 1, 1), (2, 4, 3, 1), left=True),
    _forms((2, 4, 1, 1), (1, 4, 1, 1)),
    _forms((2, 1, 1, 1), (1, 1, 1, 1)),
    _forms((2, 1, 1, 1), (2, 1, 3, 5), left=True),
    _forms((2, 4, 1, 1), (1, 1, 3, 5), left=True),
    Case("elementwise.broadcast", op("Max", (1, 4, 3, 5), (1, 4, 1, 1)),
         op("Max", (1, 4, 3, 1), (1, 4, 1, 5)), "1x4x3x1", "NCHW, NC11, N111"),
    # an operand of lower rank gets leading ones, by a shuffle of the importer
    Case("elementwise.broadcast", op("Add", (1, 4, 3, 5), (4, 1, 1)),
         op("Add", (1, 4, 3, 5), (3, 5)), "1x1x3x5", "NCHW, NC11, N111", kind="ELEMENTWISE"),
    # a constant that no scale layer takes is an operand like any other
    *(
        Case("elementwise.broadcast", op(kind, (1, 4, 3, 5), constants=[np.ones(inside, "f4")]),
             op(kind, (1, 4, 3, 5), constants=[np.ones(outside, "f4")]), found,
             "NCHW, NC11, N111")
        for kind, inside, outside, found in (
            ("Max", (1, 4, 1, 1), (1, 4, 1, 5), "1x4x1x5"),
            ("Max", (), (5,), "1x1x1x5"),
            ("Add", (4, 1, 1), (3, 5), "1x1x3x5"),
            ("Mul", (4, 3, 5), (4, 3, 1), "1x4x3x1"),
        )
    ),
]  # fmt: skip


def _comparison(kind: str, *readers: str, to: int = TensorProto.FLOAT) -> Branch:
    """A comparison, judged, and what reads its result."""

    def draw(sheet: Sheet, name: str) -> None:
        made = sheet.add(kind, name, sheet.input(*PLAIN), sheet.input(*PLAIN))
        for reader in readers:
            sheet.add(reader, f"{name}-{reader}", made, **({"to": to} if reader == "Cast" else {}))

    return draw


def _compared(constant: Sequence[object]) -> Branch:
    """A comparison with a constant, judged, and the cast of its result."""

    def draw(sheet: Sheet, name: str) -> None:
        value = np.broadcast_to(np.array(constant, np.float32), PLAIN).copy()
        made = sheet.add("Equal", name, sheet.input(*PLAIN), sheet.constant(value))
        sheet.add("Cast", f"{name}-cast", made, to=TensorProto.FLOAT)

    return draw


def _cast(following: str) -> Branch:
    """A cast, judged, of what ``behind`` makes."""

    def draw(sheet: Sheet, name: str) -> None:
        made = sheet.input(*PLAIN)
        compares = following in {"Equal", "Less", "LessOrEqual"}
        made = sheet.add(following, f"{name}-before", *[made] * (2 if compares else 1))
        to = TensorProto.FLOAT if compares else TensorProto.FLOAT16
        sheet.add("Cast", name, made, to=to)

    return draw


COMPARISON = [
    Case("comparison.constant", _compared([1.0]), _compared([[[[1.0]]] * 2 + [[[2.0]]] * 2]),
         "several", "one value", inside_ok=IN_INT8, tried=ON_ORIN),
    Case("comparison.precision", ADD, _comparison("Equal", "Cast"), "FP16", "int8",
         breaks=IN_FP16, tried=ON_ORIN),
    *(
        Case("comparison.precision", ADD, _comparison(kind, "Cast"), "FP16", "int8",
             breaks=IN_FP16, outside_ok=IN_8_6_12, tried=ON_ORIN)
        for kind in ("Greater", "Less")
    ),
    Case("comparison.cast_after", _comparison("Equal", "Cast"), _comparison("Equal"), "no layer",
         "every reader is a cast", inside_ok=IN_INT8, tried=ON_ORIN),
    Case("comparison.cast_after", _comparison("Equal", "Cast"), _comparison("Equal", "Cast", "Not"),
         "Not", "every reader is a cast", inside_ok=IN_INT8, tried=ON_ORIN),
    *(
        Case("comparison.since", _comparison("Equal", "Cast"), _comparison(kind, "Cast"),
             kind.upper(), "GREATER, LESS", breaks=~IN_8_6_12, inside_ok=IN_INT8, tried=ON_ORIN)
        for kind in ("Greater", "Less")
    ),
    Case("comparison.xavier", ADD, _comparison("Equal", "Cast"), "EQUAL", "Orin",
         breaks=~ON_ORIN, risk=True, tried=IN_INT8),
    Case("comparison.cast", _cast("Less"), _cast("Relu"), "ACTIVATION",
         "behind Equal, Greater or Less", tried=ON_ORIN & IN_8_6_12 & IN_INT8),
    Case("comparison.cast", _cast("Equal"), _cast("LessOrEqual"), "ELEMENTWISE",
         "behind Equal, Greater or Less", tried=ON_ORIN & IN_INT8),
    # a cast cannot read truth values from the GPU
    Case("comparison.cast", ADD, _cast("Equal"), "comparison that stays on the GPU",
         "behind Equal, Greater or Less", breaks=IN_FP16, tried=ON_ORIN),
    Case("comparison.cast", ADD, _cast("Less"), "comparison that stays on the GPU",
         "behind Equal, Greater or Less", breaks=IN_FP16 | ~IN_8_6_12, tried=ON_ORIN),
    Case("comparison.cast_after", _comparison("Equal", "Cast", to=TensorProto.FLOAT16),
         _comparison("Equal", "Cast", to=TensorProto.INT64), "int64", "floating-point",
         inside_ok=IN_INT8, tried=ON_ORIN),
    Case("comparison.xavier", ADD, _comparison("Equal", "Cast"), "EQUAL", "Orin",
         breaks=~ON_ORIN, risk=True, tried=IN_INT8),
]  # fmt: skip

ABS = op("Abs", PLAIN)


def _unary(rule: str, kind: str, found: str, limit: str, **more: Any) -> Case:
    return Case(rule, ABS, op(kind, PLAIN), found, limit, **more)


UNARY = [
    *(
        _unary("unary.function", kind, kind.upper(), "ABS, SIN, COS, ATAN, ATANH")
        for kind in ("Exp", "Sqrt", "Tan", "Acos", "Neg")
    ),
    *(
        _unary("unary.since", kind, kind.upper(), "ABS", breaks=~IN_8_6_12,
               outside_ok=ALWAYS if kind == "Atanh" else IN_INT8)
        for kind in ("Sin", "Cos", "Atan", "Atanh")
    ),
    *(
        _unary("unary.int8", kind, "FP16", "INT8", breaks=IN_8_6_12 & IN_FP16,
               outside_ok=IN_8_6_12)
        for kind in ("Sin", "Cos", "Atan")
    ),
    _unary("unary.atanh_unsure", "Atanh", "ATANH", "both sources", breaks=IN_8_6_12, risk=True,
           outside_ok=NEVER),
    _unary("operators.not_exposed", "Atan", "Atan", "both allow", breaks=IN_8_6_12 & IN_INT8,
           risk=True, outside_ok=NEVER),
]  # fmt: skip

CASES = [*ACTIVATION, *ELEMENTWISE, *COMPARISON, *UNARY]
