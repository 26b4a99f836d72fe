"""The documents at the end of a run."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._files import regular

if TYPE_CHECKING:
    from edgekit.build import Artefacts
    from edgekit.pipeline._building import Built
    from edgekit.pipeline._pipeline import Pipeline
    from edgekit.report import RunFacts

__all__ = ["board_document", "report_facts", "run_document", "segments_of"]

_ACCURACY = (
    "cosine", "snr_db", "max_abs", "top1_agreement", "groups", "scores", "failures",
)  # fmt: skip


def segments_of(artefacts: Artefacts) -> list[dict[str, Any]]:
    """Returns what was built, segment by segment."""
    return [
        {"lane": lane, "share": share, "index": s.index, "device": s.device,
         "engine": s.engine, "layers": list(s.layers), "inputs": list(s.inputs),
         "outputs": list(s.outputs)}
        for lane, (share, segments) in enumerate(artefacts.lanes)
        for s in segments
    ]  # fmt: skip


def board_document(built: Built) -> dict[str, Any]:
    """Returns what a board built, beside the plan."""
    assert built.result is not None, "asked for where a board built"
    result = built.result
    kept = ("key", "bytes", "full_bytes", "stripped", "version_compatible", "lean_embedded",
            "refit", "dla_core", "attempt", "attempts", "seconds", "timing_cache")  # fmt: skip
    return {
        "board": built.board,
        "job": built.job,
        "fingerprint": dict(result["fingerprint"]),
        "tensorrt": result["tensorrt"],
        "builder": result["builder"],
        "engines": [{key: one.get(key) for key in kept} for one in result["engines"]],
        "plan": built.comparison,
        "notes": list(result["notes"]),
    }


def run_document(
    pipeline: Pipeline,
    check: Mapping[str, Any],
    bundle: Mapping[str, Any],
    releases: Sequence[Mapping[str, Any]],
    refit: Mapping[str, Any],
    infer: Mapping[str, Any],
    bench: Mapping[str, Any],
    files: Mapping[str, str],
    steps: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Returns the ``edgekit.run/1`` document."""
    from edgekit.quantize import change_rows

    work = pipeline.work
    scales = work.plan_scales
    return {
        "schema": "edgekit.run/1",
        "name": pipeline.file.name,
        "target": pipeline.file.target,
        "precision": pipeline.file.precision,
        "backend": pipeline.building.first().artefacts.backend,
        "steps": list(steps),
        "check": {**check["summary"], "candidates": check["candidates"],
                  "loadables": check["loadables"]},
        "rewrites": work.rewrites,
        "calibration": {"method": scales.method, "choice": work.choice, "data": scales.data,
                        "changes": change_rows(scales.changes)} if scales else None,
        "plan": work.plan.to_json(),
        "built": [board_document(one) for one in pipeline.building.every() if one.board],
        "bundle": dict(bundle),
        "accuracy": work.accuracy,
        "refit": dict(refit),
        "infer": dict(infer),
        "bench": {key: bench.get(key) for key in
                  ("clock", "backend", "latency_ms", "throughput_qps", "iterations", "verdict")},
        "board": dict(releases[0]["board"]),
        "releases": [
            {key: r.get(key) for key in
             ("board", "release", "digest", "bytes_sent", "previous", "taken_back",
              "notes")}
            for r in releases
        ],
        "files": dict(files),
        "notes": pipeline.notes(),
    }  # fmt: skip


def report_facts(
    pipeline: Pipeline,
    bundle: Mapping[str, Any],
    releases: Sequence[Mapping[str, Any]],
    refit: Mapping[str, Any],
    bench: Mapping[str, Any],
    files: Mapping[str, str],
    steps: Sequence[Mapping[str, Any]],
) -> RunFacts:
    """Returns what the report is made of."""
    from edgekit.pipeline._known_scales import named_scales
    from edgekit.report import RunFacts

    work = pipeline.work
    scales = work.plan_scales
    gate, back = pipeline.file.accuracy, bench.get("taken_back")
    error = work.accuracy
    accuracy = {
        **{key: error[key] for key in _ACCURACY},
        "data": error["data"],
        "inputs": error["count"],
        "metric": gate.metric,
        "min": gate.min,
        # a run that misses its gate ends before the report
        "passed": None if gate.min is None else True,
        "computed": "emulated on a CPU",  # also where a board built engines of its own
        "nonfinite": error.get("nonfinite") or [],
        "constant": error.get("constant") or [],
        "segments": error["per_segment"],
    }
    return RunFacts(
        name=pipeline.file.name,
        model=work.source.source,
        target=work.target,
        plan=work.plan,
        network=work.network,
        judgement=work.judgement,
        mode=pipeline.file.build.mode,
        backend=pipeline.building.first().artefacts.backend,
        scales=None if scales is None else named_scales(scales, work.model),
        accuracy=accuracy,
        bundle=bundle,
        # of what serves, where the bundle was taken back: nothing of this plan's layers
        refit=None if back else refit,
        built=tuple(board_document(one) for one in pipeline.building.every() if one.board),
        bench=bench,
        trace=None if back else _trace(files["trace"]),
        board=releases[0]["board"],
        rewrites=tuple({"name": item["rewrite"], **item} for item in work.rewrites),
        steps=tuple(steps),
        files=files,
        config_text=pipeline.config.text,
        environment=_environment(),
        notes=tuple(pipeline.notes()),
        note_groups=pipeline.note_groups(),
    )  # fmt: skip


def _trace(path: str) -> Any:
    """Returns the trace that the bench step wrote."""
    import json

    with contextlib.suppress(OSError, ValueError):
        return json.loads(regular(Path(path)).read_text(encoding="utf-8"))
    return None


def _environment() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    from edgekit import __version__

    found = {"edgekit": __version__, "python": platform.python_version(),
             "machine": platform.machine()}  # fmt: skip
    for name in ("numpy", "onnx", "onnxruntime", "highspy", "ortools"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
