"""What is set of TensorRT when engines run: rows, and what a board cannot have."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
import yaml

from edgekit.knowledge import data_folder
from edgekit.targets.loader import get
from edgekit.tensorrt.releases import release, release_facts
from edgekit.tensorrt.runtime_settings import dropped_settings, runtime_rows
from edgekit_device.protocol.manifest import MemorySettings

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"
ALL = MemorySettings(shared=False, persistent_cache=0.5, weight_budget=64)


def test_rows_name_what_exists() -> None:
    sections = yaml.safe_load((data_folder("trt") / "guide.yaml").read_text())["contents"]
    for name, row in runtime_rows().items():
        assert row.guide in sections
        assert set(row.names) <= set(release_facts().names), name
        assert re.fullmatch(r"[\w .]+", row.where[0])
    # each of a bundle's settings has a row
    assert {field.name for field in fields(MemorySettings)} <= set(runtime_rows())


@pytest.mark.parametrize(
    ("board", "tensorrt", "dropped"),
    [
        (ORIN, "10.3", []),
        (ORIN, "11.4.1", []),
        (ORIN, "8.6", ["weight_streaming_budget_v2"]),
        (XAVIER, "8.5.2", ["compute capability 7.2", "weight_streaming_budget_v2"]),
    ],
)
def test_what_a_board_cannot_have_is_told(board: str, tensorrt: str, dropped: list[str]) -> None:
    notes = dropped_settings(ALL, release(tensorrt), get(board))
    told = [next(word for word in dropped if word in note) for note in notes]
    assert sorted(told) == sorted(dropped)
    # what was not asked for is not told
    assert dropped_settings(MemorySettings(), release(tensorrt), get(board)) == ()
