"""Folded batch normalisations to the bit, against roundings done with exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from edgekit_device.tensorrt.weights import fold_batch_norm

BITS = {"float32": 24, "float16": 11, "bfloat16": 8}
LEAST = {"float32": -149, "float16": -24, "bfloat16": -133}


def rounded(value: float | Fraction, kind: str) -> Fraction:
    """To a type's nearest number: half takes the outer one of two as near, the others the even."""
    exact = Fraction(value)
    if not exact:
        return exact
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += -1 if size < Fraction(2) ** exponent else 0
    unit = Fraction(2) ** max(exponent - BITS[kind] + 1, LEAST[kind])
    steps = size / unit
    whole = int(steps + Fraction(1, 2)) if kind == "float16" else round(steps)
    return whole * unit if exact > 0 else -whole * unit


def single(value: Fraction) -> Fraction:
    return rounded(value, "float32")


def by_hand(kind: str, numbers: list[Fraction], epsilon: float) -> tuple[Fraction, Fraction]:
    scale, bias, mean, variance = numbers
    small = rounded(Fraction(float(np.float32(epsilon))), kind)
    total = np.float32(float(single(variance + small)))
    root = Fraction(float(np.sqrt(total)))  # IEEE's square root is exact to the last bit
    factor = rounded(single(scale / root), kind)
    return factor, rounded(single(bias - single(mean * factor)), kind)


def stored(kind: str, values: list[Fraction]) -> np.ndarray:
    floats = np.array([float(value) for value in values], np.float32)
    if kind == "bfloat16":
        return (floats.view(np.uint32) >> 16).astype(np.uint16)
    return floats.astype(kind)


def exact(kind: str, array: np.ndarray) -> list[Fraction]:
    if kind == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return [Fraction(float(value)) for value in array]


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-3])
def test_every_step_is_rounded_as_the_importer_does(kind: str, epsilon: float) -> None:
    rng = np.random.default_rng(5)
    drawn = rng.normal(0, 1, (4, 400))
    drawn[3] = np.abs(drawn[3]) ** 3  # small variances, where epsilon tells
    given = [[rounded(float(value), kind) for value in row] for row in drawn]
    arrays = [stored(kind, row) for row in given]
    found = [exact(kind, array) for array in fold_batch_norm(arrays, [kind] * 4, epsilon)]
    expected = [by_hand(kind, list(column), epsilon) for column in zip(*given, strict=True)]
    assert list(zip(*found, strict=True)) == expected


def test_half_rounds_ties_away_from_zero() -> None:
    scale, tie = np.array([1.0, 1.0], np.float16), np.array([2048.0, -2048.0], np.float16)
    one = np.array([1.0, -1.0], np.float16)
    variance = np.array([1.0, 1.0], np.float16)
    _, bias = fold_batch_norm([scale, tie, -one, variance], ["float16"] * 4, 0.0)
    assert bias.tolist() == [2050.0, -2050.0]  # 2049 is a tie, whose even neighbour is 2048


def test_mixed_types_are_folded_in_float32() -> None:
    arrays = [np.ones(2, np.float16), *(np.full(2, value, np.float32) for value in (0.5, 3, 2))]
    factor, bias = fold_batch_norm(arrays, ["float16", "float32", "float32", "float32"], 1e-5)
    assert (factor.dtype, bias.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(factor, 1 / np.sqrt(2.00001), rtol=1e-6)


def test_parameters_of_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in size"):
        fold_batch_norm([np.ones(2), np.ones(3), np.ones(2), np.ones(2)], ["float32"] * 4, 0.0)
