"""Workers that crash, hang and do not load: nobody loses an answer, and bad releases go back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit_device import DeviceError
from edgekit_device._serving import reload
from tests.edgekit_device.serve_board import Told, wait_for


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    made = Told(tmp_path / "root")
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()


def test_a_killed_worker_is_replaced_and_its_request_is_run_again(told: Told) -> None:
    told.switch(told.release(1))
    told.start()
    go = told.app.folder / "go"
    with told.later(f"until {go}") as running:
        wait_for(lambda: told.status()["running"] == 1)
        with told.later("ok") as waiting:  # for the one worker
            wait_for(lambda: told.status()["queue"] == 1)
            (first,) = told.status()["workers"]
            os.kill(first, signal.SIGKILL)
            wait_for(lambda: told.status()["workers"] not in ([first], []))
            go.touch()
    answers = [*running, *waiting]
    assert [answer["release"] for answer in answers] == [told.app.link("current")] * 2
    assert all(answer["pid"] != first for answer in answers)
    status = told.status()
    assert (status["restarts"], status["errors"], status["requests"]) == (1, 0, 2)
    assert "SIGKILL" in status["last_error"]["message"]


def test_a_request_that_crashes_two_workers_gets_one_clear_error(told: Told) -> None:
    told.switch(told.release(1))
    told.start()
    with told.later("crash") as answers:
        pass
    (error,) = answers
    assert isinstance(error, DeviceError)
    assert error.code == "serve.crashed"
    assert "SIGSEGV" in error.message
    assert "twice" in error.message
    caller = told.client()
    assert caller.run()["release"] == told.app.link("current")
    caller.close()
    assert (told.status()["restarts"], told.status()["errors"]) == (2, 1)


def test_a_worker_that_hangs_is_killed_and_its_request_is_told(told: Told) -> None:
    told.switch(told.release(1))
    told.start("--timeout-s", "0.5")
    (first,) = wait_for(lambda: told.status()["release"] and told.status()["workers"])
    with told.later("until never") as answers:
        pass
    assert isinstance(answers[0], DeviceError)
    assert answers[0].code == "serve.timeout"
    assert wait_for(lambda: told.status()["workers"] not in ([first], []))


def test_a_new_release_that_crashes_three_times_goes_back(told: Told) -> None:
    good, bad = told.release(1), told.release(2, "crashes")
    told.switch(good)
    told.start()
    told.switch(bad)
    reload(told.app)
    codes = []
    for _ in range(2):
        with told.later("ok") as answers:
            pass
        # the last of them may find the release before already
        codes.append(getattr(answers[0], "code", "answered"))
    assert codes[0] == "serve.crashed"
    wait_for(lambda: told.serves(good))
    assert told.app.link("current") == good
    assert told.app.link("previous") == bad
    last = told.status()["rolled_back"]
    assert last["code"] == "serve.rolled-back"
    assert bad in last["where"]
    history = (told.app.folder / "history.jsonl").read_text()
    assert "crashed 3 times" in history
    # and it is no release to go back to
    caller = told.client()
    for _ in range(3):
        with pytest.raises(DeviceError, match="twice"):
            caller.run("crash")
    caller.close()
    assert wait_for(lambda: told.status()["release"]) == good == told.app.link("current")
    _, log = told.stop()
    assert log.count("goes back") == 1


@pytest.mark.parametrize(("how", "code"), [("dies", "serve.crashed"), ("fails", "engine.odd")])
def test_a_release_that_does_not_load_leaves_the_one_before(
    told: Told, how: str, code: str
) -> None:
    good, bad, third = told.release(1), told.release(2, how), told.release(3)
    told.switch(good)
    told.start()
    reload(told.app)
    told.switch(bad)
    with pytest.raises(DeviceError) as caught:
        reload(told.app)
    assert caught.value.code == code
    status = told.status()
    assert status["release"] == good
    assert status["loading"] is None
    assert status["last_error"]["code"] == code
    assert status["restarts"] == 0
    caller = told.client()
    assert caller.run()["release"] == good
    told.switch(third)
    assert reload(told.app)["release"] == third  # type: ignore[index]
    assert caller.run()["release"] == third
    caller.close()


def test_an_engine_that_keeps_failing_gets_a_new_process(told: Told) -> None:
    told.switch(told.release(1))
    told.start()
    caller = told.client()
    first = caller.run()["pid"]
    for _ in range(3):
        with pytest.raises(DeviceError, match="no"):
            caller.run("fail")
    assert caller.run()["pid"] != first
    assert told.status()["errors"] == 3
    caller.close()
