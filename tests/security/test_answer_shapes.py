"""Answers with a field of a wrong type: told as the board's fault, or of no consequence."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.benchmark.document import bench_document
from edgekit.cli import boards, jobs, steps
from edgekit.cli.output import say
from edgekit.deployment.answers import ANSWERS, read_answer, take_samples
from edgekit.deployment.board import Board, DescribedBoard
from edgekit.deployment.client import BoardClient
from edgekit.deployment.doctor import examine
from edgekit.deployment.install import follow, send
from edgekit.deployment.transport import Completed
from edgekit.errors import BoardError
from edgekit.pipeline.boards.changes import BoardServer
from edgekit.pipeline.boards.status import ReachedBoard, Status
from edgekit.reports.terminal.measurement import bench_text
from edgekit.targets.loader import get
from edgekit_device.board.samples import LiveSample
from edgekit_device.deployment.status import BoardStatus
from edgekit_device.jobs.commands import JobList
from edgekit_device.protocol.codec import write
from tests.benchmark import handmade_plan
from tests.boards.scripted import ScriptedBoard
from tests.security.board_answers import SAMPLES
from tests.security.security_keys import small_bundle

ID = "0123456789abcdef"
WRONG: tuple[Any, ...] = (None, True, -1, 0.5, "x", "", [], {}, [None], {"a": 1}, [["x", 1]])
GONE = object()

Answer = dict[str, Any]


def spoiled(value: Any, within: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each place of a document, and what is wrong there."""
    if not isinstance(value, (dict, list)):
        return
    for key, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
        for wrong in WRONG:
            if type(wrong) is not type(one):
                yield (*within, key), wrong
        if isinstance(value, dict):
            yield (*within, key), GONE
        yield from spoiled(one, (*within, key))


def changed(answer: Answer, place: tuple[Any, ...], wrong: Any) -> Answer:
    found = copy.deepcopy(answer)
    holder: Any = found
    for key in place[:-1]:
        holder = holder[key]
    if wrong is GONE:
        del holder[place[-1]]
    else:
        holder[place[-1]] = wrong
    return found


@contextlib.contextmanager
def lying(tmp_path: Path, answer: Callable[[str], Answer]) -> Iterator[BoardClient]:
    """A client whose board answers a command what ``answer`` says."""
    (tmp_path / "loader").write_bytes(b"x")
    board = ScriptedBoard(lambda argv: json.dumps(answer(argv[0])).encode())
    client = BoardClient(Board("lab", "lab"), board, tmp_path / "loader")
    yield client
    client.close()


ROW: dict[str, Any] = {"board": "lab", "reachable": True, "error": None}


def show_status(found: BoardStatus) -> None:
    boards._show_status(Status((ReachedBoard(**vars(found), **ROW, kind="ssh"),)), True)


def show_jobs(found: JobList) -> None:
    for row in found.jobs:
        say(jobs._job_line(row))


SHOWN: dict[str, Callable[[Any], object]] = {
    "status": show_status,
    "serve-status": lambda found: steps._server_row(BoardServer(**vars(found), **ROW)),
    "job-list": show_jobs,
    "probe": lambda found: examine(DescribedBoard("lab", "ssh", ""), found),
}


def answered(sample: str, found: Answer) -> Any:
    done = Completed(0, json.dumps(found).encode(), b"")
    return read_answer(done, "lab", "python3", sample.partition(" ")[0])


def test_there_is_a_sample_of_every_answer() -> None:
    # a measurement: test_a_measurement_that_is_taken_can_be_shown
    assert {name.partition(" ")[0] for name in SAMPLES} == set(ANSWERS) - {"bench"}


@pytest.mark.few(8)
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_field_of_a_wrong_type_is_the_boards_fault(sample: str) -> None:
    answer = SAMPLES[sample]
    assert write(answered(sample, answer)) == answer
    refused = {}
    for place, wrong in spoiled(answer):
        try:
            answered(sample, changed(answer, place, wrong))
        except BoardError as error:
            refused[place] = error
    assert {(error.code, error.where) for error in refused.values()} == {("board.protocol", "lab")}
    told = {place for place, error in refused.items() if str(place[0]) in error.message}
    assert told == set(refused) or sample == "offer unknown"
    # another schema is another job's result
    assert {place[0] for place in refused} | {"schema"} >= set(answer)
    with pytest.raises(BoardError, match="later") as caught:
        answered(sample, {**answer, "later": 1})
    assert caught.value.code == "board.protocol"


