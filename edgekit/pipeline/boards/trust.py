"""The keys whose signatures boards accept (`edgekit trust`)."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.deployment.answers import row_rule
from edgekit.errors import UsageError
from edgekit.files import read_file
from edgekit.pipeline.boards.requests import BoardRow, request_from_boards
from edgekit.removed import FormerDict
from edgekit_device.protocol.codec import array, choice, document, member
from edgekit_device.trust.keys import TrustAnswer, TrustRequest

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient


# the hint if options of a new key come without one
_ADD = "give the file of the key to add, such as ~/.ssh/id_ed25519.pub"


@document(frozen=True, kw_only=True)
class TrustingBoard(BoardRow, TrustAnswer):
    """A board: the changes, and the keys that may sign there now."""


@document(frozen=True)
class Trust(FormerDict):
    """``edgekit.trust/1``: the keys that boards trust."""

    boards: tuple[TrustingBoard | BoardRow, ...] = member(array(row_rule(TrustingBoard, BoardRow)))
    schema: str = member(choice("edgekit.trust/1"), default="edgekit.trust/1")


@document(frozen=True)
class KeyChanges:
    """Changes of the keys that may sign; files are read before a board is changed.

    Attributes:
        add: Files of public keys that may sign.
        identity: Identity of the keys of ``add``; None takes each key's comment.
        valid_after: Start of validity of the keys of ``add``, YYYYMMDD[HHMM].
        valid_before: End of their validity.
        remove: Fingerprints, identities or key files.
        force: True if the last key may be removed.
        revoke: Files of public keys that are revoked for good.
        signers: An allowed_signers file that replaces the board's.
        revocations: A KRL or a list of keys that replaces the board's.
    """

    add: Sequence[Path] = ()
    identity: str | None = None
    valid_after: str | None = None
    valid_before: str | None = None
    remove: Sequence[str] = ()
    force: bool = False
    revoke: Sequence[Path] = ()
    signers: Path | None = None
    revocations: Path | None = None

    def request(self) -> TrustRequest:
        """Returns the request to a board.

        Raises:
            UsageError: Options that exclude each other; "sign.no-key".
        """
        from edgekit.bundles.sign import allowed_signers_line

        if (self.valid_after or self.valid_before) and not self.add:
            raise UsageError("--valid-after and --valid-before need --add", hint=_ADD)
        if self.identity and not self.add:
            raise UsageError("--identity needs --add", hint=_ADD)
        if self.force and not (self.remove or self.signers):
            raise UsageError(
                "--force needs --remove or --signers", hint="name the last key that may go"
            )
        times = {"after": self.valid_after, "before": self.valid_before}
        signers = revocations = None
        if self.signers:
            lines = [line.strip() for line in _read_text(self.signers).splitlines()]
            # comments of allowed_signers (ssh-keygen(1))
            signers = tuple(line for line in lines if line and not line.startswith("#"))
        if self.revocations:
            # a KRL is binary, and the request is JSON
            revocations = base64.b64encode(_read_public_key_file(self.revocations)).decode("ascii")
        return TrustRequest(
            lines=tuple(allowed_signers_line(path, self.identity, times) for path in self.add),
            remove=tuple(_key_line(word) for word in self.remove),
            revoke=tuple(_read_text(path).strip() for path in self.revoke),
            signers=signers,
            revocations=revocations,
            force=self.force,
        )


def trust(where: str, changes: KeyChanges, **settings: Any) -> Trust:
    """Changes and lists the keys that boards trust.

    Args:
        where: A configuration or a host.
        changes: The changes.
        settings: See ``request_from_boards``.

    Raises:
        UsageError: As raised by ``KeyChanges.request``.
    """
    request = changes.request()

    def change(client: BoardClient) -> TrustAnswer:
        return client.trust(request)

    answered = request_from_boards([where], change, **settings)
    return Trust(
        tuple(
            answer.row(BoardRow)
            if answer.found is None
            else answer.row(TrustingBoard, **vars(answer.found))
            for answer in answered
        )
    )


def _key_line(word: str) -> str:
    """Returns a key's line if a file is named; fingerprints and identities are unchanged."""
    with contextlib.suppress(OSError, ValueError):
        if Path(word).expanduser().is_file():
            return _read_text(Path(word)).strip()
    return word


def _read_text(path: Path) -> str:
    return _read_public_key_file(path).decode("utf-8", "replace")


def _read_public_key_file(path: Path) -> bytes:
    """Returns a file's bytes; refuses a private key, which must not go to a board."""
    from edgekit.bundles.sign import LARGEST_KEY, refuse_private

    try:
        data = read_file(path.expanduser(), LARGEST_KEY)
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror or error}",
            code="sign.no-key",
            where=str(path),
            hint="give a file of public keys, an allowed_signers file or a KRL",
        ) from error
    # `id_ed25519` for `id_ed25519.pub` is easily typed
    refuse_private(data.decode("utf-8", "replace"), str(path))
    return data
