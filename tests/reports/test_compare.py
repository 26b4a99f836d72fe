"""The comparison as text: narrow, the worst first, never longer than asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.buildlog.comparison import compare
from edgekit.buildlog.parser import parse_log
from edgekit.network.model import Network
from edgekit.reports.terminal.buildlog import render_comparison
from tests.buildlog.logs import lines
from tests.buildlog.nets import classifier, judged, ladder


@pytest.fixture(scope="module")
def rungs(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return ladder(Path(tmp_path_factory.mktemp("ladder")), 14)


def test_agreement(tmp_path: Path) -> None:
    net = classifier(tmp_path)
    log = parse_log(lines("trt103_trtexec_verbose.log"))
    shown = render_comparison(compare(net, judged(net), log))
    assert "agree on 5 of 5 layers." in shown
    assert "Loadables: 2 of 2 the same, layer by layer; 4 of 6 pools right" in shown
    assert "SRAM 1/1, local DRAM 2/2, global DRAM 4/4\n" in shown
    words = " ".join(shown.split())
    assert "SRAM 1/0.5 (one power above), local DRAM 2/2, global DRAM 4/8 (below)" in words
    assert "disagree" not in shown
    assert "head.weight -> /head/Gemm" in shown


def test_disagreements_come_first_and_are_capped(rungs: Network) -> None:
    said = [f"[W] [TRT] Layer 'c{n}' (CONVOLUTION): Unsupported on DLA. Switch" for n in range(14)]
    said.append("[W] [TRT] Layer '\x1b]0;evil\x07\u202eodd' (CAST): Unsupported on DLA. Switch")
    found = compare(rungs, judged(rungs), parse_log(said))
    short = render_comparison(found).splitlines()
    full = render_comparison(found, verbose=True).splitlines()
    start = short.index("Prediction and builder disagree:")
    assert "... and" in "\n".join(short[start:])
    assert len(found.disagreements) > 14 > sum("(CONVOLUTION)" in line for line in short)
    assert sum("(CONVOLUTION)" in line for line in full) == 14
    assert not any("... and" in line for line in full)
    assert max(map(len, [*short, *full])) <= 80
    assert "\x1b" not in "".join(full)
    assert "\u202e" not in "".join(full)


def test_nothing_to_compare(rungs: Network) -> None:
    shown = render_comparison(compare(rungs, judged(rungs), parse_log(["[I] DLACore: "])))
    assert shown.startswith("The log places none of the")
    assert "Not in the log" not in shown


def test_long_names_keep_both_ends(tmp_path: Path) -> None:
    net = classifier(tmp_path)
    name = "/a" + "/deep" * 60 + "/z"
    log = parse_log([f"[W] [TRT] Layer '{name}' (CAST): Unsupported on DLA. Switching"])
    row = next(
        line
        for line in render_comparison(compare(net, judged(net), log)).splitlines()
        if "/deep" in line
    )
    assert len(row) == 80
    assert row.startswith("  /a/deep")
    assert row.endswith("/deep/z")
