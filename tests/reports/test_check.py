"""What `edgekit check` and `edgekit explain` print: complete, in eighty columns, and harmless."""

import dataclasses
import re

from edgekit.dla.memory import LoadableMemory
from edgekit.placement.check_document import LayerCheck, SparsityCheck
from edgekit.reports.terminal.check import (
    check_layers,
    check_one_layer,
    sparsity_text,
    summary_check,
)
from edgekit_device.protocol.codec import read, write
from tests.reports import handmade_run
from tests.reports.handmade_check import NO_SPARSITY, POOLS, document, fix, layer, loadable, raw

LONG = "/backbone/stage_with_a_long_name/" * 4 + "Conv"


def flat(text):
    return " ".join(text.split())


def test_the_verdict_says_layers_time_loadables_and_transitions():
    text = flat(summary_check(document()))
    assert "jetson-agx-orin-64gb, INT8, TensorRT 10.3" in text
    assert "1 of 3 layers and 33.3 % of the MACs run on the DLA" in text
    assert (
        "1 loadable of 3 candidates (limit 16 per core); 2 transitions between GPU and DLA" in text
    )
    assert "predicted latency 200 µs, 25.0 % of it on the DLA" in text
    assert "GPU alone 320 µs (30W, not measured)" in text
    assert "Sources disagree on 1 verdict (--by-layer shows them)" in text
    assert "note: The clock is not known" in text


def test_reasons_are_grouped_by_rule_with_example_fix_and_source():
    text = summary_check(document())
    assert text.index("softmax.orin-axis  2 layers") < text.index("shuffle.flatten  1 layer")
    assert text.count("SoftMax over 1000 elements") == 1
    for part in ("prob: SoftMax", "fix: leave the SoftMax out", "source: TensorRT documentation"):
        assert part in text


def test_fixes_are_reported_with_what_they_gain_and_which_rewrite_does_it():
    text = flat(summary_check(document(loadables=3)))
    faster, rest = text.split("Fixes that put more layers on the DLA but may not be faster")
    assert "Fixes that shorten the predicted latency" in faster
    saved = "saves 40.0 µs (latency with automatic placement 160 µs), 1 loadable"
    assert f"1. softmax.orin-axis, 1 layer: {saved}" in faster
    assert "apply with edgekit rewrite: soft" in faster
    assert "softmax.orin-axis and shuffle.flatten together: saves 60.0 µs" in faster
    # what only lets more run there has no saving, and the GPU's own time beside its own
    placed = "latency with automatic placement 203 µs (predicted; GPU alone 320 µs)"
    assert f"2. shuffle.flatten, 1 layer: {placed}" in rest
    assert "saves" not in rest


def test_without_a_saving_fixes_are_of_legality_alone():
    fixes = [
        fix("shuffle.batch", gain=None, auto=204.0, loadables=1, candidates=2, share=0.9),
        fix("reduce.function", gain=None, auto=200.0, loadables=2),
    ]
    text = flat(summary_check(document(loadables=2, fixes=fixes, fixes_together=None)))
    assert "shorten the predicted latency" not in text
    assert "saves" not in text
    further = text.split("Fixes that put more layers on the DLA but may not be faster")[1]
    assert "1 loadable instead of 2 (of 2 candidates), 90.0 % of the MACs on the DLA" in further
    assert "2. reduce.function, 1 layer: latency with automatic placement 200 µs" in further
    both = fix("shuffle.flatten", "shuffle.batch", gain=9.0, auto=191.0)
    text = flat(summary_check(document(fixes=fixes, fixes_together=both)))
    faster = text.split("Fixes that put more layers")[0]
    saved = "saves 9.00 µs (latency with automatic placement 191 µs)"
    assert f"shuffle.flatten and shuffle.batch together: {saved}" in faster


def test_at_most_three_fixes_are_shown():
    fixes = [fix(f"a.r{i}", gain=10.0 - i, auto=100.0) for i in range(5)]
    text = summary_check(document(fixes=fixes, fixes_together=None))
    assert "a.r2," in text
    assert "a.r3," not in text


def test_no_prediction_and_no_dla_are_reported_without_inventing_times():
    nothing = document(
        predicted=None, fixes=[fix("shuffle.flatten", gain=None)], fixes_together=None
    )
    text = summary_check(nothing)
    assert "predicted" not in text
    assert "saves" not in text
    assert "Fixes that put more layers on the DLA" in text
    alone = {**raw()["predicted"], "dla_us": 0.0, "auto_us": 320.0}
    text = summary_check(document(predicted=alone, fixes=[], fixes_together=None))
    assert "predicted latency 320 µs, all on the GPU" in text
    assert "Fixes" not in text