@pytest.mark.parametrize("command", SHOWN)
def test_what_is_taken_can_be_shown(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = SAMPLES[command]
    for place, wrong in spoiled(answer):
        with contextlib.suppress(BoardError):
            SHOWN[command](answered(command, changed(answer, place, wrong)))


@pytest.mark.whole
def test_a_measurement_that_is_taken_can_be_shown() -> None:
    answer = handmade_plan.measurement(pipelined=True)
    answer = {
        **answer,
        "samples_ms": answer["samples_ms"][:2],
        "events": answer["events"][:1],
        "nodes": answer["nodes"][:1],
        "segments": answer["segments"][:2],
        "pipelined_events": answer["pipelined_events"][:1],
    }
    codes = []
    for place, wrong in spoiled(answer):
        try:
            shown = bench_document(
                answered("bench", changed(answer, place, wrong)),
                handmade_plan.plan(),
                target=get("jetson-agx-orin-64gb"),
            )
        except BoardError as error:
            codes.append(error.code)
        else:
            bench_text(shown)
    assert set(codes) == {"board.protocol"}
    assert len(codes) > 30


@pytest.mark.parametrize(
    "missing",
    [
        ["x"],
        [["x", 1]],
        [[{}, 1]],
        [["a" * 64, 0]],
        [[None, None, None]],
        [["BLOB", 1 << 40]],
        [["BLOB", -1]],
    ],
)
def test_a_board_that_lacks_what_nobody_has(tmp_path: Path, missing: Any) -> None:
    bundle = small_bundle()
    blob = next(iter(bundle.blobs))
    missing = json.loads(json.dumps(missing).replace("BLOB", blob))

    def unexpected(size: int, hello: object) -> None:
        pytest.fail(f"{size} bytes are taken for what lacks")

    offer = {**SAMPLES["offer"], "digest": bundle.digest, "missing": missing, "serving": None}
    del offer["taken_back"]
    with lying(tmp_path, lambda command: offer) as client, pytest.raises(BoardError) as caught:
        send(client, bundle, None, None, check=unexpected)
    assert caught.value.code == "board.protocol"


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"schema": 5},
        {"schema": "edgekit.deployment/1", "release": "x", "previous": {}},
        SAMPLES["job-result build"],
    ],
)
def test_a_deployment_that_ended_in_nonsense(tmp_path: Path, result: Answer) -> None:
    answers = {**SAMPLES, "job-result": result}
    with lying(tmp_path, answers.__getitem__) as client, pytest.raises(BoardError) as caught:
        follow(client, {"app": "net"})
    assert caught.value.code == "board.protocol"


def test_words_of_a_job_cannot_steer_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {
        "n": 1,
        "time": 1.0,
        "phase": "\x1b]0;owned\x07",
        "done": 1,
        "total": 1,
        "text": "a\x1b[2J\nb",
    }
    news = {**SAMPLES["job-watch"], "events": [event]}
    with lying(tmp_path, lambda command: news) as client:
        found = next(iter(client.watch_job(ID)))
    assert (found.phase, found.text) == ("\\x1b]0;owned\\x07", "a\\x1b[2J\nb")
    say("log:\tone\r\n\x1b[31mtwo\x9b")
    assert capsys.readouterr().out == "log:\tone\n\\x1b[31mtwo\\x9b\n"


class Sampling:
    """A command that prints lines."""

    def __init__(self, *lines: object) -> None:
        self.lines = lines

    def __call__(self, *, stdin: Any, timeout: float, on_output: Any) -> Completed:
        for line in self.lines:
            on_output(json.dumps(line).encode() + b"\n")
        on_output(b"")
        for _ in stdin:
            pass
        return Completed(0, b"", b"")


GOOD = {
    "t_s": 0.5,
    "wall": 1.5,
    "ram": {"used_bytes": 1, "total_bytes": 2},
    "cpu": [{"percent": 1.5, "mhz": 2.5}],
    "engines": {"GR3D": {"percent": 1.5, "mhz": [2.5]}},
    "temperatures_c": {"cpu": 40.5},
    "rails_mw": {"VIN": {"now": 1, "average": 1, "peak": 2}},
    "runtime_status": {"dla0": "active"},
    "clocks_hz": {"gpu": 1.5},
    "other": {"process_percent": 1.5, "cooling": {"fan": 1}, "overcurrent_events": {"oc": 1}},
    "sources": ["sysfs"],
    "interval_ms": 100,
    "power_mode": "MAXN",
    "warnings": ["w"],
    "unknown": {"EMC": 1},
    "facts": {"module": "m", "board_id": "b", "l4t": "36.4.3", "clock_caps_hz": {"dla": 1.5}},
}


def test_a_sample_has_its_form() -> None:
    seen: list[LiveSample] = []

    def keep(one: LiveSample) -> bool:
        seen.append(one)
        return True

    board: Any = Sampling("what a shell prints", GOOD)
    take_samples(board, keep, "lab", "python3", 1.0)
    assert write(seen) == [GOOD]
    for place, wrong in spoiled(GOOD):
        board = Sampling(changed(GOOD, place, wrong))
        if type(wrong) in (str, bool):
            with pytest.raises(BoardError, match="sample is not valid") as refused:
                take_samples(board, keep, "lab", "python3", 1.0)
            assert (refused.value.code, refused.value.where) == ("board.protocol", "lab")
        else:
            with contextlib.suppress(BoardError):
                take_samples(board, keep, "lab", "python3", 1.0)
