"""Inference and measurement on a board, and what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit._listed import counted
from edgekit.errors import DataError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.pipeline._host_steps import HostSteps
    from edgekit.pipeline._steps import Step

__all__ = ["bench", "infer", "inputs_of"]


def infer(
    pipeline: HostSteps,
    release: Mapping[str, Any],
    source: Path | None,
    output: Path | None,
    step: Step,
) -> dict[str, Any]:
    """Runs one inference on the first board.

    Args:
        pipeline: The configuration's pipeline.
        release: What serves there.
        source: Inputs, .npz or .npy; the first calibration input when None.
        output: Where the outputs go; ``outputs.npz`` of the out folder when None.
        step: The step, for its detail.

    Returns:
        An ``edgekit.infer/1``; ``bit_equal`` compares with the unstripped build on this machine
        and is None for a refitted release, for one that serves instead of one that was taken back,
        and for one whose engines only a board can run.
    """
    from edgekit_device._npz import read_npz, write_npz

    boards, cache = pipeline.boards, pipeline.cache
    client = boards.clients()[0]
    path = output or pipeline.out / "outputs.npz"
    inputs = inputs_of(pipeline, source)
    feed = write_npz(inputs)
    other = bool(release.get("refitted") or release.get("taken_back"))
    key = cache.key("infer", boards.identity(client), release["digest"], _digest(feed), other)
    known = None if pipeline.work.force else cache.get("infer", key)
    if known is not None and not cache.has_blobs([known["blob"]]):
        known = None
    if known is not None:
        answer = cache.blob_path(known["blob"]).read_bytes()
    else:
        pipeline.work.fresh.add("infer")
        answer = client.infer(release_app(pipeline), feed, release=release["release"])
    outputs = read_npz(answer)
    if known is None:
        here = pipeline.building.backend == "reference" and not other
        equal = _equals_unstripped(pipeline, inputs, outputs) if here else None
        blob = _digest(answer)
        cache.put_blob(blob, answer)
        known = {"blob": blob, "bit_equal": equal}
        cache.put("infer", key, known)
    _write(path, answer)
    facts = [_facts(name, value) for name, value in outputs.items()]
    step.detail = f"{client.kind} board {client.name}, arg max {facts[0]['argmax']}"
    return {
        "schema": "edgekit.infer/1",
        "board": boards.describe(client),
        "release": release["release"],
        "backend": _backend(pipeline, release),
        "bit_equal": known["bit_equal"],
        "outputs": facts,
        "file": str(path),
        "taken_back": release.get("taken_back"),
        "notes": list(release.get("notes") or ()),
    }


def bench(
    pipeline: HostSteps, release: Mapping[str, Any], step: Step, *, again: bool
) -> dict[str, Any]:
    """Measures on the first board and writes ``bench.json`` and ``trace.json``.

    Args:
        pipeline: The configuration's pipeline.
        release: What serves there.
        step: The step, for its detail.
        again: Measure even when the same release was measured before.
    """
    from edgekit.bench import bench_document, profile_notes, trace_document, write_json
    from edgekit.pipeline._beside import kept_beside
    from edgekit.pipeline._measuring import (
        board_settings,
        frames,
        recorded,
        stages_told,
        tensorrt_of,
    )  # fmt: skip
    from edgekit.pipeline._newest import Newest

    boards, work, cache = pipeline.boards, pipeline.work, pipeline.cache
    client = boards.clients()[0]
    back = release.get("taken_back")
    plan = work.plan if back is None else pipeline.packing.plan_of(release)
    section = pipeline.file.bench
    newest = Newest(pipeline, [boards.identity(client), release["digest"]])
    measured = None if again or work.force else newest.find()
    new = measured is None
    if measured is None:
        work.fresh.add("bench")
        settings = board_settings(
            section,
            backend=_backend(pipeline, release),
            tensorrt=tensorrt_of(
                section, release.get("hello") or {}, lambda: pipeline.building.probe(client)
            ),
            profile=True,
        )
        measured = client.bench(
            release_app(pipeline),
            settings,
            release=release["release"],
            inputs=frames(pipeline),
            progress=stages_told(pipeline),
        )
    told = {
        "name": pipeline.file.name,
        "board": boards.describe(client),
        "environment": {"release": release["release"], **_environment(release)},
        "target": work.target,
        "config": pipeline.config.path,
    }
    document = bench_document(measured, plan, **told)
    if (monitor := kept_beside(cache, document)) is not None:
        document = bench_document({**measured, "monitor": monitor}, plan, **told)
    trace = trace_document(
        plan,
        measured,
        dla_cores=work.target.dla.cores,
        network=work.network if back is None else None,
        name=pipeline.file.name,
    )
    if new:  # what makes no sound documents is never shown again
        newest.keep(measured)
    files = {"bench": pipeline.out / "bench.json", "trace": pipeline.out / "trace.json"}
    document["files"] = {name: str(path) for name, path in files.items()}
    fresh = "bench" in work.fresh
    notes = recorded(document, pipeline.config, release) if fresh else newest.notes
    unknown = [] if plan is not None else [
        f"the plan of {release['release']} is not on this machine, for another one packed it (or "
        "an older edgekit): nothing is predicted of it, and its layers have no names here; measure "
        "it where it was built, with the configuration that it was built from"
    ]  # fmt: skip
    work.notes += [note for note in unknown if note not in work.notes]
    document["notes"] = [*(release.get("notes") or ()), *unknown, *profile_notes(measured), *notes]
    document["taken_back"] = back
    write_json(files["bench"], document)
    write_json(files["trace"], trace)
    latency = document["latency_ms"]
    step.detail = (
        f"median {latency['median']:.2f} ms over {counted(document['iterations'], 'inference')}, "
        f"{document['clock']}, {document['verdict']['status'] if document['verdict'] else ''}"
    )
    step.detail += "" if fresh else f"; {newest.told}"
    return document


def _backend(pipeline: HostSteps, release: Mapping[str, Any]) -> str:
    """Returns who runs the release: another one's may be another backend than is built with."""
    return str(release.get("backend") or pipeline.building.first().artefacts.backend)


def release_app(pipeline: HostSteps) -> str:
    """Returns the application's name on the board."""
    return str(pipeline.file.name)


def _environment(release: Mapping[str, Any]) -> dict[str, Any]:
    hello = release.get("hello") or {}
    keys = ("python", "machine", "numpy", "onnxruntime")
    return {key: hello[key] for key in keys if hello.get(key)}


def inputs_of(pipeline: HostSteps, source: Path | None) -> dict[str, np.ndarray]:
    """Returns one inference's inputs: of a file, or the first calibration input."""
    if source is None:
        return dict(next(iter(pipeline.work.inputs())))
    from edgekit.quantize import load_data

    for sample in load_data(source, pipeline.work.model, whole=True):
        return dict(sample)
    raise DataError("the file holds no input", code="data.empty", where=str(source))


def _equals_unstripped(
    pipeline: HostSteps, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> bool:
    expected = pipeline.packing.unstripped(inputs)
    return all(
        name in outputs and outputs[name].tobytes() == value.tobytes()
        for name, value in expected.items()
    )


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    from edgekit._files import write_atomically

    with write_atomically(path) as temporary:
        temporary.write_bytes(data)


def _facts(name: str, value: np.ndarray) -> dict[str, Any]:
    import numpy as np

    finite = value[np.isfinite(value)] if value.dtype.kind == "f" else value
    return {
        "name": name,
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "argmax": int(value.reshape(-1).argmax()) if value.size else None,
    }