def test_the_gpu_is_named_where_it_is_faster():
    slow = {**raw()["predicted"], "auto_us": 500.0}
    assert "The GPU alone is predicted to be faster" in flat(
        summary_check(document(predicted=slow))
    )
    assert "predicted to be faster" not in flat(summary_check(document()))


def test_broken_memory_limits_are_reported():
    limit = {
        "pool": "global_dram",
        "rule": "memory.weights",
        "need": 600 << 20,
        "limit": 512 << 20,
        "documented": 600 << 20,
        "source": "NvInfer.h",
        "fix": "cut the network",
    }
    refused = loadable(broken=[limit])
    told = read(LoadableMemory, refused).refusal
    assert told.startswith("{ForeignNode[a...b]} stays on the GPU (2 layers, predicted): it needs")
    warnings = [told, "{ForeignNode[a...b]} is told something else"]
    text = flat(summary_check(document(memory_refused=[refused], warnings=warnings)))
    assert text.count("note:") == 1  # the memory is told above
    assert "note: {ForeignNode[a...b]} is told something else" in text
    assert "memory.weights {ForeignNode[a...b]} needs 600 MiB of global DRAM" in text
    assert "at most 512 MiB fix: cut the network source: NvInfer.h" in text
    assert "and 2 more limits" in summary_check(document(memory_refused=[refused] * 7))
    assert "Memory" not in summary_check(document(memory=[loadable("c")]))


def test_the_pools_of_the_largest_loadable_and_of_a_core_are_reported():
    """The largest pool may be another loadable's; what a core adds up is the core's word."""
    need = {"managed_sram": 1 << 20, "local_dram": 8 << 20, "global_dram": 4 << 20}
    one = loadable("a", need=need)
    other = loadable("a", need={**need, "local_dram": 2 << 20, "global_dram": 64 << 20})
    core = {
        "need": {"managed_sram": 1 << 20, "local_dram": 10 << 20, "global_dram": 68 << 20},
        "limits": POOLS,
    }
    text = flat(summary_check(document(memory=[one], memory_core=core)))
    assert "SRAM 1 MiB of 1 MiB, local DRAM 8 MiB of 1 GiB, global DRAM 4 MiB of 512" in text
    assert "on a core" not in text
    assert "disagree on the default" not in text
    disputes = {"managed_sram": "half of it"}
    both = document(memory=[one, other], memory_core=core, memory_disputes=disputes)
    text = flat(summary_check(both))
    assert "local DRAM 8 MiB of 1 GiB, global DRAM 64 MiB of 512 MiB for the largest" in text
    assert "local DRAM 10 MiB, global DRAM 68 MiB for all 2 on a core" in text
    assert "Sources disagree on the default SRAM size" in text


def test_layers_without_a_slot_have_a_reason():
    lost = {
        "rule": "memory.loadables",
        "message": "2 layers could run",
        "found": "2 layers",
        "limit": "16 loadables",
        "source": "the guide",
        "fix": "mend",
        "layers": ["a", "b"],
    }
    rows = [layer("a", placed="GPU"), layer("b", placed="GPU")]
    text = flat(summary_check(document(layers=rows, without_slot=lost, warnings=[lost["message"]])))
    assert "memory.loadables 2 layers a: 2 layers could run fix: mend source: the guide" in text
    assert "note:" not in text


def test_an_inserted_layer_is_reported_by_its_name_with_its_origin():
    inserted = {**layer("reshape", ok=False, reasons=[handmade_run.SHUFFLE]), "nodes": []}
    text = flat(summary_check(document(layers=[inserted])))
    assert "reshape (from node/reshape): " in text


def test_fixes_that_differ_are_reported_with_their_counts():
    other = dataclasses.replace(handmade_run.SHUFFLE, fix="do something else")
    rows = [layer(name, ok=False, reasons=[handmade_run.SHUFFLE]) for name in "ab"]
    text = flat(summary_check(document(layers=[layer("c", ok=False, reasons=[other]), *rows])))
    assert f"fix (2 layers): {handmade_run.SHUFFLE.fix} fix (1 layer): do something else" in text


