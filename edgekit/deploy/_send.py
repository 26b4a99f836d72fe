"""Sends a bundle to a board: announce it, then send what the board lacks of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edgekit.deploy._answers import odd
from edgekit.deploy._client import BoardClient, Buffer
from edgekit.deploy._types import Progress
from edgekit.errors import BoardError, BundleError

if TYPE_CHECKING:
    import numpy as np

    from edgekit.bundle import Bundle

__all__ = ["Sent", "send"]

_KEPT_WRONG = ("blob.digest-mismatch", "transfer.offset")


@dataclass(frozen=True, slots=True)
class Sent:
    """What a board has of a bundle, and what it took to get it there.

    Attributes:
        digest: SHA-256 (hex) of the manifest.
        app: The bundle's name.
        signer: Who signed it, as the board's allowed_signers call him; None when trusted without.
        serving: Release that serves this very bundle already, whole; None when none does.
        deployment: How that came to serve, ``edgekit.deployment/1``; None where nobody knows.
        hello: What the board says of itself.
        blobs_sent: Number of blobs sent, also those that were sent in part.
        blobs_reused: Number of blobs that the board had.
        bytes_sent: Bytes of blobs sent.
        bytes_reused: Bytes of blobs that the board had, parts included.
        loader_bytes: Bytes of the loader, 0 where it was there.
        wire_bytes: Bytes that the connection carried meanwhile, both ways, as the kernel counts
            them, and that OpenSSH's client carried on one of its own, as that counts its packets:
            handshakes and what was refused and sent anew are among them, a connection that was made
            ahead and not needed is not. None where it is not known.
        notes: What people should know, such as that a kept part was wrong and was sent anew.
    """

    digest: str
    app: str
    signer: str | None
    serving: str | None
    blobs_sent: int
    blobs_reused: int
    bytes_sent: int
    bytes_reused: int
    loader_bytes: int
    deployment: Mapping[str, Any] | None = None
    hello: Mapping[str, Any] = field(default_factory=dict)
    wire_bytes: int | None = None
    notes: tuple[str, ...] = ()


def send(
    board: BoardClient,
    bundle: Bundle,
    signature: bytes | None = None,
    progress: Progress | None = None,
    *,
    check: Callable[[int, Mapping[str, Any]], None] | None = None,
    fetches: bool = False,
    put_back: bool = True,
) -> Sent:
    """Sends what ``board`` lacks of ``bundle``; what arrived stays when it is cut.

    Args:
        board: Where to.
        bundle: What to send.
        signature: OpenSSH's signature of the manifest; the bundle's own when None.
        progress: Called in this thread with phases "loader" and "send", in bytes.
        check: Called with the bytes that the board lacks, where it lacks any, and what it says of
            itself (``hello``), before they are sent.
        fetches: The board gets the blobs elsewhere: only the manifest is sent.
        put_back: Also send what was taken back on the board.

    Raises:
        BundleError: The board refuses the bundle, or a stripped bundle lacks what the board lacks.
        BoardError: The board failed, or the connection did; "install.taken-back", whose
            ``extra["taken_back"]`` has "release", "at" and "reason".
    """
    signature = bundle.signature if signature is None else signature
    before = board.wire_bytes()
    loader = board.ensure_loader(progress)
    sizes = _sizes(bundle)
    notes: list[str] = []
    on_hand = 0 if fetches else _on_hand(bundle, sizes)
    kept: dict[str, int] = {}
    while True:
        try:
            with board.ahead(bundle.digest, on_hand):
                offer = board.offer(bundle.manifest_bytes, signature, bundle.name)
                if offer.get("taken_back") and not put_back:
                    raise _taken_back(offer["taken_back"], board.name)
                kept = _kept(offer["missing"], sizes, board.name)
                blobs = {} if fetches else _payload(bundle, kept, board.name)
                if kept and check is not None:
                    lacking = sum(sizes[digest] - have for digest, have in kept.items())
                    check(lacking, offer["hello"])
                sent = board.receive(blobs, progress, kept=kept)
            break
        except BoardError as error:
            # what was kept was wrong or is gone: the board threw it away, and asks for all of it
            if notes or error.code not in _KEPT_WRONG or not any(kept.values()):
                raise
            notes.append(f"{error.where}: {error.message}; it was sent anew")
    return Sent(
        digest=str(offer["digest"]),
        app=str(offer["app"]),
        signer=offer["signer"],
        serving=offer["serving"],
        blobs_sent=len(blobs),
        blobs_reused=len(sizes) - len(blobs),
        bytes_sent=sent,
        bytes_reused=sum(sizes.values()) - sent,
        loader_bytes=loader,
        deployment=offer["deployment"],
        hello=offer["hello"],
        wire_bytes=None if before is None else (board.wire_bytes() or 0) - before,
        notes=tuple(notes),
    )


def _taken_back(found: Mapping[str, str], where: str) -> BoardError:
    error = BoardError(
        f"{found['release']} served there and was taken back at {found['at']}: {found['reason']}",
        code="install.taken-back",
        where=where,
        hint="edgekit deploy CONFIG --again puts it back; nothing else does",
    )
    error.extra["taken_back"] = dict(found)
    return error


def _kept(missing: object, sizes: Mapping[str, int], where: str) -> dict[str, int]:
    """Returns what a board says that it has of the blobs that it lacks, by digest."""
    found: dict[str, int] = {}
    for pair in missing if isinstance(missing, list) else [None]:
        digest, have = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        size = sizes.get(digest) if isinstance(digest, str) else None
        if size is None or type(have) is not int or not 0 <= have <= size:
            raise odd("the board lacks what the bundle does not have", where)
        found[str(digest)] = have
    return found


def _sizes(bundle: Bundle) -> dict[str, int]:
    """Returns the bytes of everything that the board must have, by digest."""
    blobs = {digest: int(blob["bytes"]) for digest, blob in bundle.manifest["blobs"].items()}
    return {**bundle.weight_bytes, **blobs}


def _on_hand(bundle: Bundle, sizes: Mapping[str, int]) -> int:
    """Returns the bytes of all that could be sent."""
    return sum(size for digest, size in sizes.items()
               if digest in bundle.blobs or digest in bundle.weights)  # fmt: skip


def _payload(bundle: Bundle, lacking: Mapping[str, Any], where: str) -> dict[str, Buffer]:
    """Returns what to send; a stripped bundle can only go where its weights already are."""
    have = {**bundle.weights, **bundle.blobs}
    absent = set(lacking) - set(have)
    if absent:
        names = [n for n, w in bundle.manifest["weights"].items() if w["digest"] in absent]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise BundleError(
            f"neither the bundle nor the board has the weights {shown or 'and blobs it names'}",
            code="bundle.stripped",
            where=where,
            hint="deploy the full bundle, or from the configuration that it was built from",
        )
    return {digest: _buffer(have[digest]) for digest in lacking}


def _buffer(blob: bytes | memoryview | np.ndarray) -> Buffer:
    """Returns a blob's bytes, in C order, without a copy where it is contiguous."""
    if isinstance(blob, bytes):
        return blob
    if isinstance(blob, memoryview):
        return blob.cast("B")
    import numpy as np

    return np.ascontiguousarray(blob).reshape(-1).view(np.uint8).data
