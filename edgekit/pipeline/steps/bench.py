"""Inference and benchmark on a board: the requested settings, the newest measurement of a release,
a tegrastats log added to a measurement, and the stored results.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.benchmark.document import (
    Bench,
    bench_document,
    profile_notes,
    with_verdict,
)
from edgekit.benchmark.inference import Inference, InferredOutput
from edgekit.benchmark.statistics import MeasurementLimits
from edgekit.benchmark.trace.run import trace_document
from edgekit.config.loader import Config, open_config
from edgekit.errors import DataError, EnvironmentLack, UsageError
from edgekit.files import write_atomically, write_json
from edgekit.network.part import ModelPart
from edgekit.network.protos import nearest
from edgekit.network.ranges import is_ranged, read_ranges, varies
from edgekit.pipeline.boards.requests import describe_board
from edgekit.pipeline.cache import path_identity
from edgekit.pipeline.steps.buckets import at_sizes, network_sizes
from edgekit.pipeline.steps.bundle import find_release_plan, unstripped_outputs
from edgekit.pipeline.steps.calibrate import first_input
from edgekit.pipeline.steps.deploy import board_name
from edgekit.pipeline.steps.load import requested_shapes
from edgekit.pipeline.steps.plan import plan
from edgekit.pipeline.steps.rewrite import model, network
from edgekit.pipeline.steps.variants import frame_context, planned_sizes
from edgekit.pipeline.tegrastats_log import monitor_from_log
from edgekit.placement.buckets import shape_text
from edgekit.quantize.data.arrays import ARRAY_SUFFIXES, BROKEN, Member, members
from edgekit.quantize.data.load import load_data
from edgekit.results.recording import record
from edgekit.tensorrt.trtexec import run_command
from edgekit.text import counted, listed
from edgekit_device.arrays.npz import read_npz, write_npz
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.benchmark.settings import BenchSettings, TrtexecOptions
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import read, write
from edgekit_device.runtime.variants import Router

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgekit.config.schema import BenchSection
    from edgekit.network.ranges import Sizes
    from edgekit.pipeline.context import Context
    from edgekit.pipeline.progress import StepRecord
    from edgekit.pipeline.steps.deploy import ConnectedBoards, InstalledRelease
    from edgekit_device.board.identity import Hello
    from edgekit_device.board.probe import Probe
    from edgekit_device.protocol.manifest import Manifest


_IDLE_S = 2.0  # a power baseline of 20 samples at the usual 100 ms
_MOST_FRAMES = 32  # a board cycles through at most this many


def board_settings(
    section: BenchSection, *, backend: str, tensorrt: str | None = None, profile: bool = False
) -> BenchSettings:
    """Returns the settings of the board's ``bench``.

    Args:
        section: The configuration's ``bench``.
        backend: The bundle's: "reference" or "tensorrt".
        tensorrt: The board's release, for trtexec's flags.
        profile: True if single layers are measured, too.

    Raises:
        BuildError: ``with_trtexec``, and the trtexec of that release is not known.
    """
    idle_s = section.idle_s
    if idle_s is None:
        idle_s = _IDLE_S if backend != "reference" and section.monitor_ms else 0.0
    names = {field.name for field in fields(BenchSettings)}
    settings = BenchSettings(
        **section.model_dump(include=names), idle_ms=1000 * idle_s, profile=profile
    )
    if not section.with_trtexec:
        return settings
    return replace(settings, trtexec=_trtexec_options(settings, backend, tensorrt))


def _trtexec_options(settings: BenchSettings, backend: str, tensorrt: str | None) -> TrtexecOptions:
    if backend == "reference":  # the board reports that trtexec has no engine to run
        return TrtexecOptions((), (), (), (), 0.0)
    if not tensorrt:
        raise EnvironmentLack(
            "the board does not report its TensorRT release, so trtexec's flags are unknown",
            code="bench.trtexec",
            hint="see `edgekit doctor`, or leave --with-trtexec out",
        )
    return run_command(tensorrt, settings)


def board_tensorrt(
    section: BenchSection, hello: Hello | None, probe: Callable[[], Probe]
) -> str | None:
    """Returns a board's TensorRT for ``board_settings``; None if unknown.

    Args:
        section: The configuration's ``bench``.
        hello: The board's facts from its files; None without an answer.
        probe: Returns the board's facts, for which it runs TensorRT's module; only called for
            trtexec.
    """
    known = None if hello is None else hello.tensorrt
    if not known and section.with_trtexec:
        known = probe().fingerprint.get("tensorrt")
    return known or None


def add_to_history(document: Bench, config: Config, release: InstalledRelease) -> list[str]:
    """Adds a measurement to the history; returns the reason if it could not, without an error."""
    try:
        record(document, config=config, release=release)
    except (DataError, EnvironmentLack) as error:
        # the measurement matters more than its entry
        return [f"not recorded in the history: {error.message}"]
    return []


def report_stages(
    update: Callable[[float, float, str], None], clock: Callable[[], float] = time.monotonic
) -> Callable[[str, float | None], None]:
    """Returns the callback of a board's stages: the step's progress, by the seconds left.

    Only the board determines the next stages, and only when it reaches them: the part that is done
    is counted in elapsed seconds, not from the first stages' estimates.
    """
    began = clock()

    def report(stage: str, left: float | None) -> None:
        past = clock() - began
        # a stage of unknown duration has no part
        update(past if left else 0.0, past + left if left else 0.0, stage)

    return report


def bench_frames(context: Context) -> bytes | None:
    """Returns ``bench.inputs`` as an ``.npz``, several frames stacked; None if none are named.

    Raises:
        DataError: They cannot be read, or do not fit the network.
    """
    named = context.file.bench.inputs
    if named is None:
        return None

    path = context.config.resolve(named)
    found = list(islice(load_data(path, model(context), whole=True), _MOST_FRAMES))
    if not found:
        raise DataError("the file contains no input", code="data.empty", where=str(path))
    if len(found) == 1:
        return write_npz(dict(found[0]))
    return write_npz({name: np.stack([frame[name] for frame in found]) for name in found[0]})


def check_bench_frames(context: Context, *, may_reuse: bool) -> None:
    """Refuses ``bench.inputs`` that do not fit the network, before any build.

    Args:
        context: The configuration.
        may_reuse: True if an older measurement suffices, for which the file is not needed.

    Raises:
        DataError: As raised by ``bench_frames``.
    """
    named = context.file.bench.inputs
    if named is not None and (not may_reuse or context.config.resolve(named).exists()):
        bench_frames(context)


def check_bench_shapes(context: Context) -> None:
    """Refuses a shape to measure that is not planned, before any build.

    Raises:
        UsageError: "bench.shape", with the planned shapes, or with the network's inputs.
    """
    shapes = {name: tuple(size) for name, size in context.file.bench.shapes.items()}
    names = network_sizes(context) if shapes else ()
    for name in shapes:
        if name not in names:
            near = nearest(name, names)
            raise UsageError(
                f"the network has no input {name!r}",
                code="bench.shape",
                where=context.config.document.where(("bench", "shapes", name)),
                hint=f"{near} the inputs are: {', '.join(names)}".strip(),
            )
    if shapes:
        where = context.config.document.where(("bench", "shapes", next(iter(shapes))))
        planned_sizes(context, shapes, where, "bench.shape")


def shape_to_measure(
    config: str | Path | Config, options: Mapping[str, Any]
) -> tuple[str | Path | Config, Mapping[str, Any]]:
    """Returns the source to measure: static shapes of the options select a shape of a range.

    Args:
        config: The configuration, or a model.
        options: The configuration's keys.
    """

    model = options.get("model")
    section: Mapping[str, Any] = {}
    if isinstance(model, ModelPart):
        section = model._asdict()
    elif isinstance(model, Mapping):
        section = model
    given = section.get("shapes")
    if not given:
        return config, options
    # whose errors name the wrong options
    forms = open_config(config, **options).file.model.shapes
    without = {key: value for key, value in section.items() if key != "shapes"}
    base = open_config(config, **{**options, "model": without})
    if any(varies(forms[name]) for name in given) or not is_ranged(base.file.model):
        return config, options
    static = {name: list(read_ranges(forms[name])[0].opt) for name in given}
    return open_config(base, bench={"shapes": static}), {}


class NewestMeasurement:
    """The last measurement of a release on a board, in the cache.

    The measurement of a release that is shown if none is requested: the newest, however measured.

    A command's options (``edgekit bench --lock-clocks``) measure in another way than the
    configuration, and their result is still the newest. Settings that changed in the configuration
    itself lead to a new measurement. An older measurement is never shown again.

    Args:
        context: The configuration.
        place: The identity of board and release.

    Attributes:
        description: The measurement that ``find`` has found, in words.
        notes: Its differences from the configuration.
    """

    def __init__(self, context: Context, place: Sequence[object]) -> None:
        self._cache = context.cache
        self._key = self._cache.key("bench", *place)
        self.description = ""
        self.notes: list[str] = []
        section = context.file.bench
        self._settings = section.model_dump(mode="json")
        if section.inputs is not None:
            # the same name may have other frames now
            frames = path_identity(context.config.resolve(section.inputs))
            self._settings["inputs"] = [str(section.inputs), frames]
        document = context.config.document
        self._given = sorted(document.given_keys("bench"))
        self._file = (document.value if document.file is None else document.file).get("bench")

    def find(self) -> Measurement | None:
        """Returns the newest measurement; None if the board has to measure."""
        known = self._cache.get("bench", self._key)
        if not known:
            return None
        settings, given = known["settings"], known["given"]
        names = [name for name, own in self._settings.items() if settings.get(name) != own]
        # a setting may differ only if it was a command's option then and is none now
        if any(name not in given or name in self._given for name in names):
            return None
        # the user edited the section since
        if names and known["file"] != self._file:
            return None
        try:
            measured = read(Measurement, known["measured"])
        except DeviceError:  # written by another edgekit
            return None
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(known["at"]))
        self.description = f"measured {when}"
        if names:
            other = ", ".join(f"{name} {_setting_text(settings.get(name))}" for name in names)
            own = ", ".join(_setting_text(self._settings[name]) for name in names)
            self.description += f" with {other} (the configuration: {own})"
            self.notes = [f"{self.description}; measure again with edgekit bench"]
        return measured

    def keep(self, measured: Measurement) -> None:
        """Makes this measurement the newest."""
        row = {
            "at": time.time(),
            "settings": self._settings,
            "given": self._given,
            "file": self._file,
        }
        self._cache.put("bench", self._key, {**row, "measured": write(measured)})


def _setting_text(value: object) -> str:
    words = {True: "yes", False: "no", None: "unset"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, list):
        # `inputs`, beside the digest of its frames
        return str(value[0])
    return f"{value:g}" if isinstance(value, float) else str(value)


def infer(
    context: Context,
    boards: ConnectedBoards,
    release: InstalledRelease,
    backend: str,
    source: Path | None,
    path: Path,
    step: StepRecord,
    drawn: Path | None = None,
    manifest: Manifest | None = None,
) -> Inference:
    """Runs an inference on the first board.

    Args:
        context: The configuration.
        boards: Its boards.
        release: The release that serves there.
        backend: The backend of the build that is to serve there.
        source: Inputs, .npz or .npy; the first calibration input if None.
        path: Output file.
        step: The step, for its detail.
        drawn: Folder for the pictures with a detector's boxes; not drawn if None.
        manifest: The bundle's, if it has several shapes: a note names the variant that runs this.
    """
    cache, client = context.cache, boards.clients()[0]
    inputs = inference_inputs(context, source, manifest)
    feed = write_npz(inputs)
    other = release.refitted or release.taken_back is not None
    key = cache.key("infer", boards.identity(client), release.digest, _digest(feed), other)
    # the board has not just verified the bytes of these releases, as an installation does
    known = None if context.force or other else cache.get("infer", key)
    if known is not None and not cache.has_blobs([known["blob"]]):
        known = None
    if known is not None:
        answer = cache.blob_path(known["blob"]).read_bytes()
    else:
        context.session.fresh.add("infer")
        answer = client.infer(context.file.name, feed, release=release.release)
    outputs = read_npz(answer)
    if known is None:
        # only the reference's own build gives the same bits on this machine
        here = backend == "reference" and not other
        equal = _equals_unstripped(context, inputs, outputs) if here else None
        blob = _digest(answer)
        cache.put_blob(blob, answer)
        known = {"blob": blob, "bit_equal": equal}
        cache.put("infer", key, known)
    with write_atomically(path) as temporary:
        temporary.write_bytes(answer)
    facts = [InferredOutput.of(name, value) for name, value in outputs.items()]
    step.detail = f"{client.kind} board {client.name}, arg max {facts[0].argmax}"
    pictures: dict[str, list[str]] = {}
    if drawn is not None:
        from edgekit.pipeline.steps.detect import draw_inference

        pictures = {"drawn": draw_inference(context, inputs, outputs, drawn)}
    return Inference(
        schema="edgekit.infer/1",
        board=board_name(describe_board(client)),
        release=release.release,
        backend=_served_backend(backend, release),
        bit_equal=known["bit_equal"],
        outputs=facts,
        file=str(path),
        **pictures,
        taken_back=release.taken_back,
        notes=[*release.notes, *([] if manifest is None else [_route_note(manifest, inputs)])],
    )


def _route_note(manifest: Manifest, inputs: Mapping[str, np.ndarray]) -> str:
    """Returns the bundle's variant that the loader runs for these inputs, and its padding."""
    known = {name for variant in manifest.every_variant for name in variant.values}
    sizes = {name: value.shape for name, value in inputs.items() if name not in known}
    values = {n: tuple(np.ravel(v).tolist()) for n, v in inputs.items() if n in known}
    route = Router(manifest.name, manifest.every_variant, manifest.padding).route(sizes, values)
    variant = manifest.every_variant[route.variant]
    engines = "the engine of the range"
    if not variant.profiles:
        engines = f"the engines of the shape {shape_text(variant.sizes)}"
    padded = [
        f"{name!r} padded from {sizes[name][axis]} to {size} along axis {axis}"
        for name, axis, size, _ in route.padded
    ]
    return f"run by {engines}{', ' if padded else ''}{listed(padded)}"


