"""Signs bundles with OpenSSH's ``ssh-keygen -Y``, which every board also has; reads public keys
from a file or a line, with identity and fingerprint.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from edgekit import timeouts
from edgekit.errors import EnvironmentLack, UsageError
from edgekit.files import cache_folder, read_file, replacing
from edgekit_device.account import account_name
from edgekit_device.store.root import default_root
from edgekit_device.trust.signature import ssh_fingerprint

LARGEST_KEY = 1 << 20  # largest file with public keys, in bytes
_KINDS = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-")
_IDENTITY = re.compile(r"[A-Za-z0-9@._+-]+")
_PRIVATE = re.compile(r"BEGIN [A-Z0-9 ]*PRIVATE KEY|^PuTTY-User-Key-File", re.M)

# the comment of all keys of earlier edgekit versions: it identifies no signer
_EVERYBODY = "edgekit"
_SHOWN = 16
NAMESPACE = "edgekit-bundle"
_TIME = re.compile(r"[0-9]{8}(?:[0-9]{4}(?:[0-9]{2})?)?Z?")


class PublicKeyLine:
    """A public key in OpenSSH's format.

    Attributes:
        kind: Key type, such as "ssh-ed25519".
        data: The key in base64.
        comment: The comment after the key, often USER@HOST.
    """

    def __init__(self, kind: str, data: str, comment: str) -> None:
        self.kind = kind
        self.data = data
        self.comment = comment

    @property
    def line(self) -> str:
        """Key type and base64, without the comment."""
        return f"{self.kind} {self.data}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint as printed by ``ssh-keygen -lf``."""
        return ssh_fingerprint(base64.b64decode(self.data))

    @property
    def identity(self) -> str:
        """The signer's identity on a board: the comment, or "key-" and the fingerprint's start.

        An invalid comment, or the common comment of older edgekit keys, is not used.
        """
        if is_identity(self.comment) and self.comment != _EVERYBODY:
            return self.comment
        start = self.fingerprint.partition(":")[2][:_SHOWN]
        return "key-" + start.replace("/", "_")


def is_identity(text: str) -> bool:
    """Returns True if a text is a valid identity in allowed_signers."""
    return _IDENTITY.fullmatch(text) is not None


def public_key(source: str | Path) -> PublicKeyLine:
    """Returns the key of a ``.pub`` file, or of its line.

    Raises:
        UsageError: "sign.no-key"; the message never quotes the file.
    """
    text, where = str(source), "the public key"
    if isinstance(source, Path) or not text.startswith(_KINDS):
        path = Path(source).expanduser()
        where = text[:200]
        try:
            text = read_file(path, LARGEST_KEY).decode("utf-8")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(
                f"the public key cannot be read: {why or error}",
                code="sign.no-key",
                where=where,
                hint="give a file such as ~/.ssh/id_ed25519.pub, or the line in it",
            ) from error
        refuse_private(text, where)
    # at most two splits, because a comment may have spaces
    words = text.strip().split("\n", 1)[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(_KINDS):
        raise _no_key_error(where)
    try:
        base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        raise _no_key_error(where) from None
    return PublicKeyLine(words[0], words[1], words[2].strip() if len(words) > 2 else "")


def refuse_private(text: str, where: str) -> None:
    """Raises UsageError for a private key, which must not be sent to a board or quoted."""
    if _PRIVATE.search(text):
        raise UsageError(
            "this is a private key",
            code="sign.private-key",
            where=where,
            hint=f"give {where}.pub (`ssh-keygen -y` makes it)",
        )


def _no_key_error(where: str) -> UsageError:
    return UsageError("not an OpenSSH public key", code="sign.no-key", where=where)


def sign(manifest_bytes: bytes, key_path: str | Path) -> bytes:
    """Signs a manifest.

    Args:
        manifest_bytes: ``Bundle.manifest_bytes``.
        key_path: A private key without a passphrase, or a public key whose private key is in the
            SSH agent.

    Returns:
        OpenSSH's armoured signature.

    Raises:
        UsageError: "sign.no-key" or "sign.failed".
        EnvironmentLack: OpenSSH is not installed.
    """
    key = Path(key_path).expanduser()
    if not key.is_file():
        raise UsageError(
            "the signing key does not exist",
            code="sign.no-key",
            where=str(key),
            hint="give a key in deploy.sign_with, or make one with `ssh-keygen -t ed25519`",
        )
    done = _keygen(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], manifest_bytes)
    if done.returncode and b"passphrase" in done.stderr:
        raise UsageError(
            "the key has a passphrase, and edgekit cannot ask for it",
            code="sign.failed",
            where=str(key),
            hint="add it to the SSH agent with ssh-add, and give its .pub in deploy.sign_with",
        )
    if done.returncode or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise UsageError(
            f"the bundle cannot be signed: {_reason(done)}",
            code="sign.failed",
            where=str(key),
            hint="to sign with a .pub, add its private key to the SSH agent with ssh-add",
        )
    return done.stdout