def test_a_disputed_yes_says_why():
    row = layer("pool", certainty="disputed", reasons=[handmade_run.SHUFFLE])
    text = summary_check(document(layers=[row]))
    assert "On the DLA, but sources disagree" in text
    assert "Why layers cannot run on the DLA" not in text
    assert "shuffle.flatten  1 layer" in text


def test_nothing_is_wider_than_requested_and_nothing_is_an_escape():
    hostile = layer("\x1b]0;title\x07" + LONG, ok=False, reasons=[handmade_run.REASON])
    for text in (
        summary_check(document(layers=[hostile])),
        summary_check(document(layers=[hostile]), width=40),
        check_layers(document(layers=[hostile]), width=80),
    ):
        assert "\x1b" not in text
        assert "\\x1b]0;title" in text
    assert max(map(len, summary_check(document(layers=[hostile])).splitlines())) <= 80


def test_colours_only_where_requested():
    assert "\x1b[" not in summary_check(document())
    coloured = summary_check(document(), colour=True)
    assert "\x1b[1;33m1 of 3 layers" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == summary_check(document())


def test_the_table_has_a_line_for_each_layer_and_never_cuts_a_name():
    rows = [
        layer(LONG),
        layer("slot", placed="GPU"),
        layer("prob", ok=False, certainty="disputed", reasons=[handmade_run.REASON]),
    ]
    head, first, second, third, _, *rest = check_layers(document(layers=rows)).splitlines()
    assert "for starting loadables" in " ".join(rest)
    columns = ["layer", "kind", "on", "MACs", "predicted", "certainty", "rule"]
    assert head.split() == columns
    assert first.startswith(LONG)
    assert second.endswith("memory.loadables")
    assert third.split()[-2:] == ["disputed", "softmax.orin-axis"]
    assert "17.0 µs" in third
    # on a terminal names stay whole: others go first, then the name has its own line
    head, name, rest, *_ = check_layers(document(layers=rows), width=80).splitlines()
    assert name == LONG
    assert rest.split() == ["SOFTMAX", "DLA", "-"]
    assert head.split() == ["layer", "kind", "on", "rule"]
    fits = check_layers(document(layers=rows[1:]), width=56).splitlines()
    assert fits[0].split() == ["layer", "kind", "on", "certainty", "rule"]
    assert max(map(len, fits)) <= 56


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
            "sparsity": sparse("fc", macs_saved=1200), **changes,
        }],
    })  # fmt: skip


def sparse(name, **changes):
    return {
        "layer": name,
        "possible": True,
        "certainty": "certain",
        "reasons": [],
        "macs": 1000,
        "macs_saved": 500,
        "weight_bytes": 0,
        "weight_bytes_saved": 0,
        "present": True,
        "share": 1.0,
        **changes,
    }


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


def whole_sparsity(report):
    head = {key: raw()[key] for key in ("model", "target", "precision", "tensorrt")}
    return read(SparsityCheck, {**report, **head, "schema": "edgekit.sparsity/1"})


def test_sparsity_is_reported_by_convolution():
    reason = {**write(handmade_run.REASON), "rule": "sparsity.channels"}
    other = sparse("stem", possible=False, share=0.25, macs_saved=0, reasons=[reason])
    report = {
        **NO_SPARSITY,
        "convolutions": [sparse("conv"), other],
        "possible": 1,
        "present": 1,
        "macs": 2000,
        "macs_saved": 500,
        "seconds_saved": 2e-6,
        "pays": True,
    }
    text = sparsity_text(whole_sparsity(report))
    assert "1 of 2 convolutions on the DLA could have 2:4 sparse weights" in flat(text)
    assert "at most 2.00 µs saved (predicted)" in flat(text)
    assert ["conv", "yes", "100.0", "%", "500", "-"] in [line.split() for line in text.splitlines()]
    assert text.splitlines()[-1].split() == ["stem", "no", "25.0", "%", "0", "sparsity.channels"]
    nothing = {**report, "convolutions": [], "possible": 0, "present": 0}
    assert len(sparsity_text(whole_sparsity(nothing)).splitlines()) == 1
    line = summary_check(document(sparsity=report))
    assert "2:4 sparse weights in 1 convolution would save up to 2.00 µs (predicted" in flat(line)
    assert "sparse" not in summary_check(document(sparsity=nothing))
    little = {**report, "pays": False}
    assert "sparse" not in summary_check(document(sparsity=little))
    assert "no shorter latency (predicted)" in flat(sparsity_text(whole_sparsity(little)))
    assert "2.00 µs" not in sparsity_text(whole_sparsity(little))