def bench(
    context: Context,
    boards: ConnectedBoards,
    release: InstalledRelease,
    backend: str,
    out: Path,
    step: StepRecord,
    *,
    again: bool,
) -> Bench:
    """Measures on the first board and writes ``bench.json`` and ``trace.json``.

    Args:
        context: The configuration.
        boards: Its boards.
        release: The release that serves there.
        backend: The backend of the build that is to serve there.
        out: The folder of both files.
        step: The step, for its detail.
        again: Measure even if the same release was measured before.
    """
    cache, client, target = context.cache, boards.clients()[0], context.target
    back = release.taken_back
    section = context.file.bench
    # the context whose engines take the measured frames
    taken = frame_context(context, {n: tuple(s) for n, s in section.shapes.items()})
    of = taken.context if taken else context
    placed = plan(of) if back is None else find_release_plan(cache, release)
    shape = [section.shapes] if section.shapes else []
    newest = NewestMeasurement(context, [boards.identity(client), release.digest, *shape])
    measured = None if again or context.force else newest.find()
    new = measured is None
    if measured is None:
        context.session.fresh.add("bench")
        settings = board_settings(
            section,
            backend=_served_backend(backend, release),
            tensorrt=board_tensorrt(section, release.hello, lambda: boards.probe(client)),
            profile=True,
        )
        measured = client.bench(
            context.file.name,
            settings,
            release=release.release,
            inputs=bench_frames(context),
            progress=report_stages(context.update),
        )
    keys = ("python", "machine", "numpy", "onnxruntime")
    known = ((key, getattr(release.hello, key, None)) for key in keys)
    environment = {key: value for key, value in known if value}
    document = bench_document(
        measured,
        placed,
        name=context.file.name,
        board=board_name(describe_board(client)),
        environment={"release": release.release, **environment},
        target=target,
        config=context.config.path,
    )
    # the reference runs the engine of a range in FP32 (`build_open`)
    if taken is not None and taken.ranged and backend == "reference":
        document = document.model_copy(update={"precision": "fp32"})
    if (monitor := monitor_from_log(cache, document)) is not None:
        document = document.model_copy(update={"monitor": monitor})
        # the log's clocks and temperatures may make the measurement invalid
        document = with_verdict(document, target, MeasurementLimits())
    trace = trace_document(
        placed,
        measured,
        dla_cores=target.dla.cores,
        # after a rollback the board runs another network's layers
        network=network(of) if back is None else None,
        name=context.file.name,
    )
    if new:  # a measurement without valid documents is never shown again
        newest.keep(measured)
    files = {"bench": out / "bench.json", "trace": out / "trace.json"}
    fresh = "bench" in context.session.fresh
    notes = add_to_history(document, context.config, release) if fresh else newest.notes
    unknown = (
        []
        if placed is not None
        else [
            f"the plan of {release.release} is not on this machine (it was packed by "
            "another one), so there are no predictions and no layer names; for these, measure "
            "with its configuration on the machine that built it"
        ]
    )
    context.note(*unknown)
    document = document.model_copy(
        update={
            "files": {name: str(path) for name, path in files.items()},
            "notes": [*release.notes, *unknown, *profile_notes(measured), *notes],
            "taken_back": release.taken_back,
        }
    )
    write_json(files["bench"], document.to_json())
    write_json(files["trace"], trace.to_json())
    median = document.latency_ms["median"] if document.latency_ms else 0.0
    step.detail = (
        f"median {median:.2f} ms over {counted(document.iterations or 0, 'inference')}, "
        f"{document.clock}, {document.verdict.status if document.verdict else ''}"
    )
    step.detail += "" if fresh else f"; {newest.description}"
    return document


