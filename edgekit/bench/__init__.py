"""See DESIGN: the bench floor. Measurements, statistics and traces as JSON documents."""

from typing import TYPE_CHECKING

from edgekit._callable import make_callable
from edgekit._lazy import lazy
from edgekit.bench._check_trace import validate_trace
from edgekit.bench._document import bench_document, measured_facts
from edgekit.bench._energy import energy
from edgekit.bench._limits import Limits
from edgekit.bench._monitor_read import rails_of, unknown_release, with_release_warning
from edgekit.bench._profile_sums import profile_notes
from edgekit.bench._schedule import predicted_schedule
from edgekit.bench._stats import (
    coefficient_of_variation,
    latency_summary,
    mean,
    median,
    percentile,
)
from edgekit.bench._tails import Tails, percentile_cell, tails
from edgekit.bench._tegrastats import FIRST_LOAD, monitor_of_log, read_tegrastats
from edgekit.bench._trace import trace_document
from edgekit.bench._trtexec_times import Iteration, read_times
from edgekit.bench._types import Slot
from edgekit.bench._verdict import config_words
from edgekit.bench._write import write_json, write_text

if TYPE_CHECKING:
    from edgekit.bench._dla_statistics import read_statistics, statistics_process
    from edgekit.bench._nsys_export import exported
    from edgekit.bench._nsys_trace import NsysSource
    from edgekit.bench._tegrastats_board import other_board
    from edgekit.bench._trace_kept import KeptTrace, read_bench, read_trace
    from edgekit.bench._trace_linked import linked_layers
    from edgekit.bench._trace_monitor import monitor_process, monitor_wall
    from edgekit.bench._trace_profile import profile_process
    from edgekit.bench._trace_sources import Prepared, Source, write_trace
    from edgekit.bench._trace_times import times_process

__all__ = [
    "FIRST_LOAD",
    "Iteration",
    "KeptTrace",
    "Limits",
    "NsysSource",
    "Prepared",
    "Slot",
    "Source",
    "Tails",
    "bench_document",
    "coefficient_of_variation",
    "config_words",
    "energy",
    "exported",
    "latency_summary",
    "linked_layers",
    "mean",
    "measured_facts",
    "median",
    "monitor_of_log",
    "monitor_process",
    "monitor_wall",
    "other_board",
    "percentile",
    "percentile_cell",
    "predicted_schedule",
    "profile_notes",
    "profile_process",
    "rails_of",
    "read_bench",
    "read_statistics",
    "read_tegrastats",
    "read_times",
    "read_trace",
    "statistics_process",
    "tails",
    "times_process",
    "trace_document",
    "unknown_release",
    "validate_trace",
    "with_release_warning",
    "write_json",
    "write_text",
    "write_trace",
]

# what edgekit trace alone needs is imported when it is used
__getattr__ = lazy(
    __name__,
    {
        "_dla_statistics": "read_statistics statistics_process",
        "_nsys_export": "exported",
        "_nsys_trace": "NsysSource",
        "_tegrastats_board": "other_board",
        "_trace_kept": "KeptTrace read_bench read_trace",
        "_trace_linked": "linked_layers",
        "_trace_monitor": "monitor_process monitor_wall",
        "_trace_profile": "profile_process",
        "_trace_sources": "Prepared Source write_trace",
        "_trace_times": "times_process",
    },
)

make_callable(__name__)
