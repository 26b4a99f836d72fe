"""No text of any kind makes the parser fail."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.buildlog import parse_log
from tests.buildlog.logs import NAMES, text

TEXTS = [text(name) for name in NAMES]
PIECES = ["[TRT] ", "[W] ", "DLA ", "{ForeignNode[", "]}", "...", "Layer '", "' (", "): ", "\x1b[",
          " successfully offloaded to DLA.", "[DlaLayer] ", "[GpuLayer] ", "a", " + ", ",", "\n",
          "---------- Layers Running on DLA ----------", "--------------- Layers running on GPU:",
          "Unsupported on DLA", "Managed SRAM = 1 MiB, Local DRAM = 9e9 MiB", "TensorRT-8.5.2",
          "Number of DLA node candidates offloaded : 99999999999999999999 out of 1",
          "PWN("]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=25))
@settings(max_examples=60, deadline=None)
def test_any_text(pieces: list[str]) -> None:
    log = parse_log("".join(pieces).split("\n"))
    assert json.loads(json.dumps(log.to_json())) == log.to_json()


@given(st.sampled_from(TEXTS), st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_logs(whole: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(whole)))
        length = data.draw(st.integers(0, 200))
        put = data.draw(st.sampled_from(PIECES) | st.text(max_size=5))
        whole = whole[:start] + put + whole[start + length :]
    lines = whole.split("\n")
    log = parse_log(lines)
    assert log.lines == len(lines)
    names = {layer for loadable in log.loadables for layer in loadable.layers}
    assert all(any(name in line for line in lines) for name in names)
