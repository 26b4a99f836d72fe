"""What builds have answered is kept by kind of board, and failing attempts are not tried again."""

import json

import pytest

from edgekit.tensorrt.options import decide
from edgekit.tensorrt.outcomes import known_outcome, record_outcome, without_known_failures
from edgekit_device.build.request import AttemptResult
from tests.tensorrt.build_requests import requested_build

BOARD = {"module": "p3701-0005", "l4t": "36.4.3", "tensorrt": "10.3.0.30", "dla_compiler": "3.14"}
FLAGS = ("VERSION_COMPATIBLE", "STRIP_PLAN")
FAILED = "build.attempt"


def tried(flags, ok, code=FAILED):
    return AttemptResult(
        flags=tuple(flags),
        ok=ok,
        error=None if ok else "no",
        code=None if ok else code,
        seconds=1.0,
    )


def fails(file, flags=FLAGS, board=BOARD, code=FAILED):
    """An engine that does not build so, and builds without flags."""
    record_outcome(file, board, "plan DLA", [tried(flags, False, code), tried((), True)])


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kept" / "outcomes.json"


def test_the_order_of_flags_and_the_kind(file):
    fails(file)
    assert known_outcome(file, BOARD, "plan DLA", FLAGS[::-1]) is False
    assert known_outcome(file, BOARD, "plan", FLAGS) is None
    assert known_outcome(file, BOARD, "plan DLA", FLAGS[:1]) is None


@pytest.mark.parametrize("name", ["module", "l4t", "tensorrt", "dla_compiler"])
def test_another_board_says_nothing_of_this_one(file, name):
    fails(file)
    assert known_outcome(file, {**BOARD, name: "other"}, "plan DLA", FLAGS) is None
    assert known_outcome(file, {**BOARD, "cuda": "12.6"}, "plan DLA", FLAGS) is False


@pytest.mark.parametrize("name", ["module", "l4t", "tensorrt"])
def test_a_board_that_is_not_known_is_not_retained(file, name):
    fails(file, board={**BOARD, name: ""})
    assert not file.exists()


def test_what_went_through_once_works_whatever_fails_before_or_after(file):
    fails(file)
    record_outcome(file, BOARD, "plan DLA", [tried(FLAGS, True)])
    assert known_outcome(file, BOARD, "plan DLA", FLAGS) is True
    fails(file)
    assert known_outcome(file, BOARD, "plan DLA", FLAGS) is True


@pytest.mark.parametrize(
    "code",
    ["build.no-memory", "build.crashed", "build.plugins", "refit.mismatch", "engine.invalid", None],
)
def test_failures_that_may_come_of_anything_are_not_the_flags_fault(file, code):
    fails(file, code=code)
    assert known_outcome(file, BOARD, "plan DLA", FLAGS) is None
    assert known_outcome(file, BOARD, "plan DLA", ()) is True


def test_formats_at_the_borders_are_the_networks_affair(file):
    fails(file, flags=(*FLAGS, "DIRECT_IO"))
    assert known_outcome(file, BOARD, "plan DLA", (*FLAGS, "DIRECT_IO")) is None


def test_an_engine_of_which_nothing_went_through_says_nothing(file):
    record_outcome(file, BOARD, "plan DLA", [tried(FLAGS, False), tried((), False)])
    assert known_outcome(file, BOARD, "plan DLA", FLAGS) is None


def test_what_is_requested_outright_is_tried_each_time(file):
    made = decide(requested_build(version_compatible=True, strip=True))
    for attempt in made.plans[:-1]:
        fails(file, attempt.flags)
    assert without_known_failures(made, file, BOARD, dla=True) == made


DAMAGED = [
    "",
    "{",
    "[]",
    '{"boards": 3}',
    "[" * 100_000,
    '{"schema": "edgekit.trt-outcomes/1", "boards": {}}',
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_says_nothing(file, text):
    file.parent.mkdir()
    file.write_text(text)
    assert known_outcome(file, BOARD, "plan DLA", FLAGS) is None
    record_outcome(file, BOARD, "plan DLA", [tried(FLAGS, True)])
    assert known_outcome(file, BOARD, "plan DLA", FLAGS) is True
    assert json.loads(file.read_text())["schema"] == "edgekit.trt-outcomes/2"


def test_attempts_that_failed_are_left_out(file):
    made = decide(requested_build())
    fails(file, made.plans[0].flags)
    less = without_known_failures(made, file, BOARD, dla=True)
    assert less.plans == made.plans[1:]
    assert "is skipped" in less.notes[-1]
    assert made.plans[1].gives_up in less.notes[-1]
    assert without_known_failures(made, file, BOARD, dla=False) == made
    assert without_known_failures(made, file, {**BOARD, "l4t": "36.5.0"}, dla=True) == made


def test_where_all_failed_all_are_tried_again(file):
    made = decide(requested_build())
    for attempt in made.plans[:-1]:
        fails(file, attempt.flags)
    file.write_text(file.read_text().replace('"plan DLA:": ""', '"plan DLA:": "no"'))
    assert known_outcome(file, BOARD, "plan DLA", made.plans[-1].flags) is False
    assert without_known_failures(made, file, BOARD, dla=True).plans == made.plans
