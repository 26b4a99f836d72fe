"""What a configuration asks of builds on a board, as far as it is wrong without any board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.errors import ConfigError, EnvironmentLack, ModelError, Problem

if TYPE_CHECKING:
    from edgekit.pipeline._work import Work

__all__ = ["check_graph", "check_names", "check_opaque", "check_wishes"]


def check_wishes(work: Work) -> None:
    """Refuses at once what TensorRT cannot do together, where a board may build with it.

    Raises:
        ConfigError: With each pair of wishes, the reason and its source.
    """
    if not _on_board(work):
        return
    from edgekit.dla import drives_dla
    from edgekit.pipeline._board_request import wish_of
    from edgekit.trt import decide

    build, document = work.file.build, work.config.document
    if build.backend == "trtexec" and isinstance(build.refit, list):
        message = "trtexec cannot mark single weights as refittable"
        hint = "build.refit: identical or any, or build with build.backend: tensorrt"
        place = document.where(("build", "refit"))
        raise ConfigError([Problem(message, place, hint)], code="trt.features")
    # cores that nobody asked for are used where they can be
    asked_dla = document.knows(("placement", "dla_cores"))
    driven = asked_dla or drives_dla(work.target, work.tensorrt)
    dla = bool(work.file.placement.dla_cores and work.target.dla.cores and driven)
    decide(wish_of(work, dla=dla))


def check_graph(work: Work) -> None:
    """Refuses a bench by CUDA graph of a plan that uses a DLA, before anything builds it.

    The reference backend has no graphs at all; it is refused there, too, as the board would.

    Raises:
        ConfigError: "bench.graph".
    """
    if not work.file.bench.graph:
        return
    devices = {layer.device for share in work.plan.plans for layer in share.layers}
    cores = sorted(device for device in devices if device.startswith("DLA"))
    if cores:
        raise ConfigError(
            [Problem(
                f"a CUDA graph cannot hold what runs on {' and '.join(cores)}",
                work.config.document.where(("bench", "graph")),
                "measure without --graph (bench.graph), or plan for the GPU alone "
                "(placement.dla_cores: [])",
            )],
            code="bench.graph",
        )  # fmt: skip


def check_opaque(work: Work, *, on_board: bool | None = None) -> None:
    """Refuses opaque layers where nothing can run them, and tells what a board must have for them.

    Both before anything is built.

    Args:
        work: The configuration's work.
        on_board: Whether a board builds; what the configuration says when None.

    Raises:
        EnvironmentLack: "build.opaque": this machine would have to run them.
        ModelError: "model.opaque": nothing comes before them; "model.shape_unknown": a bundle's
            outputs have fixed shapes.
    """
    from edgekit.network import before_opaque, opaque_nodes, opaque_notes, unknown_tensors

    model = work.source
    opaque = opaque_nodes(model.proto)
    if not opaque:
        return
    first = next(iter(opaque))
    ends = [value.name for value in before_opaque(model).proto.graph.output]
    flags = " ".join(f"--outputs {name}" for name in ends)
    cut = f"cut the network before it with model.outputs: [{', '.join(ends)}] ({flags})"
    if not (_on_board(work) if on_board is None else on_board):
        needs = "".join(f"; {text}" for text in opaque_notes(model.proto) if "plugin" in text)
        raise EnvironmentLack(
            f"node {first!r} runs on a board with TensorRT only, and none builds{needs}",
            code="build.opaque",
            where=model.source,
            hint=f"name one under deploy.boards, or {cut}",
        )
    unknown = unknown_tensors(model.proto)
    open_outputs = [v.name for v in model.proto.graph.output if v.name in unknown]
    if open_outputs:
        raise ModelError(
            f"the shape of output {open_outputs[0]!r} is not known before running, and a bundle's "
            "outputs have fixed ones",
            code="model.shape_unknown",
            where=model.source,
            hint=f"give it with model.shapes where it is always the same, or {cut}",
        )
    for note in opaque_notes(model.proto):
        work.tell(note)


def check_names(work: Work) -> None:
    """Refuses names of weights that the network that is built, rewritten, does not have.

    Raises:
        ConfigError: "build.refit", with the names that are near.
    """
    named = work.file.build.refit
    if not isinstance(named, list) or not _on_board(work):
        return
    from difflib import get_close_matches

    known = work.model.weights
    problems = []
    for number, name in enumerate(named):
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5) or sorted(known)[:5]
            message = f"the network that is built has no weight {name!r}"
            place = work.config.document.where(("build", "refit", number))
            problems.append(Problem(message, place, f"it has {', '.join(near)}"))
    if problems:
        raise ConfigError(problems, code="build.refit")


def _on_board(work: Work) -> bool:
    """Whether a board may build with TensorRT, as far as the configuration tells."""
    backend = work.file.build.backend
    asked = backend in ("tensorrt", "trtexec")
    return asked or (backend == "auto" and bool(work.file.deploy.boards))