def _served_backend(backend: str, release: InstalledRelease) -> str:
    """Returns the release's backend: another release may have another backend than the build."""
    return release.backend or backend


def inference_inputs(
    context: Context, source: Path | None, manifest: Manifest | None = None
) -> dict[str, np.ndarray]:
    """Returns an inference's inputs: a file's, or the first calibration input.

    Arrays of a file may have any planned shape, or a shape that the bundle's loader pads; without
    a bundle, a shape that it may pad.

    Raises:
        DataError: The inputs cannot be read, or do not fit the network.
        UsageError: "input.shape": their shape was not planned.
    """
    if source is None:
        return first_input(context)
    of = context
    if not requested_shapes(context).is_static and source.suffix.lower() in ARRAY_SUFFIXES:
        of = _context_for(context, source, manifest)
    given = _size_values(context, source)
    # only the first: an inference has one input
    for sample in load_data(source, model(of), whole=True, beside=given):
        return {**sample, **given}
    raise DataError("the file contains no input", code="data.empty", where=str(source))


def _size_values(context: Context, source: Path) -> dict[str, np.ndarray]:
    """Returns the values of inputs that hold sizes, if a file has them."""
    values = requested_shapes(context).values
    if not values or source.suffix.lower() != ".npz":
        return {}
    found = {}
    with suppress(*BROKEN):  # reading the data reports it
        arrays = read_npz(source.read_bytes())
        found = {name: value for name, value in arrays.items() if name in values}
    for name, value in found.items():
        known = values[name]
        plain = tuple(np.ravel(value).tolist())
        if value.dtype.kind not in "iu" or value.shape != known.shape or not known.holds(plain):
            raise UsageError(
                f"{name!r} is {value.tolist()}, and the engine of the range takes whole numbers "
                f"from {list(known.min)} to {list(known.max)}",
                code="input.values",
                where=str(source),
                hint="give other values, or a wider range in model.values",
            )
    return found


