"""scripts/compare_log.py: a network rebuilt from a log, and what the builder makes of attention."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from edgekit.buildlog.parser import parse_log
from edgekit.dla.judge import judge
from edgekit.targets.loader import get
from tests.buildlog.attention_log import attention_log

SCRIPTS = Path(__file__).parents[2] / "scripts"
ORIN = get("jetson-agx-orin-64gb")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import compare_log

    return compare_log


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_attention_is_placed_as_the_builder_places_it(script: ModuleType, precision: str) -> None:
    """Shuffles, candidates, slots: three products that stand side by side are one loadable, those
    of the next block are another, and in INT8 only those join that read one tensor."""
    lines = attention_log(precision)
    network, found = script.compared(lines)
    wrong = [(x.layer, x.predicted, x.builder) for x in found.layers if x.status != "agree"]
    assert wrong == []
    log = parse_log(lines)
    assert len(found.layers) == len(log.capable) + len(log.gpu_layers)
    assert [row.same for row in found.loadables] == [True] * 16
    assert (found.only_builder, found.warnings) == ((), ())
    assert {p.verdict for row in found.loadables for p in row.pools} == {"right"}
    judgement = judge(network, ORIN, precision=precision, tensorrt="10.3")
    assert log.accepted == (16, len(judgement.candidates))
    sizes = Counter(len(group.layers) for group in judgement.candidates)
    assert (sizes[3] > 0) == (precision == "fp16")


def test_what_the_log_says_otherwise_is_reported(script: ModuleType) -> None:
    said = "\n".join(attention_log("fp16")).replace(
        "[DlaLayer] /encoder.1/Add_1", "[GpuLayer] ELEMENTWISE: /encoder.1/Add_1"
    )
    said = said.replace("Switching to GPU for layer /encoder.1/Add_1\n", "nothing\n")
    _, found = script.compared(said.splitlines())
    assert [layer.layer for layer in found.disagreements] == ["/encoder.1/Add_1"]


def test_it_reads_packed_logs_and_prints(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "build.log.gz"
    path.write_bytes(gzip.compress("\n".join(attention_log("int8")).encode()))
    monkeypatch.setattr("sys.argv", ["compare_log.py", str(path)])
    script.main()
    printed = capsys.readouterr().out
    assert "agree (100.0%)" in printed
    assert "16 loadables are the same" in printed
    path.write_text("[I] nothing\n")
    with pytest.raises(SystemExit, match="no lines of the ONNX parser"):
        script.main()
