"""Timing caches: one file for each kind of board, shared by all builds there.

A build reads the file, and afterwards adds to it what others added meanwhile, so that no build
waits for another and none loses what it measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping

from ._build_request import request_digest
from ._errors import map_os_errors
from ._files import locked, write_durably

__all__ = ["TimingCache", "timing_file"]


def timing_file(root: Path, fingerprint: Mapping[str, str]) -> Path:
    """The cache's file of boards with this fingerprint."""
    return root / "timing" / (request_digest(dict(fingerprint)) + ".cache")


class TimingCache:
    """One build's use of the shared file.

    Attributes:
        facts: {"entries_bytes_before", "after", "reused"}.
        notes: What went wrong with the cache; a build goes on without it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: List[str] = []
        self.facts: Dict[str, Any] = {"entries_bytes_before": 0, "after": 0, "reused": False}
        self._read = b""

    def set(self, config: Any) -> None:
        """Gives the file's entries to an IBuilderConfig, or an empty cache to fill."""
        self._read = self._content()
        self.facts["entries_bytes_before"] = len(self._read)
        if self._read:
            cache = self._parsed(config, self._read)
            # what another device or release measured is refused here, never mixed in
            if cache is not None and config.set_timing_cache(cache, False):
                self.facts["reused"] = True
                return
            self.notes.append("the timing cache was not of this device; a new one begins")
            self._read = b""
        empty = self._parsed(config, b"")
        if empty is None or not config.set_timing_cache(empty, False):
            self.notes.append("TensorRT made no timing cache")

    def keep(self, config: Any) -> None:
        """Writes the file anew with what the build measured."""
        cache = config.get_timing_cache()
        if cache is None:
            return
        with map_os_errors(str(self.path)):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.with_suffix(".lock")):
            data = self._joined(config, _bytes(cache.serialize()))
            if data:
                with map_os_errors(str(self.path)):
                    write_durably(self.path, data)
            self.facts["after"] = len(data)

    def _joined(self, config: Any, own: bytes) -> bytes:
        now = self._content()
        if not own or not now or now == self._read:
            return own
        # the builder's own cache is only read: what is added to is a copy
        copy, others = self._parsed(config, own), self._parsed(config, now)
        if copy is None or others is None or not copy.combine(others, False):
            self.notes.append("another build's timing cache could not be added")
            return own
        return _bytes(copy.serialize()) or own

    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def _parsed(self, config: Any, data: bytes) -> Any:
        try:
            return config.create_timing_cache(data)
        except Exception as error:  # the bindings raise RuntimeError and pybind11's own
            self.notes.append("the timing cache cannot be read: {}".format(error))
            return None


def _bytes(memory: Any) -> bytes:
    return bytes(memory) if memory is not None else b""
