"""What `edgekit check` and `edgekit explain` print: complete, in eighty columns, and harmless."""

import re

from edgekit.placement.check_document import LayerCheck
from edgekit.reports.terminal.check import (
    check_one_layer,
    summary_check,
)
from edgekit_device.protocol.codec import read
from tests.reports import handmade_run
from tests.reports.handmade_check import document, layer, loadable, sparse_layer


def flat(text):
    return " ".join(text.split())


def test_colours_only_where_requested():
    assert "\x1b[" not in summary_check(document())
    coloured = summary_check(document(), colour=True)
    assert "\x1b[1;33m1 of 3 layers" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == summary_check(document())


def one_layer(**changes):
    return read(LayerCheck, {
        "schema": "edgekit.layer/1", "model": "net.onnx", "target": "jetson-agx-orin-64gb",
        "precision": "int8", "tensorrt": "10.3", "name": "fc", "folded": None, "loadable": None,
        "layers": [{
            **layer("fc", ok=False, reasons=[handmade_run.SHUFFLE], kind="CONVOLUTION"),
            "op": "Gemm", "precision": "int8", "params": {"kernel": [1, 1], "bias": True},
            "inputs": [{"name": "x", "shape": [1, 64, 7, 7], "dtype": "float32"}],
            "outputs": [{"name": "y", "shape": [], "dtype": "float32"}], "weights": ["w"],
            "predicted_us": 2.0, "loadable": None,
            "cbuf": {"layer": "fc", "banks": 3, "available": 16, "near": False, "source": "",
                     "fix": ""},
            "sparsity": sparse_layer("fc", macs_saved=1200), **changes,
        }],
    })  # fmt: skip


def test_one_layer_in_full():
    text = flat(check_one_layer(one_layer()))
    for part in (
        "CONVOLUTION (ONNX Gemm), INT8",
        "nodes node/fc",
        "reads x 1x64x7x7 float32",
        "writes y scalar float32",
        "kernel 1x1, bias yes",
        "3 of 16 banks",
        "2:4 sparsity possible, saves up to 1.20 k MACs (predicted)",
        "2.00 µs on the GPU, not measured",
        "cannot run on the DLA",
        "fix: keep the 1x1",
        "source: TensorRT documentation",
    ):
        assert part in text, part


def test_one_layer_of_a_loadable_and_one_without_a_slot():
    needs = {"managed_sram": 1 << 20, "local_dram": 1 << 22, "global_dram": 1 << 26}
    whole = loadable(number=0, layers=["x"] * 7, need=needs)
    yes = {"ok": True, "certainty": "certain", "reasons": []}
    text = flat(check_one_layer(one_layer(dla=yes, placed="DLA", loadable=whole)))
    assert "loadable 7 layers, {ForeignNode[a...b]}" in text
    assert "SRAM 1 MiB, local DRAM 4 MiB, global DRAM 64 MiB" in text
    text = flat(
        check_one_layer(one_layer(dla=yes, nodes=[], cbuf=None, predicted_us=None, sparsity=None))
    )
    assert "larger loadables take all slots (memory.loadables)" in text
    large = one_layer(dla=yes, dropped="memory.weights")
    assert "its loadable is too large (memory.weights)" in flat(check_one_layer(large))
    assert "inserted for node/fc" in text
    assert "CBUF" not in text
    assert "predicted" not in text
