import json

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
        write_trace(out, [source], name="t")
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
