"""See DESIGN: the bench floor. Measurements, statistics and traces as JSON documents."""

from edgekit._callable import make_callable
from edgekit.bench._check_trace import validate_trace
from edgekit.bench._document import bench_document
from edgekit.bench._schedule import predicted_schedule
from edgekit.bench._stats import (
    coefficient_of_variation,
    latency_summary,
    mean,
    median,
    percentile,
)
from edgekit.bench._trace import trace_document
from edgekit.bench._trtexec_times import Iteration, read_times
from edgekit.bench._types import Limits, Slot
from edgekit.bench._write import write_json, write_text

__all__ = [
    "Iteration",
    "Limits",
    "Slot",
    "bench_document",
    "coefficient_of_variation",
    "latency_summary",
    "mean",
    "median",
    "percentile",
    "predicted_schedule",
    "read_times",
    "trace_document",
    "validate_trace",
    "write_json",
    "write_text",
]

make_callable(__name__)
