"""Answers of a board to a build, made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgekit_device.build.request import BuildResult
from edgekit_device.protocol.codec import read
from tests.security.board_answers import SAMPLES

__all__ = ["build_result"]

_ENGINE = {
    "full": None,
    "full_bytes": None,
    "flags": [],
    "can_run_on_dla": {},
    "unmapped": [],
    "layers": [],
    "reformats": [],
    "weights": {},
    "io": [],
}


def build_result(engines: Iterable[dict[str, Any]] = (), **changes: Any) -> BuildResult:
    """The answer with these fields of its engines, and of itself."""
    sample = SAMPLES["job-result build"]
    (one,) = sample["engines"]
    made = [{**one, **_ENGINE, **fields} for fields in engines]
    return read(BuildResult, {**sample, "golden": [], "notes": [], **changes, "engines": made})
