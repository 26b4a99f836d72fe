"""Engines that this board built itself for a release whose own run here no more.

    releases/<id>/rebuilt/<fingerprint>/build.json   {"schema", "manifest", "request", "result"}
    releases/<id>/rebuilt/<fingerprint>/<engine's digest>

The build request and the ONNX files that it reads are blobs of the bundle, so signed. The job
"build" makes the engines, golden vectors and samples judge them, and build.json is written last:
without it nothing of the folder counts. No signature covers the engines, so what ``_refitted`` says
of its plans holds for these: whose they must be, and that they run no code of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, Mapping, Optional

from ._backends import import_backend
from ._build_golden import checked_of
from ._build_request import read_request
from ._bundle import BundleFiles
from ._errors import DeviceError, map_os_errors
from ._files import fsync_folder, locked, write_durably
from ._fingerprint_now import COMPARED
from ._owned import is_owned, owners_of, read_owned
from ._store import Buffer, sha256
from ._verify import Checked, read_checked

if TYPE_CHECKING:
    from ._model import Model

__all__ = ["open_rebuilt"]

FOLDER = "rebuilt"
_RECORD = "build.json"
_SCHEMA = "edgekit.rebuilt/1"
_WAIT_S = 4 * 3600.0  # of a load for another that builds; TensorRT may take an hour


def open_rebuilt(
    checked: Checked,
    now: Mapping[str, str],
    threads: int = 0,
    profile: Optional[Path] = None,
    *,
    anew: bool = False,
) -> Model:
    """Opens the release with engines of this board, which are built first where there are none.

    Args:
        checked: A release whose manifest has "rebuild".
        now: The board's fingerprint.
        threads: As for ``open_model``.
        profile: As for ``open_model``.
        anew: As for ``run_build``.

    Raises:
        DeviceError: "build.*", "job.*", "blob.*"; "selftest.failed" or "health.accuracy" where
            the new engines are not as good as the bundle wants them.
    """
    release = checked.files.release
    assert release is not None
    home = release / FOLDER / _name(now)
    model = _open_kept(checked, home, now, threads, profile)
    if model is not None:
        return model
    with map_os_errors(str(home)):
        for folder in (home.parent, home):
            folder.mkdir(exist_ok=True)
            with contextlib.suppress(PermissionError):
                folder.chmod(0o700)  # whatever the umask, as `_refitted` has its folder
    with locked(home / "lock", wait_s=_WAIT_S):
        # another load may have built them while this one waited
        model = _open_kept(checked, home, now, threads, profile)
        if model is None:
            model = _build(checked, home, now, threads, profile, anew)
    return model


def _build(
    checked: Checked,
    home: Path,
    now: Mapping[str, str],
    threads: int,
    profile: Optional[Path],
    anew: bool,
) -> Model:
    from ._golden import need_golden
    from ._health_accuracy import need_accuracy
    from ._rebuild_job import run_build

    root, rebuild = checked.files.root, checked.manifest.rebuild
    assert root is not None
    assert rebuild is not None
    result = run_build(checked, home, anew=anew)
    store = root.store
    with map_os_errors(str(home)):
        for digest in _engines(result):
            data = store.read(digest)
            if sha256(data) != digest:
                raise DeviceError("a built engine is damaged", code="blob.digest-mismatch",
                                  where=digest)  # fmt: skip
            write_durably(home / digest, bytes(data))
            (home / digest).chmod(0o600)
    model = _open(checked, home, result, now, threads, profile)
    where = checked.files.where
    need_golden(model, checked, where)
    need_accuracy(model, checked, None, where)
    record = {
        "schema": _SCHEMA,
        "manifest": checked.manifest.digest,
        "request": rebuild.request,
        "result": result,
    }
    with map_os_errors(str(home)):
        write_durably(home / _RECORD, json.dumps(record).encode("utf-8"))
        (home / _RECORD).chmod(0o600)
        fsync_folder(home.parent)
    return model


def _open_kept(
    checked: Checked, home: Path, now: Mapping[str, str], threads: int, profile: Optional[Path]
) -> Optional[Model]:
    """Opens what was built and tested before; None where there is nothing that may be believed."""
    release, rebuild = checked.files.release, checked.manifest.rebuild
    assert release is not None
    assert rebuild is not None
    try:
        owners = owners_of(release)
        for folder in (home.parent, home):
            if not is_owned(folder.lstat(), owners):
                return None
        told = read_owned(home / _RECORD, owners)
        record = None if told is None else json.loads(bytes(told).decode("utf-8"))
    except (OSError, ValueError):
        return None
    wanted = {"schema": _SCHEMA, "manifest": checked.manifest.digest, "request": rebuild.request}
    if not isinstance(record, dict) or not wanted.items() <= record.items():
        return None
    try:
        return _open(checked, home, record["result"], now, threads, profile)
    except DeviceError as error:
        if error.code in ("blob.missing", "blob.digest-mismatch"):
            return None  # half of it is gone: it is built again
        raise


def _open(
    checked: Checked,
    home: Path,
    result: Mapping[str, Any],
    now: Mapping[str, str],
    threads: int,
    profile: Optional[Path],
) -> Model:
    from ._model import Model

    manifest, rebuild = checked.manifest, checked.manifest.rebuild
    assert rebuild is not None
    request = read_request(json.loads(read_checked(checked, rebuild.request).decode("utf-8")))
    engines = {one["key"]: one for one in result["engines"]}
    made = checked_of(request, engines, _files(checked, home), now)
    made = replace(
        made,
        signer=None,  # nobody vouches for code that such a plan would bring
        manifest=replace(made.manifest, inputs=manifest.inputs, outputs=manifest.outputs),
    )
    opened = import_backend(manifest).open_engines(made, threads, profile)
    own = replace(made.manifest, digest=manifest.digest, name=manifest.name)
    model = Model(replace(made, manifest=own, signer=checked.signer), opened)
    model.relative = rebuild.relative
    model.notes = (
        "its engines were built on this board for TensorRT {}".format(now.get("tensorrt") or "?"),
        *model.notes,
    )
    return model


def _files(checked: Checked, home: Path) -> BundleFiles:
    release = checked.files.release
    assert release is not None
    owners = owners_of(release)

    def blob(digest: str) -> memoryview:
        try:
            data: Optional[Buffer] = read_owned(home / digest, owners)
        except OSError:
            data = None
        if data is None:
            raise DeviceError("a built engine is not there", code="blob.missing", where=digest)
        return memoryview(data)

    def has(digest: str) -> bool:
        return (home / digest).is_file()

    return BundleFiles(
        where=checked.files.where, manifest=b"", signature=None, blob=blob, has=has,
        root=checked.files.root, release=None,
    )  # fmt: skip


def _engines(result: Mapping[str, Any]) -> List[str]:
    return list(dict.fromkeys(str(one["full"] or one["engine"]) for one in result["engines"]))


def _name(now: Mapping[str, str]) -> str:
    facts = [now.get(name) or "" for name in COMPARED["tensorrt"]]
    return hashlib.sha256(json.dumps(facts).encode("utf-8")).hexdigest()[:16]
