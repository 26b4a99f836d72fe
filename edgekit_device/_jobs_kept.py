"""What a collection leaves of jobs: those that run, the newest that ended, and their blobs."""

from __future__ import annotations

import time
from typing import Any, Iterator, List, Set

from ._checks import is_digest
from ._jobs import LIVE, Job, age_of, all_jobs, json_of
from ._root import Root

__all__ = ["needed_blobs", "outdated"]

_KEPT = 16  # ended jobs, newest first


def outdated(root: Root, grace_s: float) -> List[Job]:
    """Jobs that ended longer than ``grace_s`` ago and are not among the newest."""
    ended = [job for job in all_jobs(root) if not job.alive()]
    horizon = time.time() - grace_s
    return [job for job in ended[_KEPT:] if age_of(job.folder) <= horizon]


def needed_blobs(root: Root) -> Set[str]:
    """Blobs that a collection leaves: of jobs that run what they read, and what jobs stored."""
    needed: Set[str] = set()
    for job in all_jobs(root):
        needed |= job.stored()
        if job.read()["state"] in LIVE:
            needed.update(_digests(json_of(job.folder / "request.json")))
    return needed


def _digests(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if is_digest(value):
            yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _digests(key)
            yield from _digests(one)
    elif isinstance(value, list):
        for one in value:
            yield from _digests(one)