def ensure_key(path: str | Path) -> Path:
    """Returns the ed25519 key at ``path``; creates it without a passphrase if missing.

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
            # from the private key, so that concurrent processes write the same
            done = _keygen(["-y", "-f", str(key)], b"")
            _check(done, key)
            with replacing(public) as temporary:
                temporary.write_bytes(done.stdout)
    except OSError as error:
        raise UsageError(
            f"cannot make a key: {error.strerror or error}", code="sign.failed", where=str(key)
        ) from error
    return key


def _make_key(key: Path) -> None:
    key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".key-", dir=key.parent) as folder:
        made = Path(folder, "key")
        arguments = ["-q", "-t", "ed25519", "-N", "", "-C", user_at_host(), "-f", str(made)]
        _check(_keygen(arguments, b""), key)
        made.chmod(0o600)
        # linking fails if another process was first; its key is then used
        with contextlib.suppress(FileExistsError):
            os.link(made, key)


def user_at_host() -> str:
    """Returns USER@HOST, like ssh-keygen's default comment of a key."""
    return f"{account_name()}@{socket.gethostname()}"


def _check(done: subprocess.CompletedProcess[bytes], key: Path) -> None:
    if done.returncode:
        raise UsageError(f"cannot make a key: {_reason(done)}", code="sign.failed", where=str(key))


def allowed_signers_line(
    key: str | Path,
    identity: str | None = None,
    times: Mapping[str, str | None] | None = None,
) -> str:
    """Returns the allowed_signers line that permits a key to sign bundles for a board.

    Args:
        key: The public key's line or file.
        identity: The signer's name on the board. None: the key's comment (ann@laptop), or "key-"
            and the start of its fingerprint if the comment is no valid identity.
        times: Validity, "after" and "before", by the board's clock: YYYYMMDD or YYYYMMDDHHMM[SS],
            with a Z for UTC. Boards need OpenSSH 8.8 for them.

    Raises:
        UsageError: The key is no OpenSSH public key ("sign.no-key", "sign.private-key"), the
            identity has characters other than letters, digits and ``@._+-``, or a time is invalid.
    """
    found = public_key(key)
    name = found.identity if identity is None else identity
    if not is_identity(name):
        raise UsageError(
            f"{name!r} is not a valid identity of a signer",
            code="sign.bad-identity",
            hint="use letters, digits and @ . _ + -",
        )
    options = f'namespaces="{NAMESPACE}"'
    for which, time in (times or {}).items():
        if time and not _TIME.fullmatch(time):
            raise UsageError(
                f"{time!r} is not a valid time",
                code="sign.bad-time",
                hint="write YYYYMMDD or YYYYMMDDHHMM[SS]",
            )
        options += f',valid-{which}="{time}"' if time else ""
    return f"{name} {options} {found.line}"


def known_signers(keys: Iterable[Path] = ()) -> list[str]:
    """Returns the keys that this machine knows, as lines in OpenSSH's allowed_signers format:
    edgekit's own, and those of the installation in ``$EDGEKIT_ROOT`` or ``~/.edgekit``.

    Args:
        keys: Further keys, private or public; missing files are skipped.
    """
    every = [cache_folder() / "keys" / "ed25519", *keys]
    public = [key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub") for key in every]
    lines = [allowed_signers_line(key) for key in public if key.is_file()]
    with contextlib.suppress(OSError, ValueError):
        lines += (default_root() / "allowed_signers").read_text(encoding="utf-8").splitlines()
    return lines


def _keygen(arguments: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise EnvironmentLack(
            "ssh-keygen is not installed",
            code="environment.no-ssh-keygen",
            hint="install OpenSSH's client (openssh-client)",
        )
    # a separate session has no terminal, so ssh-keygen cannot wait for a passphrase
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
    try:
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            env=environment,
            start_new_session=True,
            timeout=timeouts.SIGN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentLack(
            f"cannot run ssh-keygen: {error}", code="environment.no-ssh-keygen"
        ) from error


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"ssh-keygen failed with exit status {done.returncode}"
