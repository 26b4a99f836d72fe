"""The figures of docs/kernels.md are those of the benchmark as it is."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "pack_kernels", ROOT / "benchmarks" / "pack_kernels.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pack_kernels"] = module
    spec.loader.exec_module(module)
    return module


def test_the_table_has_the_conversions_that_are_measured(benchmark: ModuleType) -> None:
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.* to .*?|all) \|(.*)\|$", page, re.MULTILINE)
    measured = benchmark.cases()
    titles = {benchmark.table_row(shape, pair) for shape, pair in measured}
    assert {title for title, _ in rows} == {*titles, "all"}
    aligned = [shape for shape, _ in measured if benchmark.has_aligned_lines(shape)]
    flat = " ".join(page.split())
    assert f"Of {len(aligned)} conversions of large tensors" in flat
    assert f"are {len(measured) - len(aligned)} conversions of" in flat
    for shape in {shape for shape, _ in measured}:
        assert "x".join(map(str, shape)) in flat
    compared = len(list(benchmark.compared_pairs()))
    assert f"{compared} conversions of odd and even shapes equal NumPy" in flat


def test_what_is_below_the_aim_is_named(benchmark: ModuleType) -> None:
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    worst = dict(re.findall(r"^\| (.* to .*?) \| (\d+) %", page, re.MULTILINE))
    below = {title: share for title, share in worst.items() if int(share) < 100 * benchmark.LEAST}
    assert re.findall(r"^- .*?, (\d+) %", page, re.MULTILINE) == list(below.values())
