"""`HostSteps` runs the steps that need no board, from check to the written bundle, and says what
each did; errors get the place in the configuration that they are about.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from edgekit.config.loader import Config
from edgekit.errors import DataError, EdgekitError, UsageError
from edgekit.network.writing import save
from edgekit.pipeline.cache import Cache, file_stamps
from edgekit.pipeline.outputs import may_fill
from edgekit.pipeline.progress import STEPS, Progress, Quiet, StepLog, StepRecord
from edgekit.pipeline.steps.accuracy import Work
from edgekit.pipeline.steps.approximations import approximations
from edgekit.pipeline.steps.build import Builder
from edgekit.pipeline.steps.build_request import (
    check_build_options,
    check_cuda_graph,
    check_names,
    check_opaque,
)
from edgekit.pipeline.steps.bundle import BundlePacker
from edgekit.pipeline.steps.deploy import ConnectedBoards, SigningKey
from edgekit.pipeline.steps.plan import methods_are_equal
from edgekit.pipeline.steps.scales import named_scales
from edgekit.pipeline.steps.translation import float_note
from edgekit.text import counted, listed, percent

if TYPE_CHECKING:
    from edgekit.bundles.manifest import Bundle


_POSITIONS: dict[str, tuple[str, ...]] = {
    "target.mode": ("power_mode",),
    "tensorrt.version": ("tensorrt",),
    "model.unknown_builtin": ("model", "builtin"),
    "model.unknown_output": ("model", "outputs"),
    "model.unknown_input": ("model", "shapes"),
    "model.shape_rank": ("model", "shapes"),
    "model.shape_conflict": ("model", "shapes"),
    "calibration.fp16": ("calibration", "fp16_layers"),
    "plan.pin": ("placement", "pin"),
    "plan.core": ("placement", "dla_cores"),
    "config.no-key": ("deploy", "sign_with"),
}


def set_position(error: EdgekitError, config: Config) -> None:
    """Makes ``where`` of an error the place in the configuration that it is about, if any is."""
    path = _POSITIONS.get(error.code)
    if error.code == "rewrite.unknown":
        path = tuple(error.where.split("."))  # the list that has the name
    if path and path[0] in config.document.value:
        error.where = config.document.where(path)


#: What it is called in a run's folder.
TYPED_NAME = "qdq.onnx"


def write_typed(work: Work, path: Path) -> Path | None:
    """Writes the Q/DQ model unless it is there; returns None where a release needs none.

    Raises:
        ModelError: It cannot be written.
    """
    if not work.lowers or work.scales is None:
        return None

    key = work.cache.key("qdq", *work.typed_identity, str(path.absolute()))
    stamps = work.cache.get("qdq", key)
    if work.force or stamps is None or stamps != file_stamps([path]):
        work.fresh.add("bundle")
        save(work.typed, path)
        work.cache.put("qdq", key, file_stamps([path]))
    return path


HOST_STEPS = STEPS[: STEPS.index("bundle")]


class HostSteps:
    """The host's steps; each reports what it did, and is "reused" when nothing was computed.

    Args:
        config: The configuration.
        out: Folder for bundle, report and trace; ``edgekit-out/NAME`` when None.
        force: Do everything again.
        progress: Called with the steps' progress; not used when None.
        cache: Holds the results; the user's cache folder when None.
        accept_host_key: Accept unknown host keys of boards this once.
        trust_key: Let boards trust the signing key from now on.
        again: ``deploy`` and ``run`` also put back what was taken back on a board.
        or_serving: ``run`` goes on with what a board serves where the bundle was taken back there.
    """

    def __init__(
        self,
        config: Config,
        *,
        out: Path | None = None,
        force: bool = False,
        progress: Progress | None = None,
        cache: Cache | None = None,
        accept_host_key: bool = False,
        trust_key: bool = False,
        again: bool = False,
        or_serving: bool = False,
    ) -> None:
        self._again, self._or_serving = again, or_serving
        self.config = config
        self.file = config.file
        if self.file.model.networks:
            raise UsageError(
                "this configuration has several networks, and this takes one",
                code="config.networks",
                where=config.document.where(("model", "networks")),
                hint="edgekit plan and edgekit report take several; give each a file of its own "
                "for everything else",
            )
        self.out = out or Path("edgekit-out") / self.file.name
        self.cache = cache or Cache()
        self.work = Work(config, self.cache, force=force)
        signing = SigningKey(self.work)
        self.boards = ConnectedBoards(
            self.work, signing, accept_host_key=accept_host_key, trust_key=trust_key
        )
        self.building = Builder(self.work, self.boards)
        self.packing = BundlePacker(self.building, signing)
        self._force = force
        self._placed: dict[str, str] = {}  # as the plan's step said it
        self._steps = StepLog(STEPS, progress or Quiet())
        self.work.update = self._steps.progress.update
        self.work.on_note = self._steps.progress.note
        # a caller's own progress may know no details
        self.work.detail = getattr(self._steps.progress, "detail", self.work.detail)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EdgekitError):
            # what was done before it failed, and the accuracy when that is what failed
            error.extra.setdefault("steps", self._step_list())
            set_position(error, self.config)
        self.boards.close()

    def _only(self, *names: str) -> None:
        self._steps.names = [name for name in STEPS if name in names]

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[StepRecord]:
        """A step of the host's work: it is reused when nothing was computed in it."""
        self.work.fresh.clear()
        with self._steps.step(name) as step:
            yield step
            if not self.work.fresh:
                step.reuse()

    def _host(self) -> dict[str, Any]:
        if "bundle" in self._steps.names:
            may_fill(self.out)
        may_fill(self.cache.folder)
        check_build_options(self.work)
        self.building.deploys = "deploy" in self._steps.names
        if self.building.deploys:
            self.boards.begin()
        check = self._check()
        check_opaque(self.work)
        self._rewrite()
        check_names(self.work)
        if "bench" in self._steps.names:
            check_bench_frames(self, may_reuse="report" in self._steps.names)
        if self.building.deploys:
            self.boards.look()
        self._calibrate()
        self._plan()
        if "bench" in self._steps.names:
            check_cuda_graph(self.work)
        self._build()
        return check

    def _check(self, *, brief: bool = False) -> dict[str, Any]:
        with self._step("check") as step:
            document = self.work.verdict() if brief else self.work.check()
            summary = document["summary"]
            known = "known " if document.get("unknown_cost") else ""
            step.detail = (
                f"{counted(summary['layers'], 'layer')}, "
                f"{summary['dla_layers']} could run on the DLA"
            )
            if any(layer["macs"] for layer in document["layers"]):
                share = percent(summary["dla_macs_fraction"])
                step.detail += f" ({share} of the {known}MACs)"
        return document

    def _rewrite(self) -> None:
        with self._step("rewrite") as step:
            applied = self.work.rewrites
            names = Counter(item["rewrite"] for item in applied)
            names_text = (f"{name} ({n})" if n > 1 else name for name, n in names.items())
            step.detail = ", ".join(names_text) or (
                f"{counted(left, 'rewrite')} left out: the plan is better without"
                if (left := self.work.rewrites_left)
                else "nothing to rewrite"
            )

    def _calibrate(self, *, chosen: bool = False) -> None:
        with self._step("calibrate") as step:
            if self.work.chooses and not chosen:
                # the method is chosen when the plan is known
                ranges = self.work.measured()
                named = named_scales(self.work.scales_by(ranges, "minmax"), self.work.model)
                step.detail = (
                    f"ranges of {counted(len(named.scales) + len(named.missing), 'tensor')}, "
                    f"{len(ranges.amax)} methods, {ranges.data}"
                )
                return
            scales = self.work.scales
            if scales is None:
                step.detail = f"{self.file.precision} needs no scales"
            else:
                named = named_scales(scales, self.work.model)
                none = f", {counted(len(named.missing), 'tensor')} without" if named.missing else ""
                step.detail = (
                    f"{counted(len(named.scales), 'scale')}{none}, {scales.method}, {scales.data}"
                )

    def _plan(self) -> None:
        with self._step("plan") as step:
            from edgekit.placement.plan import proof_of

            plan = self.work.plan
            self._placed = {layer.name: layer.device for layer in plan.layers}
            on_dla = sum(layer.device != "GPU" for layer in plan.layers)
            proof = proof_of(plan.optimal, plan.extrapolated) or f"gap {percent(plan.gap, 2)}"
            step.detail = (
                f"{on_dla} of {len(plan.layers)} layers on the DLA, "
                f"{counted(len(plan.loadables), 'loadable')}, {plan.objective}, {proof}"
            )

    def _build(self) -> None:
        from edgekit.reports.facts import compared_on

        with self._step("build") as step:
            error = self.work.gated()
            built = self.building.every()
            artefacts = built[0].artefacts
            segments = sum(len(s) for _, s in artefacts.lanes)
            on = compared_on({**error, "computed": "emulated on this CPU"})
            figures = self.work.accuracy_text(error, f"cosine {error['cosine']:.5f} against FP32")
            step.detail = (
                f"{counted(segments, 'segment')}, {artefacts.backend} backend; {figures} ({on})"
            )
            if built[0].board:
                step.detail += "; built on " + ", ".join(one.board for one in built)
            if self.work.choice:
                step.detail += f"; INT8 by {self.work.method}"
                if methods_are_equal(self.work.choice):
                    step.detail += ", for the methods cannot be told apart here"
            if self.work.fp16_by_gate:
                step.detail += f"; kept in FP16: {listed(self.work.fp16_by_gate)}"
            layers = self.work.plan.layers
            if {layer.name: layer.device for layer in layers} != self._placed:
                on_dla = sum(layer.device != "GPU" for layer in layers)
                step.detail += (
                    f"; placement changed: {on_dla} of {len(layers)} layers on the DLA now"
                )

    def _bundle(self) -> dict[str, Any]:
        path = self.out / "bundle.ekb"
        with self._step("bundle") as step:
            bundle = self.packing.bundle
            self._write_bundle(bundle, path)
            document = {
                "path": str(path),
                "bytes": bundle.full_bytes,
                "stripped_bytes": bundle.stripped_bytes,
                "digest": bundle.digest,
            }
            others = []
            for built in self.building.every()[1:]:
                other = path.with_name(f"bundle-{built.board}.ekb")
                self._write_bundle(self.packing.bundle_of(built), other)
                others.append(str(other))
            if others:
                document["others"] = others
                step.detail = f"{1 + len(others)} kinds of boards; "
            step.detail += (
                f"{bundle.full_bytes:,} bytes, {bundle.stripped_bytes:,} stripped, signed"
            )
            typed = write_typed(self.work, self.out / TYPED_NAME)
            if typed is not None:
                document["qdq"] = str(typed)
                step.detail += f"; TensorRT builds from {typed.name}"
        return document

    def _write_bundle(self, bundle: Bundle, path: Path) -> None:
        from edgekit.bundles.files import write

        stripped = self.file.build.strip is not False
        key = self.cache.key("written", bundle.digest, stripped, str(path.absolute()))
        stamps = self.cache.get("written", key)
        # the file may have been removed, or replaced by another configuration's
        if self._force or stamps is None or stamps != file_stamps([path]):
            self.work.fresh.add("bundle")
            write(bundle, path, stripped=stripped)
            self.cache.put("written", key, file_stamps([path]))

    def notes(self) -> list[str]:
        """Returns what a person should know about the result."""
        return list(dict.fromkeys(one for group in self.note_groups().values() for one in group))

    def note_groups(self) -> dict[str, list[str]]:
        """Returns the notes by what they are about: "accuracy", "run", "plan", "build"."""
        work = self.work
        accuracy = [one["told"] for one in work.accuracy.get("nonfinite") or ()]
        scales = work.plan_scales
        accuracy += scales.warnings if scales else ()
        build = [*work.artefacts.notes]
        for built in self.building.every():
            build += built.notes
        if work.file.build.version_compatible is True and self.building.backend == "reference":
            build.append(
                "build.version_compatible is dropped: the reference backend builds no TensorRT plan"
            )
        accuracy += [item["note"] for item in approximations(work)]
        if work.file.model.builtin is not None:
            accuracy.append(
                "the network's weights are random: its accuracy says how closely the target's "
                "numerics follow FP32, nothing about the network"
            )
        if work.translated is not None:
            accuracy.append(float_note(work.named))
        plan = [*work.plan.notes]
        if work.plan.baselines.get("tensorrt_auto") == work.plan.predicted:
            plan.append("for this objective TensorRT's automatic placement is as good")
        return {"accuracy": accuracy, "run": [*work.notes], "plan": plan, "build": build}

    def _step_list(self) -> list[dict[str, Any]]:
        return list(self._steps.done)


