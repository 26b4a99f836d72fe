"""Bundle sources on the board itself: a folder, an .ekb file, or a copied mirror's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Tuple

from ._bundle import MANIFEST, BundleFiles, open_bundle
from ._checks import is_app_name, is_digest
from ._errors import DeviceError, map_os_errors
from ._store import map_file

__all__ = ["LocalSource"]

_MOST = 12  # apps that an error lists


class LocalSource:
    """A path. Blobs may be absent where the board's store has them already."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._path = path.expanduser()
        self._files: Optional[BundleFiles] = None

    def close(self) -> None:
        """Lets go of the files."""
        self._files = None

    def offer(self, app: Optional[str]) -> Tuple[bytes, Optional[bytes]]:
        """Manifest and signature, neither checked: the caller does that before all else."""
        files = self._files = self._open(app)
        return files.manifest, files.signature

    def blob(self, digest: str) -> memoryview:
        """A blob's bytes, mapped and not hashed.

        Raises:
            DeviceError: "blob.missing".
        """
        mirrored = _mirrored(self._path, digest)
        if mirrored is not None:
            return map_file(mirrored)
        if self._files is None:
            try:
                self._files = self._open(None)
            except DeviceError as error:
                if error.code != "bundle.not-found":
                    raise
                # a mirror's folder, which has other blobs: the next source may have this one
                raise DeviceError(
                    "the source does not have it",
                    code="blob.missing",
                    where=digest,
                    hint="push the bundle there again",
                ) from error
        return self._files.blob(digest)

    def _open(self, app: Optional[str]) -> BundleFiles:
        path = self._path
        if app is not None and (path / "blobs").is_dir() and not (path / MANIFEST).exists():
            self._need(app)
        latest = None if app is None else path / app / "latest"
        if latest is not None and latest.is_file():
            with map_os_errors(str(latest)), latest.open("rb") as file:
                digest = file.read(128).decode("ascii", "replace").strip()
            if not is_digest(digest):
                raise DeviceError(
                    "not a SHA-256",
                    code="source.bad-answer",
                    where=str(latest),
                    hint="push the bundle there again",
                )
            path = path / str(app) / digest
        files = open_bundle(path)
        return BundleFiles(files.where, files.manifest, files.signature, files.blob, files.has)

    def _need(self, app: str) -> None:
        """Raises DeviceError "source.not-found" where this mirror's folder lacks the app."""
        if (self._path / app / "latest").is_file():
            return
        with map_os_errors(self.where):
            found = sorted(
                name for name in os.listdir(str(self._path))
                if is_app_name(name) and (self._path / name / "latest").is_file()
            )  # fmt: skip
        more = " and {} more".format(len(found) - _MOST) if len(found) > _MOST else ""
        raise DeviceError(
            "the mirror has no app {}".format(app),
            code="source.not-found",
            where=self.where,
            hint="it has {}{}".format(", ".join(found[:_MOST]) or "none", more),
        )


def _mirrored(path: Path, digest: str) -> Optional[Path]:
    """The blob's file where ``path`` is a mirror's folder, or a bundle's folder in one."""
    for base in (path, path.parent.parent):
        found = base / "blobs" / digest[:2] / digest
        if found.is_file():
            return found
    return None
