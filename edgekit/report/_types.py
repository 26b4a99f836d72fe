"""The values of this floor: everything a run found out, as the report takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.dla import Judgement
    from edgekit.network import Network
    from edgekit.placement import Plan
    from edgekit.quantize import Scales
    from edgekit.targets import Target

__all__ = ["RunFacts"]


@dataclass(frozen=True, eq=False)
class RunFacts:
    """What a run found out. Parts that a run did not come to are None or empty.

    Attributes:
        name: The config's name.
        model: Where the model came from, for people.
        target: The board.
        plan: The placement with its predictions and baselines.
        network: The layers that were placed (after rewrites).
        judgement: The verdict of each layer.
        mode: Build mode: "hybrid", "standalone" or "split".
        backend: "reference", "tensorrt" or "trtexec"; empty when nothing was built.
        scales: INT8 scales and the data they come from.
        accuracy: Against FP32: {"cosine", "snr_db", "max_abs", "top1_agreement"}, and where
            known "data" (on what, for people), "inputs" (how many), "metric", "min", "passed"
            (the gate), "groups", "scores" and "failures" (as ``edgekit.build.accuracy`` returns
            them), "segments": [{"segment", "device", and the same measures, accumulated up
            to there}]. ``snr_db`` is None when there is no difference at all.
        bundle: {"path", "bytes", "stripped_bytes", "digest"}.
        refit: {"bit_equal"}.
        built: What boards built, as the ``boards`` of an ``edgekit.build/1``.
        bench: The ``edgekit.bench/1`` document.
        trace: The ``edgekit.trace/1`` document of the same measurement: gives the measured frame
            and the layers' measured times.
        baseline: An ``edgekit.compare/1`` document of this run against another.
        board: {"name", "kind"}.
        rewrites: Applied rewrites: {"name", "nodes"}, and where known "reason" and "max_error".
        steps: {"name", "status": "done" | "reused" | "failed", "seconds"}, in order.
        files: Paths by what they are: "report", "trace", "bundle", ...
        config_text: The configuration as the user wrote it.
        environment: Versions and machine, for people.
        notes: Anything the reader must know.
        note_groups: The notes by what they are about: "accuracy", "run", "plan", "build"; others
            are of the run.
    """

    name: str
    model: str
    target: Target
    plan: Plan
    network: Network
    judgement: Judgement
    mode: str = "hybrid"
    backend: str = ""
    scales: Scales | None = None
    accuracy: Mapping[str, Any] | None = None
    bundle: Mapping[str, Any] | None = None
    refit: Mapping[str, Any] | None = None
    built: tuple[Mapping[str, Any], ...] = ()
    bench: Mapping[str, Any] | None = None
    trace: Mapping[str, Any] | None = None
    baseline: Mapping[str, Any] | None = None
    board: Mapping[str, Any] | None = None
    rewrites: tuple[Mapping[str, Any], ...] = ()
    steps: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    config_text: str = ""
    note_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
