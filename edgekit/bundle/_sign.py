"""Signs bundles with OpenSSH's own ``ssh-keygen -Y``, which every board has too."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edgekit.bundle._atomic import replacing
from edgekit.bundle._keys import is_identity, public_key
from edgekit.errors import EnvironmentLack, UsageError

__all__ = ["NAMESPACE", "allowed_signers_line", "ensure_key", "sign"]

NAMESPACE = "edgekit-bundle"
_TIMEOUT_S = 120
_TIME = re.compile(r"[0-9]{8}(?:[0-9]{4}(?:[0-9]{2})?)?Z?")


def sign(manifest_bytes: bytes, key_path: str | Path) -> bytes:
    """Signs a manifest.

    Args:
        manifest_bytes: ``Bundle.manifest_bytes``.
        key_path: A private key without a passphrase, or any public key whose private half the
            SSH agent holds.

    Returns:
        OpenSSH's armoured signature.

    Raises:
        UsageError: "sign.no-key" or "sign.failed".
        EnvironmentLack: OpenSSH is not installed.
    """
    key = Path(key_path).expanduser()
    if not key.is_file():
        raise UsageError(
            "there is no key to sign with",
            code="sign.no-key",
            where=str(key),
            hint="name a key in deploy.sign_with, or make one with `ssh-keygen -t ed25519`",
        )
    done = _keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], manifest_bytes)
    if done.returncode and b"passphrase" in done.stderr:
        raise UsageError(
            "the key has a passphrase, and nothing here asks for one",
            code="sign.failed",
            where=str(key),
            hint="put it into the SSH agent with ssh-add, and name its .pub in deploy.sign_with",
        )
    if done.returncode or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise UsageError(
            f"the bundle cannot be signed: {_reason(done)}",
            code="sign.failed",
            where=str(key),
            hint="a .pub signs only where the SSH agent has its private half (ssh-add)",
        )
    return done.stdout


def ensure_key(path: str | Path) -> Path:
    """Returns the ed25519 key at ``path``; makes one without a passphrase when there is none.

    Raises:
        UsageError: The folder cannot be written.
        EnvironmentLack: OpenSSH is not installed.
    """
    key = Path(path).expanduser()
    public = key.with_name(key.name + ".pub")
    try:
        if not key.is_file():
            _make_key(key)
        if not public.is_file():
            # from the private key, so that two processes that come here write the same
            done = _keygen(["-y", "-f", str(key)], b"")
            _check(done, key)
            with replacing(public) as temporary:
                temporary.write_bytes(done.stdout)
    except OSError as error:
        raise UsageError(
            f"no key can be made: {error.strerror or error}", code="sign.failed", where=str(key)
        ) from error
    return key


def _make_key(key: Path) -> None:
    key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".key-", dir=key.parent) as folder:
        made = Path(folder, "key")
        arguments = ["-q", "-t", "ed25519", "-N", "", "-C", _account(), "-f", str(made)]
        _check(_keygen(arguments, b""), key)
        made.chmod(0o600)
        # a link fails where another process was first, whose key then holds
        with contextlib.suppress(FileExistsError):
            os.link(made, key)


def _account() -> str:
    """The comment that ssh-keygen itself gives a key, by which people tell it from another's."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in a container
        name = "somebody"
    return f"{name}@{socket.gethostname()}"


def _check(done: subprocess.CompletedProcess[bytes], key: Path) -> None:
    if done.returncode:
        raise UsageError(f"no key can be made: {_reason(done)}", code="sign.failed", where=str(key))


def allowed_signers_line(
    key: str | Path,
    identity: str | None = None,
    times: Mapping[str, str | None] | None = None,
) -> str:
    """Returns the line of a board's allowed_signers that lets a key sign bundles.

    Args:
        key: The public key's line, or its file.
        identity: Whom the board shall call the signer. None takes the key's comment, such as
            ann@desk, or "key-" and the start of its fingerprint where there is none that can be
            an identity.
        times: "after" and "before": from and until when by the board's clock, YYYYMMDD or
            YYYYMMDDHHMM[SS], with a Z for UTC. Boards need OpenSSH 8.8 for them.

    Raises:
        UsageError: The key is no OpenSSH public key ("sign.no-key", "sign.private-key"), the
            identity has other characters than letters, digits and ``@._+-``, or a time is none.
    """
    found = public_key(key)
    name = found.identity if identity is None else identity
    if not is_identity(name):
        raise UsageError(
            f"{name!r} cannot name a signer",
            code="sign.bad-identity",
            hint="use letters, digits and @ . _ + -",
        )
    options = f'namespaces="{NAMESPACE}"'
    for which, time in (times or {}).items():
        if time and not _TIME.fullmatch(time):
            raise UsageError(
                f"{time!r} is no time", code="sign.bad-time", hint="YYYYMMDD or YYYYMMDDHHMM[SS]"
            )
        options += f',valid-{which}="{time}"' if time else ""
    return f"{name} {options} {found.line}"


def _keygen(arguments: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise EnvironmentLack(
            "ssh-keygen is not installed",
            code="environment.no-ssh-keygen",
            hint="install OpenSSH's client (openssh-client)",
        )
    # a session of its own has no terminal, so nothing can stop to ask for a passphrase
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
    try:
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            env=environment,
            start_new_session=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentLack(
            f"ssh-keygen does not run: {error}", code="environment.no-ssh-keygen"
        ) from error


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"ssh-keygen ended with status {done.returncode}"
