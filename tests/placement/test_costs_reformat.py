"""Reformats keep to reason where little or nothing was measured."""

from __future__ import annotations

import itertools

import pytest

from edgekit.placement.costs.kernel_costs import Layout, padded_bytes
from edgekit.placement.costs.reformat import fixed_us, moving_us, reformat_constants

LAYOUTS: tuple[Layout, ...] = (
    ("int8", "LINEAR"),
    ("int8", "CHW32"),
    ("int8", "DLA_LINEAR"),
    ("int8", "DLA_HWC4"),
    ("fp16", "LINEAR"),
    ("fp16", "CHW16"),
    ("fp16", "DLA_LINEAR"),
    ("fp16", "HWC8"),
    ("fp32", "LINEAR"),
)
PAIRS = [pair for pair in itertools.product(LAYOUTS, LAYOUTS) if pair[0] != pair[1]]
SHAPES = [(1, 3, 224, 224), (1, 3, 225, 225), (1, 256, 56, 56), (1, 64, 112, 112), (1, 512, 99, 7)]


def pairs_of(shape: tuple[int, ...]) -> list[tuple[Layout, Layout]]:
    return [pair for pair in PAIRS if shape[1] <= 4 or "DLA_HWC4" not in (pair[0][1], pair[1][1])]


def us(shape: tuple[int, ...], source: Layout, goal: Layout) -> float:
    return fixed_us() + moving_us(shape, source, goal, "2.0")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pair_is_within_a_factor_of_5_of_any_pair(shape: tuple[int, ...]) -> None:
    rates = reformat_constants().us_per_megabyte_of_any_pair
    for source, goal in pairs_of(shape):
        read, written = (padded_bytes(shape, layout) / 1e6 for layout in (source, goal))
        if read + written > 0.1:
            usual = read * rates.read[source[0]] + written * rates.written[goal[0]]
            assert moving_us(shape, source, goal, "2.0") <= 5.001 * usual, (source, goal)
            # a vector's sectors without real channels are not read
            least = written * rates.written[goal[0]] / 5
            assert moving_us(shape, source, goal, "2.0") >= 0.999 * least, (source, goal)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_pair_of_types_takes_many_times_another(shape: tuple[int, ...]) -> None:
    by_types: dict[tuple[str, str, int, int], list[float]] = {}
    for source, goal in pairs_of(shape):
        sizes = (padded_bytes(shape, source), padded_bytes(shape, goal))
        by_types.setdefault((source[0], goal[0], *sizes), []).append(us(shape, source, goal))
    assert max(max(found) / min(found) for found in by_types.values()) < 6


def test_a_larger_tensor_takes_no_less_and_a_line_more_no_multiple() -> None:
    for source, goal in PAIRS:
        channels = 3 if "DLA_HWC4" in (source[1], goal[1]) else 48
        for width in (32, 33):
            sizes = [(1, channels, high, width) for high in (4, 16, 100, 500)]
            times = [us(shape, source, goal) for shape in sizes]
            assert times == sorted(times)
        whole, odd = (us((1, 3, size, size), source, goal) for size in (224, 225))
        assert odd < 4 * whole, (source, goal)


def test_reformats_that_four_kernels_of_64_bytes_spoke_for() -> None:
    # 2,007 and 851 us before, from rates of 8,961 and 981 us per megabyte
    assert us((1, 3, 225, 225), ("int8", "DLA_HWC4"), ("fp16", "HWC8")) < 100
    assert us((1, 256, 56, 56), ("int8", "LINEAR"), ("fp16", "HWC8")) < 100
