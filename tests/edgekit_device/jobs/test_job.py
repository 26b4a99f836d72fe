"""What a job is given, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import Job, JobContext, job_context
from edgekit_device.protocol.codec import write
from edgekit_device.store.root import Root


@pytest.fixture
def context(tmp_path: Path) -> Iterator[JobContext]:
    folder = tmp_path / "root" / "jobs" / "0123456789abcdef"
    folder.mkdir(parents=True)
    with job_context(Root(tmp_path / "root"), folder, {"name": "net"}) as made:
        yield made


def events(context: JobContext) -> list[dict[str, object]]:
    return write(Job(context.root, context.folder.name).events(0))


def test_a_phase_keeps_its_ends_of_a_flood_of_steps(context: JobContext) -> None:
    for step in range(1001):
        context.progress("tactics", step, 1000)
    context.progress("serialise", 0, 0, "4 MB")
    retained = events(context)
    assert [e["done"] for e in retained if e["phase"] == "tactics"][:: len(retained) - 2] == [
        0,
        1000,
    ]
    assert len(retained) < 100
    assert [e["n"] for e in retained] == list(range(1, len(retained) + 1))
    assert retained[-1]["text"] == "4 MB"


def test_events_of_several_processes_are_numbered_in_one_row(context: JobContext) -> None:
    context.progress("one", 0, 0)
    with job_context(context.root, context.folder, {}) as other:
        other.progress("two", 0, 0)
    context.progress("three", 0, 0)
    assert [(e["n"], e["phase"]) for e in events(context)] == [(1, "one"), (2, "two"), (3, "three")]


def test_blobs_come_and_go_by_digest_and_damage_is_reported(context: JobContext) -> None:
    digest = context.store(b"engine")
    assert context.blob(digest) == b"engine"
    assert digest in (context.folder / "blobs.txt").read_text()
    context.root.store.path(digest).write_bytes(b"Engine")
    with pytest.raises(DeviceError) as damaged:
        context.blob(digest)
    assert damaged.value.code == "blob.digest-mismatch"


def test_a_log_takes_any_text(context: JobContext) -> None:
    context.log("layer \u00e9\ud800\n")
    context.log("next")
    assert (context.folder / "log.txt").read_text(encoding="utf-8") == "layer \u00e9\\ud800\nnext\n"
