"""No text of any kind makes the parser fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.buildlog.comparison import compare
from edgekit.buildlog.parser import parse_log
from edgekit.network.model import Network
from edgekit_device.protocol.codec import write
from tests.buildlog.logs import NAMES, text
from tests.buildlog.nets import classifier, judged
from tests.tries import tries

TEXTS = [text(name) for name in NAMES]
PIECES = ["[TRT] ", "[W] ", "DLA ", "{ForeignNode[", "]}", "...", "Layer '", "' (", "): ", "\x1b[",
          " successfully offloaded to DLA.", "[DlaLayer] ", "[GpuLayer] ", "a", " + ", ",", "\n",
          "---------- Layers Running on DLA ----------", "--------------- Layers running on GPU:",
          "Unsupported on DLA", "Managed SRAM = 1 MiB, Local DRAM = 9e9 MiB", "TensorRT-8.5.2",
          "Number of DLA node candidates offloaded : 99999999999999999999 out of 1",
          "PWN("]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=25))
@settings(max_examples=tries(60))
def test_any_text(pieces: list[str]) -> None:
    log = parse_log("".join(pieces).split("\n"))
    assert json.loads(json.dumps(write(log))) == write(log)


@given(st.sampled_from(TEXTS), st.data())
@settings(max_examples=tries(60))
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


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return classifier(Path(tmp_path_factory.mktemp("classifier")))


@given(st.data())
@settings(max_examples=tries(60))
def test_any_log_compares_every_layer_once(net: Network, data: st.DataObject) -> None:
    whole = text("trt103_trtexec_verbose.log").splitlines()
    lines = data.draw(st.lists(st.sampled_from(whole), max_size=60))
    found = compare(net, judged(net), parse_log(lines))
    assert [row.layer for row in found.layers] == [layer.name for layer in net.layers]
    assert sum(found.counts.values()) == len(net.layers)
    # no layer is in two subgraphs
    members = [name for row in found.loadables for name in row.built]
    assert len(members) == len(set(members))
