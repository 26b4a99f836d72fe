"""Backends: from a plan to engines. The reference backend runs the target's numerics on a CPU."""

from edgekit._callable import make_callable
from edgekit.build._accuracy import (
    NOT_KNOWN,
    Deviation,
    accuracy,
    channels_told,
    collapses,
    decibels,
    metric_told,
    parts_told,
    snr_told,
    worst_of,
)
from edgekit.build._graph import Cut, Graph, cut, node_reads
from edgekit.build._kernels import Kernel, Kernels
from edgekit.build._reference import build_reference, full_engine
from edgekit.build._runner import Runner, run
from edgekit.build._types import Artefacts, Segment, Weight
from edgekit.build._weights import WeightStore, derive_weights, digest_of, transform_value

__all__ = [
    "NOT_KNOWN",
    "Artefacts",
    "Cut",
    "Deviation",
    "Graph",
    "Kernel",
    "Kernels",
    "Runner",
    "Segment",
    "Weight",
    "WeightStore",
    "accuracy",
    "build_reference",
    "channels_told",
    "collapses",
    "cut",
    "decibels",
    "derive_weights",
    "digest_of",
    "full_engine",
    "metric_told",
    "node_reads",
    "parts_told",
    "run",
    "snr_told",
    "transform_value",
    "worst_of",
]

make_callable(__name__)
