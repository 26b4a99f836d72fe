"""Refits a release: its weights are hashed, its engines loaded with them once, and it is ready."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Tuple

from ._errors import DeviceError, map_os_errors
from ._files import fsync_folder, write_durably
from ._release import REFIT, check_release, is_ready, to_bytes
from ._root import App, Root
from ._verify import check_blobs

if TYPE_CHECKING:
    from ._model import Model

__all__ = ["need_numpy", "refit_release"]


def refit_release(
    root: Root, app: App, folder: Path, threads: int = 0
) -> Tuple[Dict[str, Any], Model]:
    """Checks a release's weights, loads its engines with them, and calls it ready.

    Args:
        root: The installation.
        app: The app.
        folder: The release's folder.
        threads: Of each engine; 0 takes the backend's default.

    Returns:
        What the command ``refit`` answers, and the loaded release.

    Raises:
        DeviceError: "board.no-numpy", "blob.*", "engine.*", "weights.*", "board.*".
    """
    from ._model import open_model

    need_numpy()
    with root.lock(shared=True):
        checked = check_release(root, folder)
        digests = {weight.digest for weight in checked.manifest.weights.values()}
        total = check_blobs(checked, sorted(digests))
        for digest in checked.manifest.sizes():
            root.store.renew(digest)
        _settle(root, app, folder, checked.manifest.sizes())
        model = open_model(checked, threads, untested=True)
        reused = is_ready(folder)
        document = {
            "release": folder.name,
            "weights": len(checked.manifest.weights),
            "bytes": total,
            "engines": len({digest for digest, _ in model.engines}),
        }
        if not reused:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            with app.lock(), map_os_errors(str(folder)):
                write_durably(folder / REFIT, to_bytes(dict(document, at=stamp)))
    return dict(document, reused=reused, notes=list(model.notes)), model


def _settle(root: Root, app: App, folder: Path, digests: Iterable[str]) -> None:
    """Makes durable that the release and its blobs are there.

    Whoever put them there may have been killed before it did that: their bytes are safe, and their
    names are not. A release is called ready only after this.
    """
    blobs = {root.store.path(digest).parent for digest in digests}
    above = [root.store.folder, app.releases_folder, app.folder, app.folder.parent, root.folder]
    with map_os_errors(str(root.folder)):
        for each in (folder, *sorted(blobs), *above):
            fsync_folder(each)


def need_numpy() -> None:
    """Raises DeviceError "board.no-numpy" where NumPy is not installed."""
    try:
        import numpy as np
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise  # it is there, and broken
        raise DeviceError(
            "NumPy is not installed, and running a model needs it",
            code="board.no-numpy",
            hint="python3 -m pip install numpy, or apt-get install python3-numpy",
        ) from error
    del np
