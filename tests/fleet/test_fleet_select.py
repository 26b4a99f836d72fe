"""Selectors and waves."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.deployment.board import Board
from edgekit.errors import UsageError
from edgekit.fleet.inventory import select
from edgekit.fleet.waves import FleetBoard, allowed_failures, make_waves

FLEET = (
    FleetBoard(Board("a1", "h1"), {"site": "a", "kind": "orin"}),
    FleetBoard(Board("a2", "h2"), {"site": "a", "kind": "xavier", "spare": ""}),
    FleetBoard(Board("b1", "h3"), {"site": 'b,"c"', "kind": "orin*"}),
    FleetBoard(Board("b2", "h4"), {"site": "[x]", "kind": "é b"}),
)


def names(text):
    return [member.name for member in select(FLEET, text)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, ["a1", "a2", "b1", "b2"]),
        ("site=a", ["a1", "a2"]),
        ("site==a, kind!=xavier", ["a1"]),
        ("spare", ["a2"]),
        ("!spare,site=a", ["a1"]),
        ("kind=orin*", ["a1", "b1"]),
        ("site=[x]", ["b2"]),
        ("kind=é b", ["b2"]),
        ("name=b?", ["b1", "b2"]),
        ("owner!=x", ["a1", "a2", "b1", "b2"]),  # what has no owner has not that owner
    ],
)
def test_selectors(text, wanted):
    assert names(text) == wanted


@pytest.mark.parametrize("text", ["=a", "site=a,,", "!site=a", "si te=a", ","])
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError) as caught:
        names(text)
    assert caught.value.code in ("fleet.selector", "fleet.nothing-selected")


def test_an_empty_selection_names_the_labels():
    with pytest.raises(UsageError) as caught:
        names("site=z")
    assert caught.value.code == "fleet.nothing-selected"
    assert "kind=" in caught.value.hint
    assert "site=" in caught.value.hint
    assert "spare" in caught.value.hint


@given(st.text(max_size=40))
def test_no_selector_crashes(text):
    with contextlib.suppress(UsageError):
        select(FLEET, text)


def fleet(count):
    return [FleetBoard(Board(f"b{n}", f"h{n}"), {"kind": "xy"[n % 2]}) for n in range(count)]


@given(
    st.integers(1, 300), st.integers(0, 20), st.lists(st.integers(1, 100), max_size=5).map(sorted)
)
def test_waves_hold_each_board_once(count, canary, steps):
    text = ",".join([*(f"{step}%" for step in steps), "100%"])
    waves = make_waves(fleet(count), canary, text)
    found = [member.name for wave in waves for member in wave]
    assert sorted(found) == sorted(f"b{n}" for n in range(count))
    assert all(waves)
    if canary:
        assert len(waves[0]) == min(canary, count)


@pytest.mark.parametrize(
    "text", ["", "10%", "50%,10%,100%", "0%,100%", "x", "200%", "5,100", "1.5"]
)
def test_waves_that_make_no_sense(text):
    with pytest.raises(UsageError) as caught:
        make_waves(fleet(200), 0, text)
    assert caught.value.code == "fleet.waves"


def test_a_wave_is_at_least_one_board():
    assert [len(w) for w in make_waves(fleet(7), 0, "1%,30%,100%")] == [1, 2, 4]


@pytest.mark.parametrize(
    ("budget", "size", "allowed"), [("0", 9, 0), ("3", 2, 3), ("10%", 19, 1), ("100%", 4, 4)]
)
def test_budgets(budget, size, allowed):
    assert allowed_failures(budget, size) == allowed
