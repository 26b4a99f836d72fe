"""Q/DQ nodes between a convolution and the addition that is fused with it."""

from __future__ import annotations

import pytest

from edgekit.quantize.qdq.to_implicit import from_qdq
from tests.quantize.qdq_nets import Sheet, normal, qat, steps_of


def summed(scale: float, end: float, op: str = "Add", *, other: bool = False) -> list[str]:
    """The notes on a convolution with a quantiser, an operator and a quantiser."""
    weight = normal(1, 4, 4, 1, 1)
    sheet = Sheet()
    x = sheet.qdq(sheet.input("x", 1, 4, 8, 8), 0.03)
    c = sheet.qdq(qat(sheet, x, "c", weight, steps_of(weight)), scale)
    last = sheet.node(op, f"{c} {x}" if op == "Add" else c, "last")
    sheet.qdq(last, end)
    if other:
        sheet.node("Sigmoid", c, "side")
    return [
        note
        for note in from_qdq(sheet.model("last_dq", *["side"] * other)).notes
        if "have no effect" in note
    ]


@pytest.mark.parametrize("op", ["Add", "Relu"])
def test_what_may_have_been_cut_off_is_named(op: str) -> None:
    (note,) = summed(0.01, 0.06, op)
    assert "1 tensor (c)" in note


def test_a_range_as_wide_as_that_of_the_sum_only_rounded() -> None:
    assert summed(0.06, 0.06) == []


def test_what_another_kernel_reads_is_rounded_all_the_same() -> None:
    assert summed(0.01, 0.06, other=True) == []
