"""Builds a request's engines on this board: the job "build".

Whatever touches TensorRT or CUDA runs in a process of its own (``_build_child``): this one must
stay without CUDA, which does not survive a fork.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping

from ._build_child import Tell, isolated
from ._build_engine import EngineBuild
from ._build_golden import run_golden
from ._build_request import read_request
from ._build_types import BuildRequest
from ._bundle import BundleFiles
from ._errors import DeviceError
from ._fingerprint import fingerprint
from ._job import JobContext

__all__ = ["SCHEMA", "run"]

SCHEMA = "edgekit.build.result/1"


def run(context: JobContext) -> Dict[str, Any]:
    """Builds what the request asks for.

    Returns:
        ``edgekit.build.result/1`` (docs/architecture.md); engines, logs and outputs are blobs.

    Raises:
        DeviceError: "build.request"; "build.failed" when no attempt at an engine succeeded;
            "build.*" where no other attempt could help; "blob.*"; "board.*".
        JobCancelled: It was cancelled; nothing of it is left but blobs that a collection takes.
    """
    request = read_request(context.request)
    _need_blobs(context, request)
    board = fingerprint(context.root.folder)
    notes: List[str] = []
    if request.backend == "tensorrt":
        version = str(isolated(context, lambda tell: _start(context))["version"])
        _note_version(request, version, notes)
    build = EngineBuild(context, request, board)
    built: Dict[str, Dict[str, Any]] = {}
    same: Dict[str, str] = {}
    for spec in request.engines:
        context.check_cancelled()
        # lanes that share the frames of one plan may have engines in common
        alike = repr(replace(spec, key=""))
        if alike in same:
            built[spec.key] = dict(built[same[alike]], key=spec.key)
            continue
        same[alike] = spec.key
        built[spec.key] = build.engine(spec, notes)
    golden = _golden(context, request, built, board, notes)
    return {
        "schema": SCHEMA,
        "request": request.digest,
        "fingerprint": board,
        "tensorrt": board["tensorrt"] or built[request.engines[0].key]["tensorrt"],
        "builder": "python" if request.backend == "tensorrt" else "trtexec",
        "engines": [built[spec.key] for spec in request.engines],
        "golden": golden,
        "notes": notes,
    }


def _need_blobs(context: JobContext, request: BuildRequest) -> None:
    needed = {spec.model: spec.key for spec in request.engines}
    for spec in request.engines:
        needed.update({digest: spec.key for digest in spec.data.values()})
        if spec.calibration is not None:
            needed[spec.calibration] = spec.key
    missing = context.root.store.missing(needed)
    if missing:
        raise DeviceError(
            "{} of the request's blobs are not on the board".format(len(missing)),
            code="blob.missing",
            where="engines[{}]".format(needed[missing[0]]),
            hint="run the same command again; what is missing is sent",
        )


def _start(context: JobContext) -> Dict[str, Any]:
    from ._trt_modules import fault, find
    from ._trt_start import start

    trt = find("full")
    if trt is None or not hasattr(trt, "Builder"):
        raise DeviceError(
            "TensorRT's Python package cannot be used here: {}".format(
                fault("full") or "it has no builder"
            ),
            code="build.no-tensorrt",
            hint="install python3-libnvinfer, or use build.backend: trtexec",
        )
    start(trt, context.root.folder)
    return {"version": str(trt.__version__)}


def _note_version(request: BuildRequest, version: str, notes: List[str]) -> None:
    planned, here = request.tensorrt.split("."), version.split(".")
    if here[: len(planned)] != planned:
        notes.append(
            "planned for TensorRT {}, built with {}".format(request.tensorrt, version)
        )  # fmt: skip


def _golden(
    context: JobContext,
    request: BuildRequest,
    built: Mapping[str, Mapping[str, Any]],
    board: Mapping[str, str],
    notes: List[str],
) -> List[Dict[str, Any]]:
    if not request.golden:
        return []
    bare = [one["key"] for one in built.values() if one["stripped"] and one["full"] is None]
    if bare:
        notes.append("golden vectors were not run: {} has no weights here".format(", ".join(bare)))
        return []
    context.progress("golden vectors", 0, len(request.golden))
    store = context.root.store
    files = BundleFiles(
        where=request.name, manifest=b"", signature=None, blob=store.read, has=store.has,
        root=context.root, release=None,
    )  # fmt: skip

    def work(tell: Tell) -> Dict[str, Any]:
        return {"golden": run_golden(request, built, files, board, context.store)}

    try:
        found: List[Dict[str, Any]] = isolated(context, work)["golden"]
    except DeviceError as error:
        if error.code == "job.cancelled":
            raise
        # trtexec is for boards without the bindings: whoever deploys the bundle runs them first
        if request.backend == "trtexec" and error.code.startswith("board.no-"):
            notes.append("golden vectors were not run: {}".format(error.message))
            return []
        raise DeviceError(
            "the engines are built, but do not run: {}".format(error.message),
            code="build.golden",
            where=error.where or request.name,
            hint=error.hint,
        ) from error
    context.progress("golden vectors", len(request.golden), len(request.golden))
    return found
