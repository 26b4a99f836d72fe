"""Refusals in the first seconds of a run, before it rewrites, calibrates or builds: files and
options of the configuration, boards on which no backend can run, other weights that do not fit, and
a bundle that a board has rolled back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.deployment.requirements import require_onnxruntime, tensorrt_release
from edgekit.errors import UsageError
from edgekit.network.files import external_values
from edgekit.network.files import read as read_model
from edgekit.network.loading.load import STRIPPED
from edgekit.pipeline.cache import path_identity
from edgekit.pipeline.context import Context
from edgekit.pipeline.steps.build import backend_for
from edgekit.pipeline.steps.build_request import check_software
from edgekit.pipeline.steps.bundle import check_labels, health_key
from edgekit.pipeline.steps.calibrate import check_data, inputs_identity
from edgekit.pipeline.steps.labelled import check_labelled
from edgekit.pipeline.steps.load import (
    fp16_layers,
    require_parse,
    source,
    translate_qdq,
    user_model,
)
from edgekit.pipeline.steps.placement import placement_options
from edgekit.pipeline.steps.rewrite import model_digest, network
from edgekit.quantize.caches import load_cache
from edgekit.rewriting.provenance.record import KEY

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient
    from edgekit.pipeline.steps.deploy import ConnectedBoards


@dataclass(frozen=True, slots=True)
class OtherWeights:
    """The file with the weights of a refit.

    Attributes:
        path: The file.
        digest: Digest of its bytes, and of its external data.
        rewritten: True if ``edgekit rewrite`` has written it.
    """

    path: Path
    digest: str
    rewritten: bool


def read_weights(path: Path) -> OtherWeights:
    """Reads the facts of a refit's weights file; no configuration is needed.

    Raises:
        ModelError: It is not an ONNX file, or its external data are missing.
    """
    proto, _ = read_model(path)
    outside = {
        tensor.name: (tensor, place.value)
        for tensor in proto.graph.initializer
        for place in tensor.external_data
        if place.key == "location" and place.value != STRIPPED
    }
    external_values([tensor for tensor, _ in outside.values()], path.parent)
    # the weights may be in other files, which can change while the ONNX file does not
    files = [path, *sorted({path.parent / place for _, place in outside.values()})]
    found = hashlib.sha256("".join(map(path_identity, files)).encode())
    rewritten = any(entry.key == KEY for entry in proto.metadata_props)
    return OtherWeights(path, found.hexdigest(), rewritten)


def check_weights(context: Context, weights: OtherWeights) -> None:
    """Refuses weights of another network, as far as the network's own weights show it.

    Raises:
        DataError: "refit.mismatch".
        UsageError: "refit.opaque".
    """
    from edgekit.rewriting.provenance.other_weights import check_file

    came = source(context)
    if came.graph.opaque:
        raise UsageError(
            "the reference outputs for other weights are computed on this machine, which "
            f"cannot run {next(iter(came.graph.opaque))!r}",
            code="refit.opaque",
            hint="build engines from the other file with: edgekit deploy",
        )
    # files with Q/DQ nodes or rewrites differ from the original: they are compared when loaded
    if translate_qdq(context) is None and not weights.rewritten:
        check_file(weights.path, came)


def check_configuration(context: Context) -> None:
    """Refuses missing files that the configuration names, and wrong options.

    The model is not loaded.

    Raises:
        EdgekitError: As raised by the readers of the files and by the placement.
    """
    file, resolve = context.file, context.config.resolve
    if file.model.onnx is not None and not (path := resolve(file.model.onnx)).is_file():
        read_model(path)  # whose error names the file's actual format
    if file.precision == "int8" and file.calibration.cache is not None:
        load_cache(resolve(file.calibration.cache))
    check_data(context)
    check_labels(context)
    check_labelled(context)
    section = file.placement
    _check_once(
        context,
        "options",
        _check_placement,
        file.target,
        file.build.mode,
        section.model_dump(),
        *_file_identities(context, section.profile, section.layer_info),
    )


def _check_placement(context: Context) -> None:
    from edgekit.placement.inputs import check_options

    check_options(placement_options(context), context.target)


def _check_once(context: Context, name: str, check: Callable[[Context], None], *parts: Any) -> None:
    """Runs a check that depends on ``parts`` alone, unless it passed before."""
    key = context.cache.key(name, *parts)
    if context.force or context.cache.get(name, key) is None:
        check(context)
        context.cache.put(name, key, "right")


def _file_identities(context: Context, *paths: str | None) -> list[str | None]:
    return [path and path_identity(context.config.resolve(path)) for path in paths]


def check_parse(context: Context, boards: ConnectedBoards) -> None:
    """Refuses boards whose own TensorRT cannot parse the model.

    Raises:
        GateError: "model.parse".
    """
    if context.file.deploy.boards and backend_for(context, boards) != "reference":
        for client in boards.clients():
            require_parse(context, tensorrt_release(boards.probe(client)))


def check_layers(context: Context) -> None:
    """Refuses pins and FP16 layers of the configuration that the rewritten network does not have.

    Raises:
        UsageError: "plan.pin" or "calibration.fp16".
    """
    _check_once(
        context, "pins", _check_pins, model_digest(context), context.file.placement.model_dump()
    )
    fp16_layers(context, network(context), strict=True)


def _check_pins(context: Context) -> None:
    from edgekit.placement.inputs import resolve_pins

    resolve_pins(network(context), placement_options(context))


def check_boards(context: Context, boards: ConnectedBoards, *, deploys: bool) -> None:
    """Refuses boards that cannot build or run the configuration's engines.

    The parts that depend on the plan are checked when the plan is known.

    Args:
        context: The configuration.
        boards: Its boards.
        deploys: True if the boards run the build.

    Raises:
        EdgekitError: As raised by ``ConnectedBoards.look``, ``backend_for`` and ``check_software``.
        EnvironmentLack: "board.nothing-runs".
    """
    requested = context.file.build.backend
    if not context.file.deploy.boards or not (deploys or requested != "reference"):
        return
    backend = backend_for(context, boards)
    for client in boards.clients():
        if backend != "reference":
            check_software(context, client, boards.probe(client))
        elif deploys:
            # the handshake takes only a part of the time
            facts = boards.probe(client) if requested != backend else client.hello()
            if not facts.onnxruntime:
                require_onnxruntime(client.name, boards.probe(client))
    if deploys:
        boards.look()  # a board without a usable backend need not trust a key


def check_not_taken_back(
    context: Context, boards: ConnectedBoards, public_key: Path, weights: str = ""
) -> None:
    """Refuses a bundle that is known from an earlier run and that a board has rolled back.

    Args:
        context: The configuration.
        boards: Its boards.
        public_key: The public key of the bundle's signature.
        weights: Digest of a refit's weights.

    Raises:
        BoardError: "install.taken-back".
    """
    for client in boards.clients():
        digest = known_bundle(context, boards, client, public_key, weights)
        if digest is not None:
            boards.refuse_taken_back(client, context.file.name, digest)


def known_bundle(
    context: Context,
    boards: ConnectedBoards,
    client: BoardClient,
    public_key: Path,
    weights: str = "",
) -> str | None:
    """Returns the digest of a board's bundle if an earlier run made it, else None.

    Arguments as in ``check_not_taken_back``.
    """
    digest: str | None = context.cache.get(
        "asked", _bundle_key(context, boards, client, public_key, weights)
    )
    return digest


def remember_bundles(
    context: Context,
    boards: ConnectedBoards,
    public_key: Path,
    bundles: Iterable[tuple[BoardClient, str]],
    weights: str = "",
) -> None:
    """Stores the bundles of a configuration, for ``check_not_taken_back``.

    Args:
        context: The configuration.
        boards: Its boards.
        public_key: The public key of the bundles' signature.
        bundles: Each board with its bundle's digest.
        weights: Digest of a refit's weights.
    """
    for client, digest in bundles:
        # the next run asks before its first decision
        key = _bundle_key(context.undecided, boards, client, public_key, weights)
        context.cache.put("asked", key, digest)


def _bundle_key(
    context: Context,
    boards: ConnectedBoards,
    client: BoardClient,
    public_key: Path,
    weights: str,
) -> str:
    """Returns the key of all inputs of a board's bundle."""
    file = context.file
    backend = backend_for(context, boards)
    # TensorRT's engines depend on the board that builds them
    builder: Mapping[str, str] = {} if backend == "reference" else boards.probe(client).fingerprint
    files = (file.calibration.cache, file.placement.profile, file.placement.layer_info)
    return context.cache.key(
        "asked",
        user_model(context).digest,
        # of `deploy` only the release, the health check and the memory settings are in a bundle
        file.model_dump(exclude={"deploy", "bench"}),
        inputs_identity(context),
        _file_identities(context, *files),
        health_key(context),
        file.deploy.release.model_dump(),
        file.deploy.memory.model_dump(),
        hashlib.sha256(public_key.read_bytes()).hexdigest(),
        backend,
        builder,
        weights,
    )
