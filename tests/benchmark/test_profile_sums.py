"""Layers' times beside their segment's."""

from edgekit.benchmark.document import profile_notes
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.protocol.codec import read


def measured(layer_us):
    return read(
        Measurement,
        {
            "nodes": [{"lane": 0, "index": 3, "node": "erf3", "op": "Erf", "median_us": layer_us}],
            "segments": [{"lane": 0, "index": 3, "device": "GPU", "latency_ms": {"median": 0.4}}],
        },
    )


def test_layers_that_take_clearly_more_than_their_segment_are_reported():
    (note,) = profile_notes(measured(15300.0))
    assert "segment 3 on GPU: 15.3 ms of layers, 0.4 ms measured" in note
    assert profile_notes(measured(700.0)) == []  # the profiler's own work
    assert profile_notes(read(Measurement, {"nodes": None})) == []
