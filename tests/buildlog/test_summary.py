"""What trtexec's console says of a session."""

from hypothesis import given
from hypothesis import strategies as st

from edgekit.buildlog.summary import parse_summary

STAMP = "[11/21/2026-09:08:07] "
SPREAD = (
    "min = 0.5 ms, max = 3.06955e+03 ms, mean = 1.25 ms, median = 1 ms, "
    "percentile(90%) = 2 ms, percentile(99.9%) = 3 ms"
)
SESSION = [
    "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] [b30] # trtexec --onnx=a.onnx",
    f"{STAMP}[I] Engine built in 12.5 sec.",
    f"{STAMP}[I] Created engine with size: 5.625 MiB",
    f"{STAMP}[I] Plan was created with TensorRT version 10.3.0.30",
    f"{STAMP}[I] Engine deserialized in 0.0125 sec.",
    f"{STAMP}[I] === Performance summary ===",
    f"{STAMP}[I] Throughput: 800.5 qps",
    f"{STAMP}[I] Latency: {SPREAD}",
    f"{STAMP}[I] GPU Compute Time: {SPREAD}",
    f"{STAMP}[I] Total Host Walltime: 3.5 s",
    f"{STAMP}[I] Total GPU Compute Time: 3.25 s",
    f"{STAMP}[W] * Throughput may be bound by Enqueue Time rather than GPU Compute and the GPU "
    "may be under-utilized.",
]
PASSED = "&&&& PASSED TensorRT.trtexec [TensorRT v100300] [b30] # trtexec --onnx=a.onnx"


def test_a_session():
    found = parse_summary([*SESSION, PASSED])
    assert found.throughput_qps == 800.5
    assert found.times_ms.keys() == {"latency", "compute"}
    assert found.times_ms["latency"] == {
        "min": 0.5,
        "max": 3069.55,
        "mean": 1.25,
        "median": 1,
        "p90": 2,
        "p99.9": 3,
    }
    assert len(found.warnings) == 1
    assert found.errors == ()


def test_a_failed_one_has_its_errors():
    lines = [
        SESSION[0],
        f"{STAMP}[E] Unknown option: --buildOnly 1",
        PASSED.replace("PASSED", "FAILED"),
    ]
    found = parse_summary(lines)
    assert found.errors == ("Unknown option: --buildOnly 1",)


def test_layers_and_tensors_with_such_names_are_no_summary():
    lines = [f"{STAMP}[V] [TRT] Throughput: 5 qps of layer x", f"{STAMP}[I] Latency: unknown"]
    assert parse_summary(lines) == parse_summary([])


@given(st.lists(st.text()))
def test_any_text_is_read(lines):
    parse_summary(lines)
