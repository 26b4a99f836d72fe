"""Build requests: what a host asks of a board (``edgekit.build.request/1``)."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.trt._engines import Engine, Lane
from edgekit.trt._releases import release

if TYPE_CHECKING:
    from edgekit.network import Model

__all__ = ["SCHEMA", "BuildOptions", "Command", "Request", "build_request"]

SCHEMA = "edgekit.build.request/1"
_MODEL = "model.onnx"
_WORKSPACE = "WORKSPACE"

Command = Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How the builder is asked.

    Attributes:
        backend: "tensorrt" (the Python API) or "trtexec".
        tensorrt: The release that was planned for: "10.3".
        typing: "weak" (precision flags and a calibration cache) or "strong" (types in the model).
        precisions: "fp16" and "int8" as far as the plan uses them; empty when strongly typed.
        constraints: "prefer", "obey" or "none": how the builder takes layers' precisions.
        optimization_level: 0 to 5; None for TensorRT's own.
        pools: Bytes by memory pool, by TensorRT's names.
        calibration: The calibration cache's text; None without.
        refit_individual: Weights to mark as refittable one by one.
        timing_cache: Whether the board keeps timings and uses them for the next build.
    """

    backend: str
    tensorrt: str
    typing: str
    precisions: tuple[str, ...] = ()
    constraints: str = "prefer"
    optimization_level: int | None = None
    pools: Mapping[str, int] | None = None
    calibration: str | None = None
    refit_individual: tuple[str, ...] = ()
    timing_cache: bool = True


@dataclass(frozen=True, eq=False)
class Request:
    """A request and the blobs that it names, by SHA-256 (hex)."""

    document: Mapping[str, Any]
    blobs: Mapping[str, bytes]

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the request's canonical JSON."""
        text = json.dumps(self.document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def trying(self, attempts: Mapping[str, Sequence[Mapping[str, Any]]]) -> Request:
        """Returns the same request without the attempts that are not among these, by kind."""

        def left(engine: Mapping[str, Any]) -> dict[str, Any]:
            given = engine["attempts"]
            kept = [n for n, one in enumerate(given) if one in attempts[engine["kind"]]]
            # trtexec's arguments stand beside their attempts; without trtexec there are none
            chosen = {"attempts": [given[n] for n in kept]}
            if engine["trtexec"]:
                chosen["trtexec"] = [engine["trtexec"][n] for n in kept]
            return {**engine, **chosen}

        engines = [left(engine) for engine in self.document["engines"]]
        return Request({**self.document, "engines": engines}, self.blobs)


def build_request(
    name: str,
    lanes: Sequence[Lane],
    options: BuildOptions,
    *,
    inputs: Sequence[Mapping[str, Any]],
    outputs: Sequence[Mapping[str, Any]],
    golden: Sequence[Mapping[str, Any]] = (),
    attempts: Mapping[str, Sequence[Mapping[str, Any]]],
    command: Command | None = None,
) -> Request:
    """Returns the request that builds lanes of engines on a board.

    An engine's inputs and outputs have types that the release has; the loader converts them from
    and to the network's own.

    Args:
        name: The application's.
        lanes: The engines.
        options: How the builder is asked.
        inputs: The network's inputs: name, dtype, shape.
        outputs: Its outputs.
        golden: Inputs by seed and range, that the built engines are run on.
        attempts: Builder flags to try in this order, by engine kind ("plan", "loadable").
        command: Returns trtexec's arguments for an engine as the request has it and an attempt.

    Raises:
        ModelError: A model cannot be written.
    """
    on = release(options.tensorrt)
    blobs: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return digest

    calibration = options.calibration
    cache = keep(calibration.encode()) if calibration is not None else None
    files: dict[int, tuple[str, dict[str, str]]] = {}

    def model_of(engine: Engine) -> tuple[str, dict[str, str]]:
        if id(engine.model) not in files:
            found = {file: keep(data) for file, data in _files(engine.model).items()}
            files[id(engine.model)] = found.pop(_MODEL), found
        return files[id(engine.model)]

    def document(engine: Engine) -> dict[str, Any]:
        model, data = model_of(engine)
        dla = engine.device != "GPU"
        own: dict[str, Any] = {
            "key": engine.key,
            "kind": engine.kind,
            "model": model,
            "device": engine.device,
            "gpu_fallback": dla and engine.kind == "plan",
            "typing": options.typing,
            "precisions": list(options.precisions),
            "layers": list(engine.layers),
            "inputs": [{**x, "dtype": on.dtype(x["dtype"])} for x in engine.inputs],
            "outputs": [{**x, "dtype": on.dtype(x["dtype"])} for x in engine.outputs],
            "calibration": cache,
            "pools": {k: v for k, v in (options.pools or {}).items() if dla or k == _WORKSPACE},
            "constraints": options.constraints if options.typing == "weak" else "none",
            "optimization_level": options.optimization_level,
            "refit_individual": list(options.refit_individual) if engine.kind == "plan" else [],
            "profiles": [],
            "attempts": [dict(one) for one in attempts[engine.kind]],
            "trtexec": [],
        }
        if data:
            own["data"] = data
        if command is not None:
            own["trtexec"] = [command(own, attempt) for attempt in own["attempts"]]
        return own

    return Request(
        {
            "schema": SCHEMA,
            "name": name,
            "backend": options.backend,
            "tensorrt": options.tensorrt,
            "timing_cache": options.timing_cache,
            "lanes": [
                {"share": lane.share, "engines": [engine.key for engine in lane.engines]}
                for lane in lanes
            ],
            "network": {"inputs": [dict(x) for x in inputs], "outputs": [dict(x) for x in outputs]},
            "golden": [dict(case) for case in golden],
            "engines": [document(engine) for lane in lanes for engine in lane.engines],
        },
        blobs,
    )


def _files(model: Model) -> dict[str, bytes]:
    """Returns the ONNX file of a model, and beside it what ONNX keeps outside of large ones."""
    from edgekit.network import save

    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        save(model, Path(folder, _MODEL))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
