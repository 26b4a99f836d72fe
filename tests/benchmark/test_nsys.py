import json

import pytest

from edgekit.benchmark.trace.chrome import validate_trace
from edgekit.benchmark.trace.layers import linked_layers
from edgekit.benchmark.trace.nsys import NsysSource
from edgekit.benchmark.trace.nsys_export import open_export
from edgekit.benchmark.trace.sources import write_trace
from tests.benchmark import handmade_plan
from tests.benchmark.nsys_export import Writer, engine_run


def traced(path, out, linked=None):
    """Returns the trace of an export, the source, and slices by track."""
    export = open_export(path)
    try:
        source = NsysSource(export, path.name, linked)
        write_trace(out, [source], {"name": "t"})
    finally:
        export.close()
    document = json.loads(out.read_text())
    assert validate_trace(document) == []
    names = {
        e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"
    }
    slices = {}
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            slices.setdefault(names[event["tid"]], []).append(event)
    return document, source, slices


def test_threads_kernels_copies_and_metrics_are_tracks(tmp_path):
    path = engine_run(tmp_path / "a.sqlite")
    document, _, slices = traced(path, tmp_path / "t.json")
    assert list(slices) == ["CPU process 700 thread 701", "copies GPU0 stream 7", "GPU0 stream 7"]
    assert [s["name"] for s in slices["GPU0 stream 7"]] == ["sm80_conv_kernel", "relu_kernel"]
    assert [s["name"] for s in slices["copies GPU0 stream 7"]] == ["HtoD", "DtoH"]
    active = [e for e in document["traceEvents"] if e["name"] == "DLA0 Active"]
    assert [e["args"]["value"] for e in active] == [57.0] * 9
    assert active[1]["ts"] == 100.0


def test_a_kernel_belongs_to_the_tensorrt_layer_that_launched_it(tmp_path):
    path = engine_run(tmp_path / "a.sqlite")
    document, _, slices = traced(path, tmp_path / "t.json")
    first, second = slices["GPU0 stream 7"]
    assert (first["args"]["layer"], second["args"]["layer"]) == ("conv1", "relu2")
    arrows = [e for e in document["traceEvents"] if e["cat"] == "launch"]
    assert [e["ph"] for e in arrows] == ["s", "f", "s", "f"]
    assert [e["ts"] for e in arrows] == [10.0, 30.0, 71.0, 140.0]


def test_a_plan_reports_nodes_segment_and_device_of_what_it_knows(tmp_path):
    plan = handmade_plan.plan()
    layer = plan.layers[0]
    path = tmp_path / "a.sqlite"
    with Writer(path) as out:
        out.domain(1, "TensorRT")
        out.range(layer.name, 1, 50, 1)
        out.kernel("k", (10, 20), 30, 40)
        out.range("no layer of it", 60, 70, 1)
    _, source, slices = traced(path, tmp_path / "t.json", linked_layers(plan))
    args = slices["GPU0 stream 7"][0]["args"]
    assert args["nodes"] == list(layer.nodes)
    assert (args["segment"], args["device"]) == (layer.segment, layer.device)
    assert source.matched == {layer.name}


def test_time_of_a_pc_is_no_board_time(tmp_path):
    clocks = set()
    for board in (True, False):
        path = engine_run(tmp_path / f"{board}.sqlite", board=board)
        document, *_ = traced(path, tmp_path / "t.json")
        clocks |= {
            (board, clock, "not a board" in name)
            for name, clock in document["otherData"]["clocks"].items()
        }
    assert clocks == {(True, "board-measured", False), (False, "cpu-measured", True)}


