"""Public keys as users name them: a file or a line; whose a key is, and its fingerprint."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from pathlib import Path

from edgekit._files import regular
from edgekit.errors import UsageError

__all__ = ["PublicKey", "is_identity", "public_key", "refuse_private"]

_KINDS = ("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-")
_IDENTITY = re.compile(r"[A-Za-z0-9@._+-]+")
_PRIVATE = re.compile(r"BEGIN [A-Z0-9 ]*PRIVATE KEY|^PuTTY-User-Key-File", re.M)
# the comment of all keys that edgekit made before: it tells nobody from another
_EVERYBODY = "edgekit"
_SHOWN = 16


class PublicKey:
    """A public key in OpenSSH's form.

    Attributes:
        kind: Such as "ssh-ed25519".
        data: Its base64.
        comment: What its owner wrote behind it, often USER@HOST.
    """

    def __init__(self, kind: str, data: str, comment: str) -> None:
        self.kind = kind
        self.data = data
        self.comment = comment

    @property
    def line(self) -> str:
        """Kind and base64, without the comment."""
        return f"{self.kind} {self.data}"

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -lf`` prints it: "SHA256:" and unpadded base64."""
        digest = hashlib.sha256(base64.b64decode(self.data)).digest()
        return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")

    @property
    def identity(self) -> str:
        """Whom a board calls the signer: the comment, or else "key-" and its fingerprint's start.

        A comment that cannot be an identity, or that all of edgekit's own keys had, names nobody.
        """
        if is_identity(self.comment) and self.comment != _EVERYBODY:
            return self.comment
        start = self.fingerprint.partition(":")[2][:_SHOWN]
        return "key-" + start.replace("/", "_")


def is_identity(text: str) -> bool:
    """Whether a line of allowed_signers can name a signer so."""
    return _IDENTITY.fullmatch(text) is not None


def public_key(source: str | Path) -> PublicKey:
    """Returns the key of a ``.pub`` file, or of its one line.

    Raises:
        UsageError: "sign.no-key"; nothing of a file's content stands in it.
    """
    text, where = str(source), "the public key"
    if isinstance(source, Path) or not text.startswith(_KINDS):
        path = Path(source).expanduser()
        where = text[:200]
        try:
            text = regular(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(
                f"the public key cannot be read: {why or error}", code="sign.no-key", where=where
            ) from error
        refuse_private(text, where)
    words = text.strip().split("\n", 1)[0].split(None, 2)
    if len(words) < 2 or not words[0].startswith(_KINDS):
        raise _no_key(where)
    try:
        base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        raise _no_key(where) from None
    return PublicKey(words[0], words[1], words[2].strip() if len(words) > 2 else "")


def refuse_private(text: str, where: str) -> None:
    """Raises UsageError for a private key, which goes to no board and stands in no message."""
    if _PRIVATE.search(text):
        raise UsageError(
            "this is a private key",
            code="sign.private-key",
            where=where,
            hint=f"give {where}.pub (`ssh-keygen -y` makes it)",
        )


def _no_key(where: str) -> UsageError:
    return UsageError("not an OpenSSH public key", code="sign.no-key", where=where)
