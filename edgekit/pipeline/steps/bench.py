"""Inference and benchmark on a board: what is requested of it, which measurement of a release is
the newest, a tegrastats log added to a measurement, and what is kept of all of it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.benchmark.document import bench_document, profile_notes, write_json
from edgekit.benchmark.trace.run import trace_document
from edgekit.deployment.board import BenchSettings
from edgekit.errors import DataError, EnvironmentLack
from edgekit.files import write_atomically
from edgekit.pipeline.cache import identity_of_path
from edgekit.pipeline.steps.tegrastats_log import monitor_from_log
from edgekit.quantize.data.load import load_data
from edgekit.results.recording import record
from edgekit.tensorrt.trtexec import run_command
from edgekit.text import counted
from edgekit_device.arrays.npz import read_npz, write_npz

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgekit.config.loader import Config
    from edgekit.config.schema import BenchSection
    from edgekit.pipeline.progress import StepRecord
    from edgekit.pipeline.steps.host import HostSteps


_IDLE_S = 2.0


def board_settings(
    section: BenchSection, *, backend: str, tensorrt: str | None = None, profile: bool = False
) -> BenchSettings:
    """Returns the settings of the board's ``bench``.

    Args:
        section: The configuration's ``bench``.
        backend: The bundle's: "reference" or "tensorrt".
        tensorrt: The board's release, for trtexec's flags.
        profile: Whether single layers are measured, too.

    Raises:
        BuildError: ``with_trtexec`` and trtexec of that release is not known.
    """
    idle_s = section.idle_s
    if idle_s is None:
        idle_s = _IDLE_S if backend != "reference" and section.monitor_ms else 0.0
    return BenchSettings(
        section.warmup_ms,
        section.duration_s,
        section.iterations,
        streams=section.streams,
        graph=section.graph,
        spin=section.spin,
        transfers=section.transfers,
        sleep_ms=section.sleep_ms,
        idle_ms=1000 * idle_s,
        monitor_ms=section.monitor_ms,
        power_mode=section.power_mode,
        lock_clocks=section.lock_clocks,
        trtexec=_trtexec(section, backend, tensorrt) if section.with_trtexec else None,
        profile=profile,
    )


def _trtexec(section: BenchSection, backend: str, tensorrt: str | None) -> dict[str, Any]:
    if backend == "reference":  # the board says that there is nothing for trtexec
        lists = ("always", "gpu", "dla", "version_compatible")
        return {**{name: [] for name in lists}, "timeout_s": 0.0}
    if not tensorrt:
        raise EnvironmentLack(
            "the board does not tell its TensorRT, so trtexec's flags are not known",
            code="bench.trtexec",
            hint="see `edgekit doctor`, or leave --with-trtexec out",
        )
    return run_command(
        tensorrt,
        warmup_ms=section.warmup_ms,
        duration_s=section.duration_s,
        iterations=section.iterations,
        streams=section.streams,
        graph=section.graph,
        spin=section.spin is True,
        transfers=section.transfers,
        idle_ms=section.sleep_ms,
    )


def tensorrt_of(
    section: BenchSection, hello: Mapping[str, Any], probe: Callable[[], Mapping[str, Any]]
) -> str | None:
    """Returns a board's TensorRT for ``board_settings``; None where it is not known.

    Args:
        section: The configuration's ``bench``.
        hello: What the board says of itself, from its files; empty without an answer.
        probe: Returns the board's ``edgekit.probe/1``, which runs TensorRT's module; only for
            trtexec.
    """
    known = hello.get("tensorrt")
    if not known and section.with_trtexec:
        known = (probe().get("fingerprint") or {}).get("tensorrt")
    return str(known) if known else None


def record_in_results(
    document: Mapping[str, Any], config: Config, release: Mapping[str, Any]
) -> list[str]:
    """Keeps a measurement in the history; says why it could not, which is no failure."""
    try:
        record(document, config=config, release=release)
    except (DataError, EnvironmentLack) as error:
        return [f"not kept in the history: {error.message}"]
    return []


def report_stages(
    pipeline: HostSteps, clock: Callable[[], float] = time.monotonic
) -> Callable[[str, float | None], None]:
    """Returns the callback of a board's stages: the step's progress, by the seconds left.

    Only the board determines which stages follow, and not before it is there: the part that is done
    is counted in seconds that went by, never in what the first stages promised.
    """
    began = clock()

    def report(stage: str, left: float | None) -> None:
        past = clock() - began
        # what takes as long as it takes has no part
        pipeline.work.update(past if left else 0.0, past + left if left else 0.0, stage)

    return report


# Which measurement of a release is shown where none is requested: the newest of any way.
#
# A command's options (``edgekit bench --lock-clocks``) measure in another way than the
# configuration says, and what they measured is still the newest. Settings that changed in the
# configuration itself lead to a new measurement. An older one is never shown again.


class NewestMeasurement:
    """What was measured last of a release on a board, in the cache.

    Args:
        pipeline: The configuration's pipeline.
        place: What distinguishes board and release from others.

    Attributes:
        description: The measurement that ``find`` has found, in words.
        notes: What of it is not as the configuration says.
    """

    def __init__(self, pipeline: HostSteps, place: Sequence[object]) -> None:
        self._cache = pipeline.cache
        self._key = self._cache.key("bench", *place)
        self.description = ""
        self.notes: list[str] = []
        section = pipeline.file.bench
        self._settings: dict[str, Any] = section.model_dump(mode="json")
        if section.inputs is not None:
            # other frames may lie under the same name
            frames = identity_of_path(pipeline.config.resolve(section.inputs))
            self._settings["inputs"] = [str(section.inputs), frames]
        document = pipeline.config.document
        self._given = sorted(
            {str(path[1]) for path in document.given if path[:1] == ("bench",) and path[1:]}
        )
        self._file = (document.value if document.file is None else document.file).get("bench")

    def find(self) -> dict[str, Any] | None:
        """Returns the newest measurement, or None where one is to be made."""
        known = self._cache.get("bench", self._key)
        if not known:
            return None
        settings, given = known["settings"], known["given"]
        names = [name for name, own in self._settings.items() if settings.get(name) != own]
        if any(name not in given or name in self._given for name in names):
            return None
        if names and known["file"] != self._file:
            return None
        measured: dict[str, Any] = known["measured"]
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(known["at"]))
        self.description = f"measured {when}"
        if names:
            other = ", ".join(f"{name} {_setting_text(settings.get(name))}" for name in names)
            own = ", ".join(_setting_text(self._settings[name]) for name in names)
            self.description += f" with {other} (the configuration: {own})"
            self.notes = [f"{self.description}; edgekit bench measures anew"]
        return measured

    def keep(self, measured: Mapping[str, Any]) -> None:
        """Makes this measurement the newest."""
        row = {"at": time.time(), "settings": self._settings, "given": self._given,
               "file": self._file}  # fmt: skip
        self._cache.put("bench", self._key, {**row, "measured": dict(measured)})


def _setting_text(value: object) -> str:
    words = {True: "yes", False: "no", None: "unset"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, list):
        return str(value[0])
    return f"{value:g}" if isinstance(value, float) else str(value)


def infer(
    pipeline: HostSteps,
    release: Mapping[str, Any],
    source: Path | None,
    output: Path | None,
    step: StepRecord,
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
    pipeline: HostSteps, release: Mapping[str, Any], step: StepRecord, *, again: bool
) -> dict[str, Any]:
    """Measures on the first board and writes ``bench.json`` and ``trace.json``.

    Args:
        pipeline: The configuration's pipeline.
        release: What serves there.
        step: The step, for its detail.
        again: Measure even when the same release was measured before.
    """
    from edgekit.pipeline.steps.host import bench_frames  # fmt: skip

    boards, work, cache = pipeline.boards, pipeline.work, pipeline.cache
    client = boards.clients()[0]
    back = release.get("taken_back")
    plan = work.plan if back is None else pipeline.packing.plan_of(release)
    section = pipeline.file.bench
    newest = NewestMeasurement(pipeline, [boards.identity(client), release["digest"]])
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
            inputs=bench_frames(pipeline),
            progress=report_stages(pipeline),
        )
    facts = {
        "name": pipeline.file.name,
        "board": boards.describe(client),
        "environment": {"release": release["release"], **_environment(release)},
        "target": work.target,
        "config": pipeline.config.path,
    }
    document = bench_document(measured, plan, **facts)
    if (monitor := monitor_from_log(cache, document)) is not None:
        document = bench_document({**measured, "monitor": monitor}, plan, **facts)
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
    notes = record_in_results(document, pipeline.config, release) if fresh else newest.notes
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
    step.detail += "" if fresh else f"; {newest.description}"
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
    return hashlib.sha256(data).hexdigest()


def _write(path: Path, data: bytes) -> None:
    with write_atomically(path) as temporary:
        temporary.write_bytes(data)


def _facts(name: str, value: np.ndarray) -> dict[str, Any]:
    finite = value[np.isfinite(value)] if value.dtype.kind == "f" else value
    return {
        "name": name,
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "argmax": int(value.reshape(-1).argmax()) if value.size else None,
    }
