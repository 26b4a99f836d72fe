"""The signature gate: OpenSSH's own ``ssh-keygen -Y`` decides, before a byte of JSON is read."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import List, Optional

from ._errors import DeviceError, map_os_errors

__all__ = ["MAX_SIGNATURE", "NAMESPACE", "check_signature"]

NAMESPACE = "edgekit-bundle"
MAX_SIGNATURE = 64 << 10
_TIMEOUT_S = 60


def check_signature(
    manifest: bytes,
    signature: Optional[bytes],
    allowed_signers: Path,
    *,
    trust_unsigned: bool = False,
    where: str = "manifest.json",
) -> Optional[str]:
    """Checks who signed ``manifest``.

    Args:
        manifest: The exact bytes.
        signature: OpenSSH's armoured signature of them, None when there is none.
        allowed_signers: The file of keys that may sign; need not exist.
        trust_unsigned: Accepts no signature, or a sound one by an unknown key; a signature that
            does not fit the bytes is refused all the same.
        where: Named in errors.

    Returns:
        The signer's identity in ``allowed_signers``; None when trusted without.

    Raises:
        DeviceError: "bundle.unsigned", "bundle.unknown-signer", "bundle.bad-signature" or
            "board.no-ssh-keygen".
    """
    if signature is None:
        if trust_unsigned:
            return None
        raise DeviceError(
            "the bundle is not signed",
            code="bundle.unsigned",
            where=where,
            hint="sign it: deploy.sign_with in the configuration; here: load(..., "
            "trust_unsigned=True)",
        )
    if len(signature) > MAX_SIGNATURE:
        _bad(where, "the signature is too long")
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "sig")
        with map_os_errors(folder):
            Path(file).write_bytes(signature)
        sound = _keygen(["check-novalidate", "-n", NAMESPACE, "-s", file], manifest)
        if sound.returncode:
            _bad(where, "the signature does not fit the manifest")
        signer = _signer(file, manifest, allowed_signers)
    if signer is None and not trust_unsigned:
        raise DeviceError(
            "no key in {} made the bundle's signature".format(allowed_signers),
            code="bundle.unknown-signer",
            where=where,
            hint="on a board: edgekit deploy --trust-key; here: load(..., allowed_signers=FILE), "
            "or trust_unsigned=True for a bundle of your own",
        )
    return signer


def _signer(file: str, manifest: bytes, allowed_signers: Path) -> Optional[str]:
    if not allowed_signers.is_file():
        return None
    allowed = str(allowed_signers)
    found = _keygen(["find-principals", "-s", file, "-f", allowed], b"")
    if found.returncode or not found.stdout.strip():
        return None
    for identity in found.stdout.decode("utf-8", "replace").splitlines():
        arguments = ["verify", "-n", NAMESPACE, "-f", allowed, "-I", identity, "-s", file]
        # fails here for a key that is known but expired, revoked or kept to other namespaces
        if _keygen(arguments, manifest).returncode == 0:
            return identity
    return None


def _keygen(arguments: List[str], stdin: bytes) -> "subprocess.CompletedProcess[bytes]":
    program = shutil.which("ssh-keygen")
    if program is None:
        raise DeviceError(
            "ssh-keygen is not installed, so signatures cannot be checked",
            code="board.no-ssh-keygen",
            hint="install the openssh-client package",
        )
    try:
        return subprocess.run(
            [program, "-Y", *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(
            "ssh-keygen failed: {}".format(error), code="board.no-ssh-keygen"
        ) from error


def _bad(where: str, message: str) -> None:
    raise DeviceError(
        message,
        code="bundle.bad-signature",
        where=where,
        hint="the bundle was changed after it was signed; get it again from its maker",
    )
