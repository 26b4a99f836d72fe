"""The job that builds on a board: joined, answered from before, or forced anew."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edgekit.config.loader import open_config
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import Context, Session
from edgekit.pipeline.progress import SilentProgress
from edgekit.pipeline.steps.build import run_build_job
from edgekit_device.build.request import BuildResult
from edgekit_device.jobs.job import StartedJob
from tests.pipeline.nets import small_config

RESULT = BuildResult("a" * 64, {}, "10.3", (), (), ())


class Lab:
    """A board that knows the job as done or running, or not at all."""

    name = "lab"

    def __init__(self, state):
        self.state = state
        self.calls = []

    def missing(self, digests, *, verify=False):
        return ()

    def receive(self, blobs, progress):
        return 0

    def start_job(self, kind, request):
        self.calls.append("start")
        done, runs = self.state == "done", self.state == "running"
        return StartedJob("0123456789abcdef", self.state, done, runs)

    def remove_job(self, id):
        self.calls.append("remove")
        self.state = ""

    def watch_job(self, id):
        return iter(())

    def job_result(self, id):
        return RESULT

    def fetch(self, digests):
        return {}


def built(lab, folder, *, force):
    reported = []
    progress = SilentProgress()
    progress.note = reported.append
    config = open_config(small_config(folder))
    context = Context(config, Cache(folder / "cache"), Session(progress), force=force)
    record = run_build_job(context, lab, SimpleNamespace(blobs={}, document={}))
    assert record.result == RESULT
    return lab.calls, reported[0]


@pytest.mark.parametrize(
    ("state", "force", "calls", "says"),
    [
        ("", False, ["start"], ""),
        ("done", False, ["start"], ", already finished"),
        ("running", False, ["start"], ", joined"),
        ("", True, ["start"], ""),
        ("done", True, ["start", "remove", "start"], ""),
        ("running", True, ["start"], ", joined"),
    ],
)
def test_a_forced_build_forgets_a_job_that_is_done(tmp_path, state, force, calls, says):
    made, reported = built(Lab(state), tmp_path, force=force)
    assert made == calls
    assert reported == f"lab: build job 0123456789abcdef{says}"
