"""The bundles of a rollout: one build for each kind of board. A resumed rollout uses the same
bundles, even if the configuration changed.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundles.files import read, write
from edgekit.bundles.manifest import Bundle
from edgekit.config.loader import Config, open_config
from edgekit.deployment.requirements import board_kind, choose_backend
from edgekit.errors import BundleError, ConfigError, Problem
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.progress import Progress
from edgekit.pipeline.steps.build import check_bundle
from edgekit.pipeline.steps.bundle import read_bundle

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient
    from edgekit.fleet.store import Rollout
    from edgekit.fleet.waves import FleetBoard
    from edgekit_device.board.probe import Probe


_FILE, _REFERENCE = "file", "reference"


class Bundles:
    """The bundles of one rollout; threads may share it.

    Args:
        rollout: The rollout.
        progress: Called with a build's progress.
    """

    def __init__(self, rollout: Rollout, *, progress: Progress | None = None) -> None:
        self._rollout, self._facts = rollout, rollout.facts
        self._progress = progress
        # one build at a time: a second board of the same kind waits for the same bundle
        self._lock = threading.Lock()
        self._made: dict[str, Bundle] = {}
        self._configs: dict[Path, Config] = {}

    def __call__(self, client: BoardClient, member: FleetBoard) -> Bundle:
        """Returns a board's bundle.

        Raises:
            EdgekitError: The bundle cannot be built, or its stored file changed.
        """
        source = member.config or Path(self._facts.config)
        with self._lock:
            if source not in self._configs:
                self._configs[source] = open_config(source)
        config = self._configs[source]
        backend, key = "", _FILE
        if not self._facts.bundle:
            needs_board = config.file.build.backend != _REFERENCE
            backend, kind = _REFERENCE, ""
            if needs_board:
                # without the lock, so that boards are probed at the same time
                backend, kind = _backend_and_kind(
                    config.file.build.backend, client.probe(), member.name
                )
            key = _key(str(source), backend, kind)
        with self._lock:
            if key not in self._made:
                self._made[key] = self._build_once(key, source, client, backend)
        bundle = self._made[key]
        if bundle.manifest.backend != _REFERENCE:
            with Pipeline(config) as pipeline:
                check_bundle(pipeline.boards, client, bundle.manifest)
        return bundle

    def _build_once(self, key: str, source: Path, client: BoardClient, backend: str) -> Bundle:
        folder, settled = self._rollout.folder, self._facts.bundles
        if key in settled:
            return _read_bundle(folder, settled[key])
        config = self._configs[source]
        if config_digest(config) != self._facts.config_digest.get(str(source)):
            raise ConfigError(
                [
                    Problem(
                        "the configuration changed since the rollout started, and this kind of "
                        "board has no bundle yet",
                        config.path,
                        "restore it and resume, or abort and start a new rollout",
                    )
                ],
                code="fleet.config-changed",
            )
        bundle = _build_bundle(config, folder, self._progress, client, backend)
        self._rollout.set(bundles={**settled, key: keep_bundle(folder, bundle)})
        return bundle


def first_bundles(
    folder: Path,
    configs: Mapping[str, Config],
    config: Config,
    file: Path | None,
    progress: Progress | None,
) -> dict[str, Bundle]:
    """Returns, by key, the bundles that can be built without a board, before a rollout starts.

    Args:
        folder: The state folder.
        configs: The rollout's configurations by path.
        config: The configuration on the command line.
        file: A finished bundle to use instead of builds.
        progress: Called with a build's progress.
    """
    if file is not None:
        with Pipeline(config) as pipeline:
            return {_FILE: read_bundle(pipeline.context, file)}
    return {
        _key(source, _REFERENCE, ""): _build_bundle(own, folder, progress, None, _REFERENCE)
        for source, own in configs.items()
        if own.file.build.backend == _REFERENCE
    }


def keep_bundle(folder: Path, bundle: Bundle) -> str:
    """Stores a bundle for a later resume, and returns its digest."""
    path = _path(folder, bundle.digest)
    if not path.is_file():
        # a finished bundle that was given without weights is kept without them
        lacks = set(bundle.weight_bytes) - set(bundle.weights)
        write(bundle, path, stripped=bool(lacks))
    return bundle.digest


def _read_bundle(folder: Path, digest: str) -> Bundle:
    bundle = read(_path(folder, digest))
    if bundle.digest != digest:
        raise BundleError(
            f"the file contains bundle {bundle.digest[:12]}, which is not the rollout's",
            code="fleet.bundle-changed",
            where=str(_path(folder, digest)),
            hint="restore the file, or abort and start a new rollout",
        )
    return bundle


def _path(folder: Path, digest: str) -> Path:
    return folder / "bundles" / f"{digest}.ekb"


def _build_bundle(
    config: Config,
    folder: Path,
    progress: Progress | None,
    client: BoardClient | None,
    backend: str,
) -> Bundle:
    work = folder / "work" / str(config.file.name)
    with Pipeline(config, out=work, progress=progress, backend=backend) as pipeline:
        if client is not None:
            pipeline.boards.use([client])
        pipeline.bundle()
        return pipeline.packed()


def config_digest(config: Config) -> str:
    """Returns a digest that changes with the configuration."""
    return hashlib.sha256(config.text.encode()).hexdigest()


def signing_key_line(config: Config) -> str:
    """Returns the line of the public key that signs a configuration's bundles."""
    with Pipeline(config) as pipeline:
        return pipeline.signing.public_key.read_text(encoding="utf-8").strip()


def _backend_and_kind(backend_setting: str, probe: Probe, name: str) -> tuple[str, str]:
    """Returns the backend that builds for a board, and the key that boards of one build share."""
    backend = choose_backend(backend_setting, probe, name)
    if backend == _REFERENCE:
        return backend, ""
    # a board of unknown kind shares its engines with no other board
    return backend, "/".join(board_kind(probe.fingerprint)) or name


def _key(source: str, backend: str, kind: str) -> str:
    return f"{source}:{backend}:{kind}"
