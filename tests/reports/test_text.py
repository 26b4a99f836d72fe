import math

import pytest

from edgekit.reports import text
from edgekit.text import counted, percent


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 µs"),
        (0.5, "500 ns"),
        (41.26, "41.3 µs"),
        (999.4, "999 µs"),
        (999.6, "1.00 ms"),
        (2412.0, "2.41 ms"),
        (3_210_000.0, "3.21 s"),
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_microseconds(value, words):
    assert text.microseconds(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 B"),
        (700, "700 B"),
        (4096, "4 KiB"),
        (1 << 20, "1 MiB"),
        (412_345, "403 KiB"),
        (655_680 << 10, "640 MiB"),
        (99_999 << 10, "99,999 KiB"),
        (27_412_345, "26.1 MiB"),
        (5 << 30, "5 GiB"),
        (None, "-"),
    ],
)
def test_sizes(value, words):
    assert text.size(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (9.999, "10.0"),
        (0.09996, "0.100"),
        (1234.5, "1,230"),
        (-12.34, "-12.3"),
        (1.234e-7, "1.23e-07"),
        (0.00012345, "0.000123"),
    ],
)
def test_significant_digits(value, words):
    assert text.significant(value) == words


def test_counts_and_percentages():
    assert counted(1, "layer") == "1 layer"
    assert counted(1200, "layer") == "1,200 layers"
    assert percent(0.98149) == "98.1 %"
    assert percent(1.0) == "100.0 %"
    assert percent(0.9997) == ">99.9 %"
    assert percent(0.0) == "0.0 %"
    assert percent(0.0001) == "<0.1 %"
    assert text.macs(4_089_000_000) == "4.09 G"
    assert text.macs(12) == "12"
    assert text.energy(21_400.0) == "21.4 mJ"
    assert text.seconds(0.0421) == "42.1 ms"


def test_clean_shows_what_would_hide():
    assert text.clean("a\x1b[31mb\n\u202ec\ud800") == "a\\x1b[31mb\\n\\u202ec\\ud800"
    assert text.clean("Größe/层 1") == "Größe/层 1"
