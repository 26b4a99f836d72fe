"""Workers that crash, hang and do not load: nobody loses an answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.protocol.server import reload_server
from tests.edgekit_device.serve_board import ServedBoard, wait_for


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBoard]:
    made = ServedBoard(tmp_path / "root")
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()


def test_a_killed_worker_is_replaced_and_its_request_is_run_again(served: ServedBoard) -> None:
    served.switch(served.release(1))
    served.start()
    go = served.app.folder / "go"
    with served.later(f"until {go}") as running:
        wait_for(lambda: served.status()["running"] == 1)
        with served.later("ok") as waiting:  # for the one worker
            wait_for(lambda: served.status()["queue"] == 1)
            (first,) = served.status()["workers"]
            os.kill(first, signal.SIGKILL)
            wait_for(lambda: served.status()["workers"] not in ([first], []))
            go.touch()
    answers = [*running, *waiting]
    assert [answer["release"] for answer in answers] == [served.app.link("current")] * 2
    assert all(answer["pid"] != first for answer in answers)
    status = served.status()
    assert (status["restarts"], status["errors"], status["requests"]) == (1, 0, 2)
    assert "SIGKILL" in status["last_error"]["message"]


def test_a_request_that_crashes_two_workers_gets_one_clear_error(served: ServedBoard) -> None:
    served.switch(served.release(1))
    served.start()
    with served.later("crash") as answers:
        pass
    (error,) = answers
    assert isinstance(error, DeviceError)
    assert error.code == "serve.crashed"
    assert "SIGSEGV" in error.message
    assert "twice" in error.message
    caller = served.client()
    assert caller.run()["release"] == served.app.link("current")
    caller.close()
    assert (served.status()["restarts"], served.status()["errors"]) == (2, 1)


def test_a_worker_that_hangs_is_killed_and_its_request_is_reported(served: ServedBoard) -> None:
    served.switch(served.release(1))
    served.start("--timeout-s", "0.5")
    (first,) = wait_for(lambda: served.status()["release"] and served.status()["workers"])
    with served.later("until never") as answers:
        pass
    assert isinstance(answers[0], DeviceError)
    assert answers[0].code == "serve.timeout"
    assert wait_for(lambda: served.status()["workers"] not in ([first], []))


@pytest.mark.parametrize(("how", "code"), [("dies", "serve.crashed"), ("fails", "engine.odd")])
def test_a_release_that_does_not_load_leaves_the_one_before(
    served: ServedBoard, how: str, code: str
) -> None:
    good, bad, third = served.release(1), served.release(2, how), served.release(3)
    served.switch(good)
    served.start()
    reload_server(served.app.folder)
    served.switch(bad)
    with pytest.raises(DeviceError) as caught:
        reload_server(served.app.folder)
    assert caught.value.code == code
    status = served.status()
    assert status["release"] == good
    assert status["loading"] is None
    assert status["last_error"]["code"] == code
    assert status["restarts"] == 0
    caller = served.client()
    assert caller.run()["release"] == good
    served.switch(third)
    assert reload_server(served.app.folder).release == third  # type: ignore[union-attr]
    assert caller.run()["release"] == third
    caller.close()


def test_an_engine_that_keeps_failing_gets_a_new_process(served: ServedBoard) -> None:
    served.switch(served.release(1))
    served.start()
    caller = served.client()
    first = caller.run()["pid"]
    for _ in range(3):
        with pytest.raises(DeviceError, match="no"):
            caller.run("fail")
    assert caller.run()["pid"] != first
    assert served.status()["errors"] == 3
    caller.close()
