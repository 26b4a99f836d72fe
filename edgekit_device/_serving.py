"""What serves an app on this board, asked through its socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional

from ._root import App
from ._serve_wire import VERSION, Closed, Reader, connect_to, exchange

__all__ = ["RECORD", "SOCKET", "ask", "read_record", "reload", "serving", "socket_of"]

SOCKET = "serve.sock"
RECORD = "serving.json"
_STATUS_S = 5.0
_RELOAD_S = 600.0
_MAX_RECORD = 1 << 20


def serving(app: App) -> Optional[Dict[str, Any]]:
    """Asks the server of ``app`` how it is.

    Returns:
        An ``edgekit.serving/1`` (docs/serving.md): "release" that answers now (None before the
        first is loaded), "digest", "pid", "uptime_s", "requests", "errors" (the server's or its
        engines' fault), "refused" (the client's fault or a full queue), "restarts" (workers that
        crashed), "queue", "latency_ms", "loading" (a release or None), "last_error",
        "rolled_back" (the error for which the server went back itself, or None); None when
        nothing serves.

    Raises:
        DeviceError: "serve.silent" or "serve.refused" when there is one that does not answer.
    """
    answer = ask(app, {"op": "status"}, _STATUS_S)
    return None if answer is None else answer["serving"]


def reload(app: App, timeout_s: float = _RELOAD_S) -> Optional[Dict[str, Any]]:
    """Has the server take the current release, and waits until it answers requests.

    Every request that is sent after this has returned is answered by the current release.

    Args:
        app: The app.
        timeout_s: Until the wait is given up; the server goes on.

    Returns:
        As :func:`serving`; None when nothing serves.

    Raises:
        DeviceError: What the release failed with ("serve.crashed", "selftest.failed", "engine.*");
            the one before it serves on. "serve.silent" after ``timeout_s``.
    """
    answer = ask(app, {"op": "reload"}, timeout_s)
    return None if answer is None else answer["serving"]


def ask(app: App, head: Dict[str, Any], timeout_s: float) -> Optional[Dict[str, Any]]:
    """Asks the server of ``app`` one thing; None when nothing serves."""
    peer = connect_to(socket_of(app.folder), timeout_s)
    if peer is None:
        return None
    reader = Reader()
    try:
        return exchange(peer, reader, dict(head, edgekit=VERSION))
    except Closed:
        return None
    finally:
        reader.close()
        peer.close()


def socket_of(folder: Path) -> Path:
    """Where the server of the app in ``folder`` listens, or would."""
    named = read_record(folder).get("socket")
    return Path(named) if isinstance(named, str) else folder / SOCKET


def read_record(folder: Path) -> Dict[str, Any]:
    """What the server has noted in serving.json; empty where there is none."""
    try:
        with (folder / RECORD).open("rb") as file:
            found = json.loads(file.read(_MAX_RECORD).decode("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
