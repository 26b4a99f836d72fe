"""A build on a board: the request, the job, its answer, and all of it kept for the next time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgekit._listed import listed
from edgekit.errors import GateError, UsageError
from edgekit.pipeline._board_checks import check_board
from edgekit.pipeline._board_request import engines_of, request_of, settled_request
from edgekit.pipeline._building import Built, alike
from edgekit.pipeline._hosts import job_command

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build import Weight
    from edgekit.deploy import BoardClient
    from edgekit.network import Model
    from edgekit.pipeline._building import Building
    from edgekit.pipeline._work import Work
    from edgekit.trt import Lane, Request

__all__ = ["build_on", "reweighed"]

_SHOWN, _REFUSED = 5, 10


def build_on(
    work: Work,
    client: BoardClient,
    probe: Mapping[str, Any],
    backend: str,
    *,
    deploys: bool = False,
) -> Built:
    """Builds a configuration's engines on a board, or reads back what was built before.

    Args:
        work: The configuration's work; its plan is what is built.
        client: The board.
        probe: What it is.
        backend: "tensorrt" or "trtexec".
        deploys: Whether the board is to run them too.

    Raises:
        BoardError: The board is another than was planned for ("board.other-tensorrt",
            "board.no-dla"), or the build failed.
        EnvironmentLack: The board lacks what the engines need.
        GateError: "build.differs": ``build.strict``, and the build is not as planned.
    """
    from edgekit.trt import artefacts_of, compare_build, golden_of

    check_board(work, client, probe, deploys=deploys)
    request, lanes = request_of(work, probe, backend)
    kind = alike(probe["fingerprint"]) or (client.name,)
    key = work.cache.key("board-build", request.digest, list(kind))
    record = None if work.force else work.cache.get("board-build", key)
    if record is not None and not work.cache.has_blobs(_blobs(record["result"])):
        record = None
    if record is None:
        work.fresh.add("build")
        # what is known to fail on such a board is not tried again, and is no other build
        tried = request if work.force else settled_request(work, probe, backend, request)
        record = _job(work, client, tried)
        _learn(work, probe, tried, record["result"])
        work.cache.put("board-build", key, record)
    result, cache = record["result"], work.cache

    def fetch(digests: Iterable[str]) -> dict[str, bytes]:
        return {digest: cache.blob(digest) for digest in digests}

    logs = {
        one["key"]: cache.blob(one["log"]).decode("utf-8", "replace")
        for one in result["engines"] if one["log"]
    }  # fmt: skip
    comparison = compare_build(work.network, work.judgement, work.plan, lanes, result, logs)
    if work.file.build.strict and comparison["differences"]:
        raise _differs(client, comparison)
    artefacts = artefacts_of(request, result, lanes, fetch)
    return Built(
        key,
        artefacts,
        tuple(golden_of(result, fetch)),
        comparison,
        record["board"],
        record["job"],
        result,
        tuple(f"{client.name}: {text}" for text in (*artefacts.notes, *_shown(comparison))),
    )


def _shown(comparison: Mapping[str, Any]) -> list[str]:
    return _some(comparison["differences"], _SHOWN)


def _some(told: Sequence[str], most: int) -> list[str]:
    more = len(told) - most
    left = [f"and {more} more difference{'s' if more > 1 else ''} (--json has all)"]
    return [*told[:most], *(left if more > 0 else [])]


def reweighed(
    work: Work, building: Building, built: Built, model: Model
) -> tuple[Mapping[str, Weight], Mapping[str, np.ndarray]]:
    """Returns another model's weights as a board's engines want them.

    Raises:
        UsageError: "refit.identical": the engines take the weights alone that they were built with;
            "refit.fixed": some of the weights that differ are fixed in them.
        DataError: "refit.mismatch": the other model has other names.
    """
    from edgekit.trt import artefacts_of

    assert built.result is not None, "asked for where a board built"
    kept = sorted({one["refit"] for one in built.result["engines"]} & {"identical", "none"})
    if kept:
        raise UsageError(
            "the engines take no other weights than those that they were built with",
            code="refit.identical",
            where=work.config.document.where(("build", "refit")),
            hint="build.refit: any builds engines that do (slower: fewer fusions)",
        )
    probe = {"fingerprint": built.artefacts.fingerprint}
    request, lanes = request_of(work, probe, "tensorrt", model=model)
    made = artefacts_of(request, built.result, lanes, lambda digests: {})
    own = engines_of(work, probe, "tensorrt")
    fixed = _fixed(own, lanes, built.result["engines"])
    if fixed or any(one["refit"] == "none" for one in made.engine_facts.values()):
        raise UsageError(
            f"the engines take no other values of {listed(fixed, _SHOWN) or 'some weights'}",
            code="refit.fixed",
            where=work.config.document.where(("build", "refit")),
            hint="edgekit build builds engines of the other file; build.refit: any builds some "
            "that take most weights",
        )
    return made.weights, made.values


def _fixed(
    old: Iterable[Lane], new: Iterable[Lane], engines: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Returns the weights that differ, and that their engine takes neither by name nor folded.

    Folded batch normalisations have names that TensorRT's importer makes up ("tmp_...").
    """
    taken = {one["key"]: set(one["weights"]) for one in engines}
    models = {engine.key: engine.model for lane in new for engine in lane.engines}
    found: dict[str, None] = {}
    for engine in (engine for lane in old for engine in lane.engines):
        names, graph = taken[engine.key], engine.model.proto.graph
        if any(name.startswith("tmp_") for name in names):
            norms = (node for node in graph.node if node.op_type == "BatchNormalization")
            names.update(name for node in norms for name in node.input[1:5])
        others = models[engine.key].weights
        for name, array in engine.model.weights.items():
            if name not in names and array.tobytes() != others[name].tobytes():
                found[name] = None
    return list(found)


