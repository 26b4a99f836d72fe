"""trtexec beside the loader: the same plans, like compared with like."""

from edgekit.benchmark.trtexec import compare_with_trtexec
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.protocol.codec import read
from tests.benchmark.test_trtexec_times import iteration

CONSOLE = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --loadEngine=plan
[02/03/2026-10:00:00] [I] === Performance summary ===
[02/03/2026-10:00:00] [I] Throughput: 512.5 qps
[02/03/2026-10:00:00] [I] Latency: min = 1.9 ms, max = 2.6 ms, mean = 2.11 ms, median = 2.1 ms, percentile(90%) = 2.2 ms, percentile(95%) = 2.3 ms, percentile(99%) = 2.5 ms
[02/03/2026-10:00:00] [I] GPU Compute Time: min = 1.8 ms, max = 2.4 ms, mean = 2.01 ms, median = 2.0 ms, percentile(90%) = 2.1 ms, percentile(95%) = 2.2 ms, percentile(99%) = 2.3 ms
[02/03/2026-10:00:00] [W] * GPU compute time is unstable, with coefficient of variance = 3.4%.
&&&& PASSED TensorRT.trtexec [TensorRT v100300] # trtexec --loadEngine=plan
"""  # noqa: E501


def board(**changes):
    one = {
        "lane": 0,
        "index": 1,
        "device": "GPU",
        "command": "trtexec",
        "status": 0,
        "console": CONSOLE,
        "times": None,
        "why": None,
        **changes,
    }
    return {"program": "/usr/src/tensorrt/bin/trtexec", "why": None, "engines": [one]}


def ours(clock="gpu", median=2.1):
    segment = {"lane": 0, "index": 1, "device": "GPU", "latency_ms": {"median": median}}
    return {"segments_clock": clock, "segments": [segment]}


def only(answer, measurement):
    found = compare_with_trtexec(read(Measurement, {**measurement, "trtexec": answer}))
    (engine,) = found.to_json()["engines"]
    return engine


def test_events_stand_next_to_compute_and_the_hosts_clock_next_to_latency():
    found = only(board(), ours())
    assert (found["compared"], found["trtexec_ms"]) == ("compute", 2.0)
    assert abs(found["difference"] - 0.05) < 1e-9
    assert found["throughput_qps"] == 512.5
    assert "unstable" in found["warnings"][0]
    found = only(board(), ours("cpu"))
    assert (found["compared"], found["trtexec_ms"], found["difference"]) == ("latency", 2.1, 0.0)


def test_single_times_say_more_than_the_console():
    text = "[\n  " + "\n, ".join(iteration(computeMs=n) for n in (1, 2, 3)) + "\n]\n"
    found = only(board(times=text), ours(median=2.0))
    assert found["difference"] == 0.0
    assert found["times_ms"]["compute"]["p999"] == 3.0


def test_what_did_not_run_says_why():
    loadable = board(console="", command=None, status=None, why="trtexec cannot run a DLA loadable")
    assert only(loadable, ours())["why"] == "trtexec cannot run a DLA loadable"
    failed = "[02/03/2026-10:00:00] [E] Error[1]: no such plan\n&&&& FAILED TensorRT.trtexec\n"
    found = only(board(console=failed, why="trtexec failed with exit status 1"), ours())
    assert found["why"] == "trtexec failed with exit status 1: Error[1]: no such plan"
    assert found["difference"] is None
    assert only(board(console="Killed"), ours())["why"] == "it printed no times"
    cut = only(board(times="[ { "), ours())
    assert cut["difference"] is not None  # the console's times are there
    assert compare_with_trtexec(Measurement()) is None
    refused = {"trtexec": {"why": "there is no trtexec"}}
    assert compare_with_trtexec(read(Measurement, refused)).engines == []
