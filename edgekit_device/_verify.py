"""From untrusted files to a checked bundle: signature, then manifest, then blobs by digest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Optional

from ._bundle import BundleFiles
from ._errors import DeviceError
from ._manifest import parse
from ._signature import check_signature
from ._store import sha256
from ._types import Manifest

__all__ = ["Checked", "check_blobs", "check_bundle", "need_app", "read_checked"]


@dataclass(frozen=True)
class Checked:
    """A bundle whose signature and manifest are good; ``signer`` is None when trusted without."""

    files: BundleFiles
    manifest: Manifest
    signer: Optional[str]


def check_bundle(files: BundleFiles, allowed_signers: Path, trust_unsigned: bool) -> Checked:
    """Checks the signature first and parses the manifest only then.

    Raises:
        DeviceError: See ``check_signature`` and ``_manifest.parse``.
    """
    signer = check_signature(
        files.manifest,
        files.signature,
        allowed_signers,
        trust_unsigned=trust_unsigned,
        where=files.where,
    )
    return Checked(files, parse(files.manifest), signer)


def need_app(checked: Checked, app: str) -> None:
    """Raises DeviceError "bundle.wrong-app" where the bundle is another application's."""
    name = checked.manifest.name
    if app != name:
        raise DeviceError(
            "the bundle is for the app {!r}".format(name),
            code="bundle.wrong-app",
            where=app[:80],
            hint="use --app {}, or build it under the other name".format(name),
        )


def read_checked(checked: Checked, digest: str) -> bytes:
    """Reads a blob of the manifest into memory and hashes what was read.

    Raises:
        DeviceError: "blob.missing" or "blob.digest-mismatch".
    """
    size = checked.manifest.sizes()[digest]
    view = checked.files.blob(digest)
    # the size is compared before anything is copied
    data = view.tobytes() if len(view) == size else b""
    if len(view) != size or sha256(data) != digest:
        raise _mismatch(checked, digest)
    return data


def check_blobs(checked: Checked, digests: Iterable[str]) -> int:
    """Hashes blobs in place and returns their bytes.

    Raises:
        DeviceError: "blob.missing" or "blob.digest-mismatch".
    """
    sizes, total = checked.manifest.sizes(), 0
    for digest in dict.fromkeys(digests):
        view = checked.files.blob(digest)
        if len(view) != sizes[digest] or sha256(view) != digest:
            raise _mismatch(checked, digest)
        total += len(view)
    return total


def _mismatch(checked: Checked, digest: str) -> DeviceError:
    return DeviceError(
        "the stored bytes are not those of {}".format(digest),
        code="blob.digest-mismatch",
        where=checked.files.where,
        hint="the file was changed or the storage is failing; deploy the bundle again",
    )
