"""Where a bundle comes from: ``find_bundle`` and ``fetch_from`` take it from one of several places.

A source is a path on the board or a mirror's ``http(s)://``. Sources are tried in their order; one
that fails or gives wrong bytes is named in the answer and the next one goes on. Whatever a source
says, the signature decides before anything of a manifest is read, and a blob has its name's SHA-256
before it is in the store.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Sequence, Union

from ._bundle import BundleFiles
from ._errors import DeviceError
from ._manifest import parse
from ._root import Root
from ._source_local import LocalSource
from ._source_web import Mirror
from ._types import Manifest
from ._verify import Checked, check_bundle, need_app

__all__ = [
    "CREDENTIALS",
    "Fetched",
    "Sources",
    "Where",
    "fetch_from",
    "find_bundle",
    "open_sources",
]

CREDENTIALS = "registries.json"
AUTHORITIES = "mirror-ca.pem"
_KINDS = "a path, or http(s)://HOST/PATH/ of a mirror (edgekit bundle push writes one)"

Where = Union[str, Sequence[str]]
"""One source, or several (in one text: a line each) in the order in which they are asked."""

Source = Union[LocalSource, Mirror]


@dataclass
class Fetched:
    """What ``fetch_from`` brought into the store.

    Attributes:
        blobs: Blobs that were missing.
        bytes: Their bytes that came now (what was kept of an earlier try does not count).
        notes: What went wrong with a source that another made good.
    """

    blobs: int = 0
    bytes: int = 0
    notes: List[str] = field(default_factory=list)


class Sources:
    """Opened sources; nothing was asked of them yet."""

    def __init__(self, all: Sequence[Source]) -> None:
        self.all = list(all)
        self.notes: List[str] = []

    @property
    def where(self) -> str:
        """All of them, for messages."""
        return ", ".join(source.where for source in self.all)


@contextmanager
def open_sources(root: Root, where: Where) -> Iterator[Sources]:
    """Opens sources by their addresses; no connection is made yet.

    Raises:
        DeviceError: "source.bad-address", "source.credentials".
    """
    texts = where.splitlines() if isinstance(where, str) else list(where)
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise DeviceError(
            "there is no source",
            code="source.bad-address",
            hint=_KINDS,
        )
    found = Sources([_open(root, text) for text in texts])
    try:
        yield found
    finally:
        for source in found.all:
            source.close()


def find_bundle(
    root: Root,
    sources: Sources,
    *,
    app: Optional[str] = None,
    trust_unsigned: bool = False,
    accept: Callable[[Checked], None] = lambda checked: None,
) -> Checked:
    """Takes manifest and signature from the first source that has good ones.

    Its blobs are to come from the root's store: ``fetch_from`` puts there what is missing.

    Args:
        root: The installation.
        sources: Where to look, in this order.
        app: Whose bundle is meant; a source that offers another application's has none.
        trust_unsigned: As of ``check_bundle``.
        accept: Raises DeviceError for a bundle that is good, and not wanted.

    Raises:
        DeviceError: The last source's: "source.*", "bundle.*" or "manifest.*", or what ``accept``
            raises.
    """
    store = root.store

    def take(source: Source) -> Checked:
        manifest, signature = source.offer(app)
        files = BundleFiles(source.where, manifest, signature, store.read, store.has)
        checked = check_bundle(files, root.allowed_signers, trust_unsigned)
        if app is not None:
            need_app(checked, app)
        accept(checked)
        return checked

    failed: Optional[DeviceError] = None
    for source in sources.all:
        try:
            return take(source)
        except DeviceError as error:
            failed = error
            sources.notes.append(_note(source, error))
    assert failed is not None
    if len(sources.all) > 1:
        failed.hint = "; ".join([*sources.notes, failed.hint])
    raise failed


def fetch_from(
    where: Union[Where, Sources],
    manifest: Union[Manifest, bytes],
    root: Root,
    progress: Optional[Callable[[str, int, int], None]] = None,
    seconds: Optional[float] = None,
) -> Fetched:
    """Brings what the store lacks of a checked manifest's blobs into it, resuming what was begun.

    Args:
        where: The sources.
        manifest: Its signature is checked already, also of its bytes; it bounds every blob's size.
        root: Where to; its lock is held shared for the time.
        progress: Called as ("fetch", bytes so far, bytes in all), from one thread at a time.
        seconds: How long it may take; None: as long as every single answer comes in time.

    Raises:
        DeviceError: "source.*", "board.disk-full", "blob.missing".
    """
    from ._source_fetch import fetch

    if isinstance(manifest, bytes):
        manifest = parse(manifest)
    deadline = None if seconds is None else time.monotonic() + seconds
    if isinstance(where, Sources):
        return fetch(where, manifest, root, progress, deadline)
    with open_sources(root, where) as sources:
        return fetch(sources, manifest, root, progress, deadline)


def _open(root: Root, text: str) -> Source:
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if not scheme:
        return LocalSource(Path(text))
    if scheme not in ("http", "https"):
        raise DeviceError(
            "sources of this kind are not known: {!r}".format(scheme[:40]),
            code="source.bad-address",
            hint=_KINDS,
        )
    from ._source_auth import Credentials

    authorities = root.folder / AUTHORITIES
    return Mirror(
        text,
        Credentials.read(root.folder / CREDENTIALS),
        authorities if authorities.is_file() else None,
    )


def _note(source: Source, error: DeviceError) -> str:
    return "{}: {}".format(source.where, error.message)