WHOLE = {"start": "9000400", "end": "9000900", "taskName": "net", "dlaId": "1"}
DRIVER = {"common_pid": "1", "class": "244", "thresh": "9"}
SPELLINGS = {
    "begin and end events": [
        (10, "NVDLA Task Begin", {"task_id": "4", "engine": "dla0"}, None, None),
        (15, "NVDLA Task End", {"task_id": "4", "engine": "dla0"}, None, ("DLA0", 10, 15)),
    ],
    "the driver's events": [
        (10, "nvhost:nvhost_task_begin", DRIVER, None, None),
        (20, "nvhost:nvhost_task_end", DRIVER, None, ("DLA1", 10, 20)),
    ],
    "one event, raw clock": [(900, "DLA task", WHOLE, 9000900, ("DLA1", 400, 900))],
    "one event, its duration": [(400, "dla1_exec", {"duration": 250}, None, ("DLA1", 400, 650))],
    "a phase in its data": [
        (5, "NvMedia DLA0", {"Phase": "Submit", "id": 1}, None, None),
        (9, "NvMedia DLA0", {"Phase": "Complete", "id": 1}, None, ("DLA0", 5, 9)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_tasks_of_a_dla_are_found(spelling, tmp_path):
    """No export with a DLA's events is public: these are ways in which they may be told."""
    path = tmp_path / "a.sqlite"
    expected = []
    with Writer(path) as out:
        out.source(1, Name="Tegra Accelerators")
        out.range("host", 0, 1)
        types = {}
        for at, name, data, raw, found in SPELLINGS[spelling]:
            if name not in types:
                types[name] = 10 + len(types)
                out.type(types[name], 1, Name=name)
            out.event(at, types[name], data, raw)
            expected += [found] if found else []
    _, source, slices = traced(path, tmp_path / "t.json")
    found = [
        (track, round(s["ts"] * 1000), round((s["ts"] + s["dur"]) * 1000))
        for track, all_of in slices.items()
        if track.startswith("DLA")
        for s in all_of
    ]
    assert found == expected
    assert not source.generic.unknown


def test_tasks_that_interleave_come_out_in_order_and_ends_without_begins_do_not(tmp_path):
    path = tmp_path / "a.sqlite"
    with Writer(path) as out:
        out.source(1, Name="DLA")
        out.type(1, 1, Name="dla0_task_begin")
        out.type(2, 1, Name="dla0_task_end")
        out.type(3, 1, Name="sched_switch")
        for at, kind, task in ((1, 1, 7), (2, 1, 8), (3, 2, 8), (4, 2, 7), (5, 2, 99)):
            out.event(at, kind, {"task": task})
    _, _, slices = traced(path, tmp_path / "t.json")
    assert {track: [s["ts"] for s in all_of] for track, all_of in slices.items()} == {
        "DLA0": [0.001, 0.002]
    }


def test_events_of_others_are_counted(tmp_path):
    path = tmp_path / "a.sqlite"
    with Writer(path) as out:
        out.source(1, Name="FTrace")
        out.type(1, 1, Name="irq:irq_handler_entry")
        out.event(3, 1, {"common_pid": "0", "irq": "66"})
        out.range("host", 0, 1)
    _, source, slices = traced(path, tmp_path / "t.json")
    assert dict(source.generic.unknown) == {"irq:irq_handler_entry": 1}
    assert len(slices) == 1


def test_an_engine_s_own_range_is_no_layer(tmp_path):
    """Without profiling verbosity a launch lies in ExecutionContext::enqueue alone."""
    path = tmp_path / "a.sqlite"
    with Writer(path) as out:
        out.domain(1, "TensorRT")
        out.range("ExecutionContext::enqueue", 1, 50, 1)
        out.kernel("k", (10, 20), 30, 40)
    *_, slices = traced(path, tmp_path / "t.json")
    assert "layer" not in slices["GPU0 stream 7"][0]["args"]


def test_copies_are_called_as_the_export_calls_them(tmp_path):
    path = tmp_path / "a.sqlite"
    with Writer(path) as out:
        out.copy(1, 10, 20)
        out.copy(42, 30, 40)
        out.db.execute("CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT)")
        rows = [(42, "CUDA_MEMCPY_KIND_DTOH", "x"), (1, "no such", "x"), (None, None, None)]
        out.db.executemany("INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (?, ?, ?)", rows)
    *_, slices = traced(path, tmp_path / "t.json")
    assert [s["name"] for s in slices["copies GPU0 stream 7"]] == ["HtoD", "DtoH"]


def test_rows_may_be_left_after_the_file_is_closed(tmp_path):
    export = open_export(engine_run(tmp_path / "a.sqlite"))
    rows = export.rows("NVTX_EVENTS", ("start", "end"))
    next(rows)
    export.close()
    rows.close()
