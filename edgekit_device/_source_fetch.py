"""Brings missing blobs into the store: several at once, from whichever source has them right."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Callable, Dict, Optional, Sequence, Tuple

from ._errors import DeviceError, map_os_errors
from ._files import durable_folder
from ._keeper import Keeper
from ._partial import kept_bytes
from ._root import Root
from ._source import Fetched, Source, Sources
from ._source_blob import Taker, WrongBytes
from ._source_rules import check_deadline
from ._source_stream import wrong
from ._source_web import Mirror
from ._types import Manifest

__all__ = ["fetch"]

_THREADS = 4

Progress = Callable[[str, int, int], None]
Blob = Tuple[str, int]


class _Stopped(Exception):
    """Another thread failed."""


def fetch(
    sources: Sources,
    manifest: Manifest,
    root: Root,
    progress: Optional[Progress],
    deadline: Optional[float],
) -> Fetched:
    """See ``fetch_from``."""
    with root.lock(shared=True), map_os_errors(str(root.folder)):
        missing = [
            (digest, size)
            for digest, size in manifest.sizes().items()
            if root.store.size(digest) != size
        ]
        for digest in set(manifest.sizes()) - {digest for digest, _ in missing}:
            root.store.renew(digest)
        if not missing:
            return Fetched(notes=sources.notes)
        durable_folder(root.store.folder)
        _check_space(root, missing)
        with Keeper(root) as keeper:
            work = _Work(sources, missing, root, keeper, progress, deadline)
            work.run()
        return work.fetched


class _Work:
    def __init__(
        self,
        sources: Sources,
        missing: Sequence[Blob],
        root: Root,
        keeper: Keeper,
        progress: Optional[Progress],
        deadline: Optional[float],
    ) -> None:
        self._sources = sources
        self._progress = progress
        self._deadline = deadline
        # taken from the end, the largest first: then the last is not one long blob alone
        self._left = sorted(missing, key=lambda blob: blob[1])
        self._total = sum(size for _, size in missing)
        self._done = 0
        self._mutex = threading.Lock()
        self._taker = Taker(root, keeper, self._check, self._account, self._note_failure)
        self._stop = threading.Event()
        self._failed: Optional[BaseException] = None
        self._notes: Dict[str, int] = {}
        self.fetched = Fetched(blobs=len(missing))

    def run(self) -> None:
        """Does all of it.

        Raises:
            DeviceError: The first failure of a thread.
        """
        many = any(isinstance(source, Mirror) for source in self._sources.all)
        count = min(_THREADS if many else 1, len(self._left))
        threads = [threading.Thread(target=self._worker, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive() and not self._stop.is_set():
                    thread.join(0.2)
        finally:
            # an interrupt comes here too: open connections end at once, and the threads with them
            self._stop.set()
            if any(thread.is_alive() for thread in threads):
                for source in self._sources.all:
                    with suppress(OSError):
                        source.close()
            for thread in threads:
                thread.join(5.0)
        self.fetched.notes = self._sources.notes + [
            "{} ({} blobs)".format(note, count) if count > 1 else note
            for note, count in self._notes.items()
        ]
        if self._failed is not None:
            if isinstance(self._failed, DeviceError) and len(self.fetched.notes) > 1:
                self._failed.hint = "; ".join([*self.fetched.notes, self._failed.hint])
            raise self._failed

    def _worker(self) -> None:
        try:
            while True:
                with self._mutex:
                    if not self._left or self._stop.is_set():
                        return
                    digest, size = self._left.pop()
                self._bring(digest, size)
        except _Stopped:
            pass
        except BaseException as error:
            with self._mutex:
                if not self._stop.is_set():
                    self._failed = error
                self._stop.set()

    def _bring(self, digest: str, size: int) -> None:
        """Takes one blob from the sources; one that gave wrong bytes is not asked for it again."""
        sources = list(self._sources.all)
        alone = False
        while True:
            try:
                self._taker.take(digest, size, sources[:1] if alone else sources)
                return
            except WrongBytes as error:
                if error.kept:
                    continue  # what lay here was no part of it; it is gone, so this ends
                if len(error.givers) > 1:
                    alone = True  # somebody's part was wrong: each has to give it whole
                    continue
                giver = error.givers[0] if error.givers else sources[0]
                failure = wrong(giver, digest)
                self._note_failure(giver, failure, digest)
                sources.remove(giver)
            except DeviceError as error:
                if not alone or not error.code.startswith(("source.", "blob.")):
                    raise
                failure = error
                del sources[0]
            if not sources:
                raise failure

    def _check(self) -> None:
        if self._stop.is_set():
            raise _Stopped
        check_deadline(self._sources.where, self._deadline)

    def _note_failure(self, source: Source, error: DeviceError, digest: str) -> None:
        note = "{}: {}".format(source.where, error.message.replace(digest, "a blob"))
        with self._mutex:
            self._notes[note] = self._notes.get(note, 0) + 1

    def _account(self, count: int, kept: bool) -> None:
        with self._mutex:
            self._done += count
            if not kept:
                self.fetched.bytes += count
            if self._progress is not None:
                self._progress("fetch", self._done, self._total)


def _check_space(root: Root, missing: Sequence[Blob]) -> None:
    needed = sum(max(0, size - kept_bytes(root.folder, digest)) for digest, size in missing)
    facts = os.statvfs(str(root.folder))
    free = facts.f_bavail * facts.f_frsize
    if needed > free:
        raise DeviceError(
            "the bundle needs {} bytes more, {} are free".format(needed, free),
            code="board.disk-full",
            where=str(root.folder),
            hint="free space there, or remove old releases with gc --keep 1",
        )