def bench_frames(pipeline: HostSteps) -> bytes | None:
    """Returns ``bench.inputs`` as an ``.npz``, several frames stacked; None where none are named.

    Raises:
        DataError: They cannot be read, or do not fit the network.
    """
    named = pipeline.file.bench.inputs
    if named is None:
        return None

    from edgekit.quantize.data.load import load_data
    from edgekit_device.arrays.npz import write_npz

    path = pipeline.config.resolve(named)
    found = list(islice(load_data(path, pipeline.work.model, whole=True), _MOST_FRAMES))
    if not found:
        raise DataError("the file holds no input", code="data.empty", where=str(path))
    if len(found) == 1:
        return write_npz(dict(found[0]))
    return write_npz({name: np.stack([one[name] for one in found]) for name in found[0]})


def check_bench_frames(pipeline: HostSteps, *, may_reuse: bool) -> None:
    """Refuses ``bench.inputs`` that do not fit the network, before anything is built for them.

    Args:
        pipeline: The configuration's pipeline.
        may_reuse: Whether an older measurement will do, for which the file is not needed.

    Raises:
        DataError: As ``frames``.
    """
    named = pipeline.file.bench.inputs
    if named is not None and (not may_reuse or pipeline.config.resolve(named).exists()):
        bench_frames(pipeline)


_MOST_FRAMES = 32  # a board cycles no more
