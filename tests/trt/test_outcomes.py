"""What builds have answered is kept by kind of board, and failing attempts are not tried again."""

import json

import pytest

from edgekit.trt import decide, known, remember, settled
from tests.trt.wishes import wish

BOARD = {"module": "p3701-0005", "l4t": "36.4.3", "tensorrt": "10.3.0.30", "dla_compiler": "3.14"}
FLAGS = ("VERSION_COMPATIBLE", "STRIP_PLAN")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "kept" / "outcomes.json"


def test_nothing_is_known_at_first(file):
    assert known(file, BOARD, "plan DLA", FLAGS) is None


def test_the_order_of_flags_and_the_kind(file):
    remember(file, BOARD, "plan DLA", FLAGS, False)
    assert known(file, BOARD, "plan DLA", FLAGS[::-1]) is False
    assert known(file, BOARD, "plan", FLAGS) is None
    assert known(file, BOARD, "plan DLA", FLAGS[:1]) is None


@pytest.mark.parametrize("name", ["module", "l4t", "tensorrt", "dla_compiler"])
def test_another_board_says_nothing_of_this_one(file, name):
    remember(file, BOARD, "plan DLA", FLAGS, False)
    assert known(file, {**BOARD, name: "other"}, "plan DLA", FLAGS) is None
    assert known(file, {**BOARD, "cuda": "12.6"}, "plan DLA", FLAGS) is False


@pytest.mark.parametrize("name", ["module", "l4t", "tensorrt"])
def test_a_board_that_is_not_known_is_not_kept(file, name):
    remember(file, {**BOARD, name: ""}, "plan DLA", FLAGS, False)
    assert not file.exists()


def test_a_later_success_outweighs_a_failure(file):
    remember(file, BOARD, "plan DLA", FLAGS, False)
    remember(file, BOARD, "plan DLA", FLAGS, True)
    assert known(file, BOARD, "plan DLA", FLAGS) is True


DAMAGED = ["", "{", "[]", '{"boards": 3}', "[" * 100_000,
           '{"schema": "edgekit.trt-outcomes/2", "boards": {}}']  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_says_nothing(file, text):
    file.parent.mkdir()
    file.write_text(text)
    assert known(file, BOARD, "plan DLA", FLAGS) is None
    remember(file, BOARD, "plan DLA", FLAGS, True)
    assert known(file, BOARD, "plan DLA", FLAGS) is True
    assert json.loads(file.read_text())["schema"] == "edgekit.trt-outcomes/1"


def test_attempts_that_failed_are_left_out(file):
    made = decide(wish())
    remember(file, BOARD, "plan DLA", made.plans[0].flags, False)
    less = settled(made, file, BOARD, dla=True)
    assert less.plans == made.plans[1:]
    assert "not tried again" in less.notes[-1]
    assert made.plans[1].gives_up in less.notes[-1]
    assert settled(made, file, BOARD, dla=False) == made
    assert settled(made, file, {**BOARD, "l4t": "36.5.0"}, dla=True) == made


def test_where_all_failed_all_are_tried_again(file):
    made = decide(wish())
    for attempt in made.plans:
        remember(file, BOARD, "plan DLA", attempt.flags, False)
    assert settled(made, file, BOARD, dla=True).plans == made.plans
