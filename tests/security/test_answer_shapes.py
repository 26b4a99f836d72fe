"""Answers with a field of a wrong type: told as the board's fault, or of no consequence."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgekit.benchmark.document import bench_document
from edgekit.cli import boards, jobs, steps
from edgekit.cli.output import say
from edgekit.deployment.answers import (
    ANSWERS,
    RESULTS,
    SAMPLE_LINE,
    document,
    misshapen,
    take_samples,
)
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.install import follow, send
from edgekit.deployment.transport import Completed
from edgekit.errors import BoardError
from edgekit.pipeline.boards.doctor import examine
from edgekit.reports.terminal.measurement import bench_text
from edgekit.targets.loader import get
from tests.benchmark import handmade_plan
from tests.boards.scripted import ScriptedBoard
from tests.security.security_keys import small_bundle

ID = "0123456789abcdef"
WRONG: tuple[Any, ...] = (None, True, -1, 0.5, "x", "", [], {}, [None], {"a": 1}, [["x", 1]])
GONE = object()
TYPES = {"text": "x", "count": 1, "number": 1.5, "flag": True, "any": None}

Answer = dict[str, Any]


def sound(form: Any) -> Any:
    """A value of a form, everything optional in it."""
    if isinstance(form, str):
        return TYPES[form.rstrip("?")]
    if isinstance(form, tuple):
        return sound(form[0])
    if isinstance(form, list):
        return [sound(form[0])]
    found = {name.rstrip("?"): sound(field) for name, field in form.items() if name != "*"}
    return found or {"name": sound(form["*"])}


def spoiled(value: Any, within: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each place of a document, and what is wrong there."""
    if not isinstance(value, (dict, list)):
        return
    for key, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
        for wrong in WRONG:
            if type(wrong) is not type(one):
                yield (*within, key), wrong
        if within and isinstance(value, dict):
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
def lying(tmp_path: Path, answer: Mapping[str, Any]) -> Iterator[BoardClient]:
    """A client whose board answers every command the same."""
    (tmp_path / "loader").write_bytes(b"x")
    said = json.dumps(answer).encode()
    client = BoardClient(Board("lab", "lab"), ScriptedBoard(lambda argv: said), tmp_path / "loader")
    yield client
    client.close()


def of_board(found: Mapping[str, Any]) -> Answer:
    """A command's document for people, as the pipeline puts it together."""
    return {"boards": [{**found, "board": "lab", "error": None, "reachable": True}]}


def job_rows(found: Mapping[str, Any]) -> None:
    for row in found["jobs"]:
        say(jobs._row(row))


def measured(found: Answer) -> None:
    with contextlib.suppress(BoardError):  # without times there is nothing to show
        shown = bench_document(found, handmade_plan.plan(), target=get("jetson-agx-orin-64gb"))
        bench_text(shown)


SHOWN: dict[str, Callable[[Answer], object]] = {
    "bench": measured,
    "status": lambda found: boards._show_status(of_board(found), ["board"], True),
    "serve-status": lambda found: steps._server_row(of_board(found)["boards"][0]),
    "job-list": job_rows,
    "probe": lambda found: examine({**found, "jetpack": None}),
}


def test_every_form_takes_a_sound_answer() -> None:
    assert misshapen(10**400, "number")
    assert misshapen(float("nan"), "number")
    assert misshapen(2**70, "count?")
    for form in (*ANSWERS.values(), *RESULTS.values()):
        assert misshapen(sound(form), form) == ""


@pytest.mark.parametrize("command", ANSWERS)
def test_a_field_of_a_wrong_type_is_the_boards_fault(command: str) -> None:
    answer = sound(ANSWERS[command])
    refused = 0
    for place, wrong in spoiled(answer):
        done = Completed(0, json.dumps(changed(answer, place, wrong)).encode(), b"")
        with contextlib.suppress(BoardError):
            document(done, "lab", "python3", command)
            continue
        with pytest.raises(BoardError, match=re.escape(str(place[0]))) as caught:
            document(done, "lab", "python3", command)
        assert (caught.value.code, caught.value.where) == ("board.protocol", "lab")
        refused += 1
    assert refused > 3


@pytest.mark.parametrize("command", SHOWN)
def test_what_is_taken_can_be_shown(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = sound(ANSWERS[command])
    for place, wrong in spoiled(answer):
        found = changed(answer, place, wrong)
        if not misshapen(found, ANSWERS[command]):
            SHOWN[command](found)


@pytest.mark.parametrize(
    "missing",
    [["x"], [["x", 1]], [[{}, 1]], [["a" * 64, 0]], [[None, None, None]], [["BLOB", 1 << 40]],
     [["BLOB", -1]]],
)  # fmt: skip
def test_a_board_that_lacks_what_nobody_has(tmp_path: Path, missing: Any) -> None:
    bundle = small_bundle()
    blob = next(iter(bundle.blobs))
    missing = json.loads(json.dumps(missing).replace("BLOB", blob))

    def unexpected(size: int, hello: object) -> None:
        pytest.fail(f"{size} bytes are taken for what lacks")

    offer = {**sound(ANSWERS["offer"]), "known": True, "digest": bundle.digest, "app": "net",
             "missing": missing, "serving": None, "taken_back": None}  # fmt: skip
    with lying(tmp_path, offer) as client:
        for fetches in (False, True):
            with pytest.raises(BoardError) as caught:
                send(client, bundle, None, None, check=unexpected, fetches=fetches)
            assert caught.value.code == "board.protocol"
            assert "what the bundle does not have" in caught.value.message


@pytest.mark.parametrize(
    "result",
    [{}, {"schema": 5}, {"schema": "edgekit.deployment/1", "release": "x", "previous": {}}],
)
def test_a_deployment_that_ended_in_nonsense(tmp_path: Path, result: Answer) -> None:
    job = {"job": ID, "state": "done", "reused": False, "joined": False, "events": [], "next": 0,
           "ended": True}  # fmt: skip
    with lying(tmp_path, {**job, **result}) as client, pytest.raises(BoardError) as caught:
        follow(client, {"app": "net"})
    assert caught.value.code == "board.protocol"


def test_words_of_a_job_cannot_steer_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {"n": 1, "time": 1.0, "phase": "\x1b]0;owned\x07", "done": 1, "total": 1,
             "text": "a\x1b[2J\nb"}  # fmt: skip
    with lying(tmp_path, {"state": "done", "events": [event], "next": 1}) as client:
        found = next(iter(client.watch_job(ID)))
    assert (found["phase"], found["text"]) == ("\\x1b]0;owned\\x07", "a\\x1b[2J\nb")
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


def test_a_sample_has_its_form() -> None:
    good = sound(SAMPLE_LINE)
    seen: list[Answer] = []

    def keep(one: Answer) -> bool:
        seen.append(one)
        return True

    board: Any = Sampling("what a shell prints", good)
    take_samples(board, keep, "lab", "python3", 1.0)
    assert seen == [good]
    for place, wrong in spoiled(good):
        bad = changed(good, place, wrong)
        if misshapen(bad, SAMPLE_LINE):
            board = Sampling(bad)
            with pytest.raises(BoardError, match="sample is not sound") as refused:
                take_samples(board, keep, "lab", "python3", 1.0)
            assert refused.value.code == "board.protocol"
    assert seen == [good]
