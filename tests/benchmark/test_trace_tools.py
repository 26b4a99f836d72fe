"""What TensorRT's own files become on a timeline, and traces that are refused."""

import json

import pytest

from edgekit.benchmark.trace.layers import profile_process
from edgekit.benchmark.trace.sources import (
    PreparedSource,
    read_trace,
    read_trace_or_bench,
)
from edgekit.errors import DataError
from edgekit.placement.profiles.profile import Profile, ProfileRow
from edgekit.placement.profiles.reader import read_profile
from tests.benchmark import handmade_plan, monitor_samples
from tests.benchmark.test_trace_sources import bench, combined


def test_a_profile_s_waits_are_on_their_dla_s_track(tmp_path):
    rows = [
        ("a to nvm", 0.01),
        ("{ForeignNode[a...b]}", 0.01),
        ("{ForeignNode[c...d]}", 0.02),
        ("d_out from nvm", 3.0),
        ("b_out from nvm", 2.0),
        ("softmax", 0.5),
    ]
    path, info = tmp_path / "p.json", tmp_path / "i.json"
    path.write_text(json.dumps([{"name": n, "timeMs": t} for n, t in rows]))
    info.write_text(
        json.dumps(
            {
                "Layers": [
                    {
                        "Name": f"{{ForeignNode[{n}]}}",
                        "LayerType": "DLA",
                        "Outputs": [{"Name": out}],
                    }
                    for n, out in (("a...b", "b_out"), ("c...d", "d_out"))
                ]
            }
        )
    )
    for layer_info, waits in ((info, [2010.0, 3020.0]), (None, [3010.0, 2020.0])):
        profile = read_profile(path, layer_info=layer_info)
        process = profile_process(profile, pid=1, dla_cores=2, core=1)
        document, _ = combined([PreparedSource("p", [process])], tmp_path / "t.json")
        names = {
            e["tid"]: e["args"]["name"]
            for e in document["traceEvents"]
            if e["name"] == "thread_name"
        }
        found = {}
        for event in document["traceEvents"]:
            if event.get("cat") in ("layer", "copy"):
                found.setdefault(names[event["tid"]], []).append(event["dur"])
        assert found["DLA1"] == pytest.approx(waits)
        assert found["GPU"] == [500.0]
        assert found["copies"] == [10.0]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"traceEvents": []}', '{"schema": "edgekit.bench/1"}', "[" * 100_000]
)
def test_what_is_no_trace_or_bench_is_reported(text, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(text)
    for read in (read_trace, read_trace_or_bench):
        with pytest.raises(DataError, match=r"trace|bench|JSON|measured"):
            read(path)


@pytest.mark.parametrize(("key", "value"), [("name", []), ("sort_index", "1"), ("labels", 3)])
def test_names_of_a_trace_are_texts(key, value, tmp_path):
    document = bench(**monitor_samples.measured())
    for event in document["traceEvents"]:
        if event["ph"] == "M" and key in event["args"]:
            event["args"][key] = value
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    with pytest.raises(DataError, match=key):
        read_trace(path)


@pytest.mark.parametrize("clock", [True, "noon", ["predicted"]])
def test_a_bench_of_no_known_clock_is_reported(clock, tmp_path):
    path = tmp_path / "other.json"
    measured = {"schema": "edgekit.bench/1", **handmade_plan.measurement(), "clock": clock}
    path.write_text(json.dumps(measured | {"latency_ms": {"mean": 1.0}}))
    with pytest.raises(DataError, match="its clock"):
        read_trace_or_bench(path)


def test_a_profile_keeps_its_order_in_time(tmp_path):
    rows = [
        ("images to nvm", 0.0852),
        ("{ForeignNode[Conv_0...Concat_198]}", 0.0085),
        ("head_3 from nvm", 7.6931),
        ("images copy finish", 0.0017),
        ("head_2 from nvm", 0.0072),
    ]
    path = tmp_path / "p.json"
    path.write_text(json.dumps([{"name": n, "timeMs": t} for n, t in rows]))
    process = profile_process(read_profile(path), pid=1, dla_cores=1)
    document, _ = combined([PreparedSource("p", [process])], tmp_path / "t.json")
    shown = [e for e in document["traceEvents"] if e.get("cat") in ("layer", "copy")]
    # the wait is in the loadable, after the copy to the DLA
    assert [(e["name"], e["ts"]) for e in sorted(shown, key=lambda e: e["ts"])] == [
        ("images to nvm", 0.0),
        ("{ForeignNode[Conv_0...Concat_198]}", 85.2),
        ("images copy finish", 7786.8),
        ("head_2 from nvm", 7788.5),
    ]


@pytest.mark.parametrize(
    ("kind", "frame", "words"),
    [
        ("log", "sum of the fastest tactics", "no inference was run"),
        ("trtexec", "one inference, as profiled", "durations from a profiler"),
        ("table", "sum of the measured times", "may overlap"),
    ],
)
def test_only_a_profiler_s_times_are_called_a_profiled_inference(kind, frame, words):
    profile = Profile(kind, "f", (ProfileRow("a", 5.0, "GPU"),))
    process = profile_process(profile, pid=1, dla_cores=0)
    assert words in process.label
    _, slices = process.finish()
    assert frame in {event.name for *_, event in slices}
