"""What a server counts, and what of it is written down."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Optional

from ._errors import DeviceError
from ._files import write_durably
from ._root import App
from ._serving import RECORD, read_record

__all__ = ["Health", "Record", "is_clients_fault"]

_LAST = 1000
_MOST_PROVEN = 16
_CLIENTS = ("input.", "serve.protocol", "serve.memory", "serve.room", "serve.busy", "serve.version")


def is_clients_fault(code: str) -> bool:
    """Whether an error says that the request was wrong, or one too many."""
    return code.startswith(_CLIENTS)


class Health:
    """Counters since the server's start, and the latencies of the last requests."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.requests = 0
        self.errors = 0
        self.refused = 0
        self.restarts = 0
        self.last_error: Optional[Dict[str, Any]] = None
        self.rolled_back: Optional[Dict[str, Any]] = None
        self._latencies: Deque[float] = deque(maxlen=_LAST)

    def answered(self, seconds: float, error: Optional[Mapping[str, Any]]) -> None:
        """Counts an answer to a request for outputs."""
        self.requests += 1
        if error is None:
            self._latencies.append(seconds)
        elif is_clients_fault(str(error.get("code", ""))):
            self.refused += 1
        else:
            self.errors += 1
            self.note(error)

    def note(self, error: Mapping[str, Any]) -> Dict[str, Any]:
        """Keeps an error as the last one; returns it with the time."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        fields = {name: str(error.get(name, "")) for name in ("code", "message", "where", "hint")}
        self.last_error = dict(fields, at=at)
        return self.last_error

    def to_json(self) -> Dict[str, Any]:
        """Its part of an ``edgekit.serving/1``."""
        found = sorted(self._latencies)
        latency = None
        if found:
            half = len(found) // 2
            median = (found[half] + found[-half - 1]) / 2
            latency = {
                "p50": round(median * 1e3, 4),
                "p99": round(found[min(len(found) - 1, len(found) * 99 // 100)] * 1e3, 4),
                "of_last": len(found),
            }
        return {
            "uptime_s": round(time.monotonic() - self._began, 3),
            "requests": self.requests,
            "errors": self.errors,
            "refused": self.refused,
            "restarts": self.restarts,
            "latency_ms": latency,
            "last_error": self.last_error,
            "rolled_back": self.rolled_back,
        }


class Record:
    """serving.json: where the server listens, and which releases have been seen to work.

    Attributes:
        proven: Releases that served for a minute without a crash.
        given_up: Releases that crashed and were taken back.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        before = read_record(app.folder)
        here = set(app.releases())
        self.proven: List[str] = [r for r in before.get("proven") or [] if r in here]
        self.given_up: List[str] = [r for r in before.get("given_up") or [] if r in here]
        self._fields: Dict[str, Any] = {}

    def write(self, **fields: Any) -> None:
        """Writes it with these fields changed; a full disk does not stop a server."""
        self._fields.update(fields)
        document = dict(
            self._fields,
            schema="edgekit.serving-record/1",
            proven=self.proven[-_MOST_PROVEN:],
            given_up=self.given_up[-_MOST_PROVEN:],
        )
        with contextlib.suppress(OSError, DeviceError):
            data = (json.dumps(document, sort_keys=True) + "\n").encode("utf-8")
            write_durably(self._app.folder / RECORD, data)
