"""Real logs, where somebody has them: EDGEKIT_LOGS names a folder (and its folders below).

Every ``build_*.txt`` and ``*.log`` that TensorRT wrote is read; one called
``dla_int8_verbose.log`` must be the TensorRT 10.3 build of torchvision's ResNet-50 that
dla/_sources.yaml names ``build_log``, and is held against the prediction; so is every
``detr_dla_*verbose.log`` or ``.log.gz`` (``detr_log``), whose network is rebuilt from it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.buildlog.comparison import compare
from edgekit.buildlog.reading import read_log, read_whole
from tests.buildlog.nets import judged
from tests.dla.dla_nets import cifar, resnet50

FOLDER = os.environ.get("EDGEKIT_LOGS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="EDGEKIT_LOGS names no folder of build logs")


# NVIDIA's jetson_dla_tutorial with a global average, and with average pooling instead
TUTORIAL = {
    "build_dla_trt84_hybrid_two_subgraphs.txt": "GlobalAveragePool",
    "build_dla_trt84_hybrid_one_subgraph.txt": "AveragePool",
}


def test_every_build_log_is_read() -> None:
    files = sorted(Path(FOLDER).rglob("build_*.txt"))
    assert files
    for file in files:
        log = read_log(file)
        said = log.loadables or log.fallbacks or log.gpu_layers or log.notes or log.errors
        assert said, file


def test_every_session_has_its_verdict_and_its_times() -> None:
    sessions = [
        (file, text)
        for file in Path(FOLDER).rglob("*")
        if file.suffix in (".log", ".txt")
        and "&&&& RUNNING" in (text := file.read_text(errors="replace"))
    ]
    assert sessions
    for file, text in sessions:
        whole = read_whole(file)
        found = whole.summary
        passed = True if "&&&& PASSED" in text else False if "&&&& FAILED" in text else None
        assert whole.diagnosis.passed is passed
        if "] Throughput: " in text:
            assert found.throughput_qps
            assert found.times_ms["latency"]["min"] <= found.times_ms["latency"]["p99"]
            assert found.times_ms.keys() == {"latency", "enqueue", "h2d", "compute", "d2h"}


def test_resnet50_agrees_to_the_layer(tmp_path: Path) -> None:
    network = resnet50(tmp_path)
    for file in Path(FOLDER).rglob("dla_int8_verbose.log"):
        found = compare(network, judged(network), read_log(file))
        assert found.counts == {
            "agree": len(network.layers),
            "disagree": 0,
            "slots": 0,
            "unseen": 0,
        }
        assert all(row.same for row in found.loadables)
        assert {p.verdict for row in found.loadables for p in row.pools} <= {
            "right",
            "one power above",
        }
        assert (found.warnings, found.only_builder) == ((), ())


def test_detr_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    from compare_log import compare_network, read_lines

    for file in Path(FOLDER).rglob("detr_dla_*verbose.log*"):
        lines = read_lines(file)
        _, found = compare_network(lines)
        assert found.counts["agree"] >= 0.97 * len(found.layers)
        assert found.loadables[0].same
        assert sum(row.same for row in found.loadables) >= 12
        assert "below" not in {p.verdict for row in found.loadables for p in row.pools}


@pytest.mark.parametrize(("name", "pool"), TUTORIAL.items())
def test_the_tutorial_agrees_to_the_layer(tmp_path: Path, name: str, pool: str) -> None:
    network = cifar(tmp_path, pool)
    for file in Path(FOLDER).rglob(name):
        found = compare(network, judged(network, tensorrt="8.4.0"), read_log(file))
        assert found.counts["agree"] == len(network.layers)
        assert found.only_builder == ()
