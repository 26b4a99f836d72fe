"""The board's folder: where apps, releases, blobs and locks lie (docs/architecture.md)."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, List, Optional

from ._checks import is_app_name, is_release
from ._errors import DeviceError, map_os_errors
from ._files import LOCK_WAIT_S, durable_folder, locked
from ._links import finish_links
from ._store import Store

__all__ = ["App", "Root", "default_root", "no_such_app", "number_of"]


def default_root() -> Path:
    """$EDGEKIT_ROOT, or ~/.edgekit."""
    return Path(os.environ.get("EDGEKIT_ROOT") or "~/.edgekit").expanduser()


class Root:
    """One installation's folder on a board; nothing is created by only looking."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.store = Store(self.folder / "blobs")
        self.allowed_signers = self.folder / "allowed_signers"

    @contextmanager
    def lock(self, shared: bool, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Held shared while blobs arrive or get used, exclusively while they are collected."""
        with locked(self.folder / "lock", shared=shared, wait_s=wait_s):
            yield

    def app(self, name: str) -> App:
        """The app called ``name``; need not exist yet.

        Raises:
            DeviceError: "app.bad-name" when the name cannot be a folder's.
        """
        if not is_app_name(name):
            raise DeviceError(
                "{!r} cannot name an app".format(name[:80]),
                code="app.bad-name",
                hint="letters, digits, '.', '_' and '-', at most 64, "
                "starting with a letter or digit",
            )
        app = App(self, name)
        if app.folder.is_symlink():
            raise DeviceError(
                "a link stands where the app's folder should",
                code="root.link",
                where=str(app.folder),
                hint="remove it and deploy the app again",
            )
        return app

    def apps(self) -> List[App]:
        """Every app, by name."""
        folder = self.folder / "apps"
        if not folder.is_dir():
            return []
        names = [path.name for path in sorted(folder.iterdir()) if not path.is_symlink()]
        return [App(self, name) for name in names if is_app_name(name)]


class App:
    """One app's releases: names of folders, and the two links."""

    def __init__(self, root: Root, name: str) -> None:
        self.root = root
        self.name = name
        self.folder = root.folder / "apps" / name
        self.releases_folder = self.folder / "releases"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held while the app's releases or links change; a cut-off change is finished first."""
        with map_os_errors(str(self.folder)):
            durable_folder(self.releases_folder)
        with locked(self.folder / "lock"):
            with map_os_errors(str(self.folder)):
                durable_folder(self.releases_folder)
                finish_links(self.folder)
            yield

    def releases(self) -> List[str]:
        """Release names, oldest first."""
        if not self.releases_folder.is_dir():
            return []
        names = [path.name for path in self.releases_folder.iterdir()]
        return sorted((name for name in names if is_release(name)), key=number_of)

    def link(self, which: str) -> Optional[str]:
        """The release that ``which`` ("current" or "previous") points at, if it exists."""
        try:
            target = os.readlink(str(self.folder / which))
        except OSError:
            return None
        name = os.path.basename(target)
        return name if is_release(name) and (self.releases_folder / name).is_dir() else None

    def release(self, name: Optional[str]) -> Path:
        """The folder of the release ``name``, or of the current one.

        Raises:
            DeviceError: "release.none" or "release.unknown".
        """
        if name is None:
            name = self.link("current")
            if name is None:
                raise DeviceError(
                    "the app has no current release",
                    code="release.none",
                    where=self.name,
                    hint="deploy a bundle, or name a --release",
                )
        folder = self.releases_folder / name
        if not is_release(name) or folder.is_symlink() or not folder.is_dir():
            raise DeviceError(
                "no such release",
                code="release.unknown",
                where="{}/{}".format(self.name, name[:80]),
                hint="there are: {}".format(", ".join(self.releases()) or "none"),
            )
        return self.releases_folder / name


def no_such_app(app: App) -> DeviceError:
    """The error that an app is not here, which names those that are."""
    names = ", ".join(one.name for one in app.root.apps() if one.folder.is_dir())
    return DeviceError(
        "no such app", code="app.unknown", where=app.name, hint="there are: " + (names or "none")
    )


def number_of(release: str) -> int:
    """The running number that a release's name begins with: its age, whatever clocks say."""
    return int(release.partition("-")[0])
