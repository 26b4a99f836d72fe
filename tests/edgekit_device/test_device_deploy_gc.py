"""What a collection leaves while bundles are on their way, and when clocks jump."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from edgekit.bundles.manifest import Bundle
from edgekit_device.files import write_durably
from edgekit_device.jobs.job import Job
from edgekit_device.release.collect import collect
from edgekit_device.release.offer import incoming_folders
from tests.edgekit_device.deploy_board import Bench, Cut, bench_board

YEAR_S = 365 * 86400.0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return bench_board(tmp_path / "root", monkeypatch)


def lacks(bench: Bench, bundle: Bundle) -> list[str]:
    return bench.root.store.missing([*bundle.weights, *bundle.blobs])


def age(bench: Bench, seconds: float) -> None:
    """Makes all that the board has of bundles that old."""
    then = time.time() - seconds
    for folder in ("blobs", "incoming", "partial"):
        for path in (bench.root.folder / folder).rglob("*"):
            os.utime(path, (then, then))


def test_what_is_offered_stays_for_the_grace_and_goes_after_it(bench: Bench, toy: Bundle) -> None:
    bench.offer(toy)
    part = bench.root.folder / "partial" / next(iter(toy.weights))
    part.parent.mkdir(exist_ok=True)
    part.write_bytes(b"a part")
    for path in (bench.root.folder / "blobs").rglob("*"):
        os.utime(path, (0, 0))
    os.utime(part, (0, 0))
    collect(bench.root)
    # the manifest is young, so all that it names is awaited
    assert lacks(bench, toy) == []
    assert part.exists()
    age(bench, 7200)
    collect(bench.root)
    assert incoming_folders(bench.root) == []
    assert sorted(lacks(bench, toy)) == sorted([*toy.weights, *toy.blobs])
    assert not part.exists()


@pytest.mark.parametrize("state", ["testing", "soaking"])
def test_what_a_deployment_that_was_cut_off_needs_stays(
    state: str, bench: Bench, toy: Bundle, toy2: Bundle
) -> None:
    bench.offer(toy)
    bench.deploy(toy)
    bench.offer(toy2)

    def cut(now: str) -> None:
        if now == state:
            raise Cut

    bench.at = cut
    with pytest.raises(Cut):
        bench.deploy(toy2)
    age(bench, YEAR_S)
    collect(bench.root, app=bench.app, keep=1)
    assert lacks(bench, toy) == lacks(bench, toy2) == []
    bench.at = lambda state: None
    assert bench.deploy(toy2)["state"] == "committed"


def test_a_clock_that_jumped_back_begins_the_grace_anew(bench: Bench, toy: Bundle) -> None:
    bench.offer(toy)
    age(bench, -10 * YEAR_S)  # written while the clock was ten years ahead
    collect(bench.root)
    assert lacks(bench, toy) == []
    newest = max(path.stat().st_mtime for path in incoming_folders(bench.root))
    assert newest <= time.time()
    age(bench, 7200)
    collect(bench.root)
    assert len(lacks(bench, toy)) == len({*toy.weights, *toy.blobs})


@pytest.mark.parametrize(("ahead", "state"), [(30, "queued"), (-1, "lost"), (YEAR_S, "lost")])
def test_a_job_that_was_only_prepared_is_not_waited_for_by_a_clock_that_jumped(
    ahead: float, state: str, bench: Bench
) -> None:
    job = Job(bench.root, "0123456789abcdef")
    job.folder.mkdir(parents=True)
    (job.folder / "lock").touch()
    write_durably(job.folder / "state.json", b"{}")
    job.write(state="queued", starts_by=time.time() + ahead)
    assert job.read().state == state


def test_half_files_of_writers_that_died_go_and_those_of_the_living_stay(bench: Bench) -> None:
    job = Job(bench.root, "0123456789abcdef")
    job.folder.mkdir(parents=True)
    dead = job.folder / ".state.json.12-0123abcd"
    alive = job.folder / ".result.json.13-0123abcd"
    other = job.folder / ".not-ours"
    for path in (dead, alive, other):
        path.write_bytes(b"{")
    with alive.open() as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        collect(bench.root)
    assert sorted(job.folder.iterdir()) == [other, alive]