def _allows_padding(context: Context, sizes: Sizes, manifest: Manifest | None) -> bool:
    """Returns True if the loader pads these shapes; without a bundle, if it may."""
    if manifest is not None:
        try:
            router = Router(manifest.name, manifest.every_variant, manifest.padding)
            return bool(router.route(sizes).padded)
        except DeviceError:
            return False
    request, own = requested_shapes(context), network_sizes(context)
    return any(
        all(
            len(size) == len(most) > 0 and size[0] < most[0] and size[1:] == most[1:]
            for size, most in ((sizes[name], whole) for name, whole in {**own, **bucket}.items())
        )
        for bucket in (own, *request.buckets)
    )


def _context_at(
    context: Context, shapes: Sizes, source: Path, manifest: Manifest | None
) -> Context:
    """Returns the context of a planned shape, or of a shape that the loader pads.

    Raises:
        UsageError: "input.shape": the shape is neither.
    """
    if _allows_padding(context, {**network_sizes(context), **shapes}, manifest):
        return at_sizes(context, shapes)
    return at_sizes(context, planned_sizes(context, shapes, str(source), "input.shape"))


def _context_for(context: Context, source: Path, manifest: Manifest | None) -> Context:
    """Returns the context of the shape of a file's arrays; the first context for other files.

    Raises:
        UsageError: "input.shape": the shape was not planned.
    """
    net, found = network(context), dict[str, Member]()
    with suppress(*BROKEN):  # reading the data reports it
        found = members(source, net.inputs[0])
    shapes = {name: found[name].shape for name in net.inputs if name in found}
    ranks = {name: len(net.tensors[name].shape) for name in shapes}
    # an array without the batch axis
    if shapes and all(len(shape) + 1 == ranks[name] for name, shape in shapes.items()):
        rows = {name: (1, *shape) for name, shape in shapes.items()}
        with suppress(UsageError):  # a single row is a batch of 1, if that is planned
            return _context_at(context, rows, source, manifest)
    # samples along a further axis, or rows of a batch, have the first shape
    if not shapes or any(len(shape) != ranks[name] for name, shape in shapes.items()):
        return context
    return _context_at(context, shapes, source, manifest)


def _equals_unstripped(
    context: Context, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> bool | None:
    expected = unstripped_outputs(context, inputs)
    if expected is None:
        return None
    return all(
        name in outputs and outputs[name].tobytes() == value.tobytes()
        for name, value in expected.items()
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