def _job(work: Work, client: BoardClient, request: Request) -> dict[str, Any]:
    """Runs the job and brings home what it made.

    The job lives on the board by itself: when this machine goes away, the same command finds it
    again, running or done. Forced, one that is done is forgotten first; one that runs is joined.
    """
    blobs = {digest: request.blobs[digest] for digest in client.missing(request.blobs)}
    client.receive(blobs, progress=lambda phase, a, b: work.update(a, b, "sending the model"))
    started = client.start_job("build", request.document)
    if started["reused"] and work.force:
        client.remove_job(started["job"])
        started = client.start_job("build", request.document)
    job = started["job"]
    known = ", done before" if started["reused"] else ", joined" if started["joined"] else ""
    work.tell(f"{client.name}: build job {job}{known}")
    try:
        for event in client.watch_job(job):
            text = event.get("text") or event["phase"]
            # a build that is joined tells at once what it did long before
            at = event["time"] if event["n"] else None
            work.update(event["done"], event["total"], f"{client.name}: {text}", at=at)
    except KeyboardInterrupt:
        end = job_command("cancel", job, work.config, client.name)
        work.tell(f"the build goes on as job {job} on {client.name}: the same command joins it, "
                  f"`{end}` ends it")  # fmt: skip
        raise
    result = client.job_result(job)
    wanted = [digest for digest in _blobs(result) if not work.cache.has_blobs([digest])]
    for digest, data in client.fetch(wanted).items():
        work.cache.put_blob(digest, data)
    return {"result": result, "board": client.name, "job": job}


def _learn(
    work: Work, probe: Mapping[str, Any], request: Request, result: Mapping[str, Any]
) -> None:
    """Keeps what the build has shown of builder flags on such boards."""
    from edgekit.trt import outcomes_file, remember

    file = outcomes_file(work.cache.folder)
    asked = {one["key"]: one for one in request.document["engines"]}
    for one in result["engines"]:
        engine = asked[one["key"]]
        kind = engine["kind"]
        if kind == "plan" and engine["device"] != "GPU":
            kind = "plan DLA"
        remember(file, probe["fingerprint"], kind, one["attempts"])


def _blobs(result: Mapping[str, Any]) -> list[str]:
    """Returns what of a build is brought home; the unstripped plans stay on the board."""
    found = [one[key] for one in result["engines"] for key in ("engine", "inspector", "log")]
    found += [x["digest"] for case in result["golden"] for x in case["outputs"].values()]
    return [digest for digest in dict.fromkeys(found) if digest]


def _differs(client: BoardClient, comparison: Mapping[str, Any]) -> GateError:
    told = comparison["differences"]
    error = GateError(
        f"the build differs from the plan in {len(told)} way{'s' if len(told) > 1 else ''}",
        code="build.differs",
        where=client.name,
        hint="build.strict: false takes it as it is",
    )
    error.details = tuple(_some(told, _REFUSED))
    error.extra["built"] = comparison
    return error
