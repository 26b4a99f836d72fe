"""How readers are fuzzed: a corpus, mutations that know the form of what they change, and limits.

A test has a sixth of the examples, and where its eighth runs (tests/tries.py) three times as many,
the same each time; ``EDGEKIT_FUZZ=N`` runs N times as many, each time others.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.tries import exhaustive_part

__all__ = ["CORPUS", "limits", "mutated", "seeds", "times"]

CORPUS = Path(__file__).with_name("corpus")
_MEMORY = 768 << 20
# of the processor, whatever else it has to do; and of the clock, for what waits
_SECONDS, _HANGS = 10.0, 120.0
_MORE = int(os.environ.get("EDGEKIT_FUZZ", "0"))

#: What programs stumble over, wherever it stands.
_NASTY: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1 << 31, 1 << 63, -(1 << 63), 1 << 200, 0.5, 1e308, -1e-308, 9e99,
    "", " ", "x" * 5000, "../../etc/passwd", "\x00", "\n", "\ud800", "a" * 64, "0" * 64,
    "$(touch canary)", "-x", [], {}, [[]], [None], {"": 0}, [1e9], ["x"] * 40, "NaN", "float32",
)  # fmt: skip
_TEXTS = (
    b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\u0000", b"\\ud800", b"NaN", b"Infinity", b"1e999",
    b"9" * 5000, b"[" * 3000, b'{"a":' * 1500, b"\n", b"\x00", b"\xff\xff\xff\xff", b"\x80", b"PK",
    b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"-" * 5, b"true", b"null", b"-1",
)  # fmt: skip


def seeds(kind: str) -> list[bytes]:
    """The corpus of one reader: sound inputs, and those that broke it once."""
    found = [path.read_bytes() for path in sorted((CORPUS / kind).iterdir())]
    assert found, kind
    return found


def times(examples: int, case: str = "") -> Callable[[Any], Any]:
    """Settings of a fuzz test, or of a case of one; in CI always the same examples."""

    def given(test: Any) -> Any:
        name = f"{test.__module__}::{test.__name__}[{case}]"
        share = _MORE or (3 if exhaustive_part(name) else 1 / 6)
        return settings(
            max_examples=int(examples * share),
            derandomize=not _MORE,
            database=None,
            phases=[Phase.explicit, Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )(test)

    return given


@st.composite
def mutated(draw: st.DrawFn, kind: str) -> bytes:
    """A seed of the corpus after a few changes to its fields, or to its bytes."""
    data = draw(st.sampled_from(seeds(kind)))
    with contextlib.suppress(ValueError, RecursionError):
        if draw(st.booleans()):
            document = json.loads(data)
            for _ in range(draw(st.integers(1, 4))):
                document = _field(draw, document)
            data = json.dumps(document).encode("ascii")
            if draw(st.integers(0, 3)):
                return data
    for _ in range(draw(st.integers(0, 4))):
        data = _bytes(draw, data)
    return data


def _field(draw: st.DrawFn, document: Any) -> Any:
    """One field of a JSON document is changed, removed, doubled, moved or added."""
    document = copy.deepcopy(document)
    places = list(_places(document))
    if not places:
        return draw(st.sampled_from(_NASTY))
    holder, key = draw(st.sampled_from(places))
    act = draw(st.sampled_from(("set", "set", "set", "remove", "add", "copy", "near")))
    if act == "remove":
        del holder[key]
    elif act == "add" and isinstance(holder, dict):
        holder[draw(st.sampled_from(("", "x", "../x", "digest", "bytes", "\ud800")))] = draw(_any())
    elif act == "add":
        holder.insert(key, draw(_any()))
    elif act == "copy":
        other, name = draw(st.sampled_from(places))
        holder[key] = copy.deepcopy(other[name])
    elif act == "near" and isinstance(holder[key], int):
        holder[key] += draw(st.sampled_from((-1, 1, 1 << 32)))
    elif act == "near" and isinstance(holder[key], str):
        holder[key] += draw(st.sampled_from(("\n", "\x00", "/..", " ", "\u00e9")))
    else:
        holder[key] = draw(_any())
    return document


def _any() -> st.SearchStrategy[Any]:
    return st.sampled_from(_NASTY)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    entries: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))
    for key, one in entries:
        yield value, key
        if isinstance(one, (dict, list)):
            yield from _places(one)


def _bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes are flipped, cut, doubled, or given a neighbour that means something."""
    at = draw(st.integers(0, len(data)))
    act = draw(st.sampled_from(("flip", "cut", "drop", "insert", "repeat", "number")))
    if act == "flip" and at < len(data):
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if act == "cut":
        return data[:at]
    if act == "drop":
        return data[:at] + data[at + draw(st.integers(1, 64)) :]
    if act == "repeat":
        return data[:at] + data[at : at + draw(st.integers(1, 64))] * 2 + data[at:]
    if act == "number" and at + 4 <= len(data):
        return (
            data[:at] + draw(st.sampled_from((b"\xff\xff\xff\x7f", b"\0\0\0\0"))) + data[at + 4 :]
        )
    return data[:at] + draw(st.sampled_from(_TEXTS) | st.binary(max_size=16)) + data[at:]


class _TooLong(BaseException):
    """No reader catches it."""


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Bounds memory and time of what runs inside; beyond them MemoryError or ``_TooLong`` come."""

    def late(number: int, frame: object) -> None:
        raise _TooLong

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    handlers = {number: signal.signal(number, late) for number in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    signal.setitimer(signal.ITIMER_REAL, _HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))
        for number, handler in handlers.items():
            signal.signal(number, handler)
