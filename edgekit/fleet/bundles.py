"""What each board of a rollout gets: one build for each kind of board, settled once. A resumed
rollout goes on with that very bundle, whatever became of the configuration.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundles.files import read, write
from edgekit.bundles.manifest import Bundle
from edgekit.config.loader import Config, open_config
from edgekit.errors import BundleError, ConfigError, Problem
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.progress import Progress
from edgekit.pipeline.steps.build import backend_of, board_kind, check_bundle

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient
    from edgekit.fleet.store import RolloutStore
    from edgekit.fleet.waves import FleetBoard


_FILE, _REFERENCE = "file", "reference"


class Bundles:
    """The bundles of one rollout; threads may share it.

    Args:
        store: The state.
        rollout: The rollout's row.
        progress: Called with a build's progress.
    """

    def __init__(
        self, store: RolloutStore, rollout: Mapping[str, Any], *, progress: Progress | None = None
    ) -> None:
        self._store = store
        self._rollout = rollout
        self._progress = progress
        # one build at a time: a second board of its kind waits and gets the same
        self._lock = threading.Lock()
        self._made: dict[str, Bundle] = {}
        self._configs: dict[Path, Config] = {}

    def __call__(self, client: BoardClient, member: FleetBoard) -> Bundle:
        """Returns a board's bundle.

        Raises:
            EdgekitError: It cannot be built; or it was, and is no longer what it was.
        """
        source = member.config or Path(self._rollout["config"])
        if self._rollout["bundle"]:
            bundle = self.settled(_FILE)
            if bundle.manifest.backend != _REFERENCE:
                self._fits(self._config(source), client, bundle)
            return bundle
        backend_setting = self._config(source).file.build.backend
        probe = {} if backend_setting == _REFERENCE else client.probe()
        backend, kind = _kind(backend_setting, probe, member.name)
        key = f"{source}:{backend}:{kind}"
        with self._lock:
            if key not in self._made:
                self._made[key] = self._settle(key, source, client, backend)
        bundle = self._made[key]
        if backend != _REFERENCE:
            self._fits(self._config(source), client, bundle)
        return bundle

    def first(self, source: Path, config: Config) -> tuple[str, Bundle] | None:
        """Builds what needs no board, so that what is wrong is reported before a rollout is begun.

        Returns:
            Key and bundle; None where a board has to build.
        """
        self._configs[source] = config
        if config.file.build.backend != _REFERENCE:
            return None
        return f"{source}:{_REFERENCE}:", self._packed(config, None, _REFERENCE)

    def settled(self, key: str) -> Bundle:
        """Returns the bundle on record for a key; KeyError when there is none."""
        with self._lock:
            if key not in self._made:
                digest = self._store.bundle(self._rollout["id"], key)
                if digest is None:
                    raise KeyError(key)
                self._made[key] = self._read(digest)
            return self._made[key]

    def put(self, key: str, bundle: Bundle) -> None:
        """Settles the bundle of a key: the file first, then the record of it."""
        path = self._path(bundle.digest)
        if not path.is_file():
            lacks = set(bundle.weight_bytes) - set(bundle.weights)
            write(bundle, path, stripped=bool(lacks))
        self._store.set_bundle(self._rollout["id"], key, bundle.digest)

    def _settle(self, key: str, source: Path, client: BoardClient, backend: str) -> Bundle:
        digest = self._store.bundle(self._rollout["id"], key)
        if digest is not None:
            with contextlib.suppress(BundleError):
                return self._read(digest)
        config = self._config(source)
        if digest is None and config_digest(config) != self._began_with(source):
            raise ConfigError(
                [
                    Problem(
                        "the configuration is not what the rollout began with, and this kind of "
                        "board has no bundle yet",
                        config.path,
                        "put it back as it was and resume, or abort and deploy anew",
                    )
                ],
                code="fleet.config-changed",
            )
        bundle = self._packed(config, client, backend)
        if digest is not None and bundle.digest != digest:
            raise BundleError(
                f"the rollout's bundle {digest[:12]} is gone, and a new build gives "
                f"{bundle.digest[:12]}",
                code="fleet.bundle-changed",
                where=str(self._path(digest)),
                hint="put the file back, or abort the rollout and deploy anew",
            )
        if digest is None:
            self.put(key, bundle)
        return bundle

    def _packed(self, config: Config, client: BoardClient | None, backend: str) -> Bundle:
        work = self._store.folder / "work" / str(self._rollout["app"])
        pipeline = Pipeline(config, out=work, progress=self._progress, backend=backend)
        with pipeline:
            if client is not None:
                pipeline.boards.use([client])
            pipeline.bundle()
            return pipeline.packed()

    def _began_with(self, source: Path) -> str:
        known: dict[str, str] = json.loads(self._rollout["config_digest"])
        return known.get(str(source), "")

    def _read(self, digest: str) -> Bundle:
        path = self._path(digest)
        bundle = read(path)
        if bundle.digest != digest:
            raise BundleError(
                f"the file holds the bundle {bundle.digest[:12]}",
                code="fleet.bundle-changed",
                where=str(path),
                hint="put the file back, or abort the rollout and deploy anew",
            )
        return bundle

    def _path(self, digest: str) -> Path:
        return self._store.folder / "bundles" / f"{digest}.ekb"

    def _config(self, source: Path) -> Config:
        if source not in self._configs:
            self._configs[source] = open_config(source)
        return self._configs[source]

    def _fits(self, config: Config, client: BoardClient, bundle: Bundle) -> None:
        with Pipeline(config) as pipeline:
            check_bundle(pipeline.boards, client, bundle.manifest)


def config_digest(config: Config) -> str:
    """Returns a digest that changes with the configuration."""
    return hashlib.sha256(config.text.encode()).hexdigest()


def signer_of(config: Config) -> str:
    """Returns the line of the public key that signs a configuration's bundles."""
    with Pipeline(config) as pipeline:
        return pipeline.signing.public_key.read_text(encoding="utf-8").strip()


def _kind(backend_setting: str, probe: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Returns who builds for a board, and what the boards share that run the same build."""
    backend = backend_of(backend_setting, probe, name)
    if backend == _REFERENCE:
        return backend, ""
    return backend, "/".join(board_kind(probe["fingerprint"])) or name
