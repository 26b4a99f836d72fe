"""Prediction against builder: names, placement, slots, pools, reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.buildlog.comparison import compare
from edgekit.buildlog.parser import parse_log
from edgekit.network.model import Network
from tests.buildlog.logs import text
from tests.buildlog.nets import classifier, judged

VERBOSE = "trt103_trtexec_verbose.log"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return classifier(Path(tmp_path_factory.mktemp("classifier")))


def test_disagreement_both_ways(net: Network) -> None:
    said = (
        text(VERBOSE)
        .replace("[DlaLayer] /stem/Relu", "[GpuLayer] ACTIVATION: /stem/Relu")
        .replace(".../stem/Relu", "")
        .replace("Layer(ACTIVATION): /stem/Relu,", "Layer(REDUCE): /pool/GlobalAveragePool,")
        .replace("[GpuLayer] REDUCE: /pool/GlobalAveragePool", "[DlaLayer] /pool/GlobalAveragePool")
    )
    found = compare(net, judged(net), parse_log(said.splitlines()))
    wrong = {layer.layer: (layer.predicted, layer.builder) for layer in found.disagreements}
    assert wrong == {
        "/stem/Relu": ("DLA", "GPU"),
        "/pool/GlobalAveragePool": ("GPU", "DLA"),
    }
    row = found.loadables[0]
    assert (row.same, row.only_predicted, row.only_builder) == (
        False,
        ("/stem/Relu",),
        ("/pool/GlobalAveragePool",),
    )
