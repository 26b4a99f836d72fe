"""The job "selftest": asks a board what no document says, and writes its answers down.

Each question is asked in a process of its own, so that a crash is an answer too. Nothing in the
document tells whose board it is: names of host and account and the home folder are taken out.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import time
from typing import Any, Dict, List

from . import _board_selftest_asks as asks
from ._board_selftest_items import ITEMS, Item
from ._build_child import isolated
from ._errors import DeviceError
from ._fingerprint import fingerprint
from ._job import JobCancelled, JobContext

__all__ = ["run", "scrub"]

SCHEMA = "edgekit.selftest/1"

_MOST_TEXT = 20_000


def run(context: JobContext) -> Dict[str, Any]:
    """Asks every question of ``ITEMS``.

    Args:
        context: Its request has "model" (the digest of the toy network's ONNX file) and
            "engine" (the part of an engine's request that all builds share).

    Returns:
        ``edgekit.selftest/1``: "fingerprint" and "items", each with "id", "what", "expected",
        "status" ("answered", "failed" or "skipped"), "found" and "seconds".

    Raises:
        JobCancelled: It was cancelled.
    """
    items: List[Dict[str, Any]] = []
    built: Dict[str, Dict[str, Any]] = {}
    for number, item in enumerate(ITEMS):
        context.progress(item.id, number, len(ITEMS), item.what)
        started = time.monotonic()
        status, found = _ask(context, item, built)
        context.log("{}: {}".format(item.id, status))
        items.append({
            "id": item.id,
            "what": item.what,
            "expected": item.expected,
            "status": status,
            "found": found,
            "seconds": round(time.monotonic() - started, 2),
        })  # fmt: skip
    context.progress("done", len(ITEMS), len(ITEMS))
    document = {
        "schema": SCHEMA,
        "fingerprint": fingerprint(context.root.folder),
        "items": items,
    }
    cleaned: Dict[str, Any] = scrub(document, _private(context))
    return cleaned


def _ask(context: JobContext, item: Item, built: Dict[str, Dict[str, Any]]) -> Any:
    lacks = [name for name in item.needs if name not in built]
    if lacks:
        return "skipped", "needs {}".format(", ".join(lacks))
    ask = asks.ASKS[item.do]
    try:
        if item.do in asks.BUILDS:
            # a build takes processes of its own
            found = ask(context, item, built)
        else:
            found = isolated(context, lambda tell: {"found": ask(context, item, built)})["found"]
    except JobCancelled:
        raise
    except DeviceError as error:
        return "failed", error.to_json()["error"]
    except Exception as error:  # an answer, not the end of the others
        return "failed", {"code": "selftest.error", "message": repr(error)[:_MOST_TEXT]}
    return "answered", found


def _private(context: JobContext) -> List[str]:
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], getpass.getuser(),
             os.path.expanduser("~"), str(context.root.folder)}  # fmt: skip
    return sorted((name for name in names if len(name) > 1), key=len, reverse=True)


def scrub(value: Any, names: List[str]) -> Any:
    """Replaces ``names`` wherever they stand as words in texts, and shortens long texts."""
    if isinstance(value, str):
        for name in names:
            value = re.sub(r"(?<![\w-]){}(?![\w-])".format(re.escape(name)), "<private>", value)
        return value if len(value) <= _MOST_TEXT else value[:_MOST_TEXT] + " [cut]"
    if isinstance(value, dict):
        return {scrub(key, names): scrub(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [scrub(one, names) for one in value]
    return value
