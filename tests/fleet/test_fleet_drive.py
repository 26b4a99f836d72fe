"""Waves, budgets, retries, pause and resume, on boards in memory."""

import threading

import pytest

from edgekit.errors import UsageError
from tests.fleet.fleet_doubles import NEW, OLD


def states(document):
    return {row.board: row.state for row in document.boards}


def test_canaries_of_each_kind_go_first_and_all_follow(given):
    order = []
    given.boards.each = order.append
    document = given.rollout(canary=2, waves="50%,100%", settings={"parallel": 1})
    assert document.state == "done"
    assert [wave.boards for wave in document.waves] == [2, 3, 5]
    # one of each kind, then the inventory's order
    assert order == ["b01", "b02", *(f"b{n:02}" for n in range(3, 11))]
    assert set(given.boards.serves.values()) == {NEW}


def test_no_more_boards_at_a_time_than_allowed(given):
    given.rollout(waves="100%", settings={"parallel": 3})
    assert 1 <= given.boards.most <= 3


def test_boards_that_are_away_are_tried_again(given):
    given.boards.away.update({"b03": 4, "b07": 1})
    document = given.rollout()
    assert document.state == "done"
    assert document.counts == {"done": 10}
    attempts = {row.board: row.attempts for row in document.boards}
    assert (attempts["b03"], attempts["b07"], attempts["b01"]) == (5, 2, 1)


@pytest.mark.parametrize(
    ("rule", "state", "end"), [("skip", "skipped", "done"), ("fail", "failed", "failed")]
)
def test_a_board_away_all_along_counts_by_its_own_rule(given, rule, state, end):
    given.boards.away["b02"] = 10**9
    document = given.rollout(settings={"deadline_s": 0.01, "offline": rule})
    assert states(document)["b02"] == state
    assert document.state == end


def test_what_was_skipped_is_tried_again_by_resume_and_nothing_else(given):
    given.boards.away["b02"] = 10**9
    given.rollout(settings={"deadline_s": 0.01})
    given.boards.away.clear()
    with given.fleet() as fleet:
        document = fleet.drive("one")
        assert document.counts == {"done": 10}
        assert set(given.boards.deployed.values()) == {1}
        with pytest.raises(UsageError, match="has ended: done"):
            fleet.drive("one")


def test_a_canary_that_nobody_reached_holds_the_others_back(given):
    given.boards.away["b01"] = 10**9
    document = given.rollout(canary=1, waves="100%", settings={"deadline_s": 0.01})
    assert (document.state, document.failure.code) == ("paused", "fleet.none-reached")
    assert "b01 could not be reached" in document.failure.message
    assert "fleet resume one" in document.failure.hint
    assert document.counts == {"pending": 10}
    assert not given.boards.deployed
    with given.fleet() as fleet:  # it waits as long as the canary is away
        assert fleet.drive("one").failure.code == "fleet.none-reached"
        given.boards.away.clear()
        document = fleet.drive("one")
    assert (document.state, document.failure) == ("done", None)
    assert document.counts == {"done": 10}


def test_one_canary_of_two_is_enough_and_a_removed_one_holds_nothing_back(given):
    given.boards.away["b01"] = 10**9
    document = given.rollout(canary=2, waves="100%", settings={"deadline_s": 0.01})
    assert (document.state, document.counts) == ("done", {"skipped": 1, "done": 9})
    given.boards.serves.clear()
    with given.fleet() as fleet:
        name = given.begin(fleet, name="two", canary=1, waves="100%", settings={"deadline_s": 0.01})
        assert fleet.drive(name).state == "paused"
        rows = given.inventory.read_text().splitlines()
        given.inventory.write_text("\n".join(row for row in rows if "b01" not in row))
        document = fleet.drive(name)
    assert (document.state, document.counts) == ("done", {"skipped": 1, "done": 9})


def test_too_many_failures_take_the_wave_back_and_leave_the_ones_before(given):
    given.boards.bad.update({"b06", "b07"})
    document = given.rollout(
        waves="3,8,100%", settings={"budget": "1", "parallel": 1, "soak_s": 0.0}
    )
    assert document.state == "failed"
    assert document.failure.code == "fleet.failures"
    reported = states(document)
    assert [reported[f"b{n:02}"] for n in (1, 2, 3)] == ["done"] * 3
    assert [reported[f"b{n:02}"] for n in (4, 5)] == ["rolled-back"] * 2
    assert [reported[f"b{n:02}"] for n in (6, 7)] == ["failed"] * 2
    # the wave stopped at the second failure: b08 was not begun, nor was a later wave
    assert [reported[f"b{n:02}"] for n in (8, 9, 10)] == ["aborted"] * 3
    assert [given.boards.serves.get(f"b{n:02}", OLD) for n in (3, 4, 5, 6, 8)] == [
        NEW,
        OLD,
        OLD,
        OLD,
        OLD,
    ]
    reasons = {row.board: row.error for row in document.boards if row.error}
    assert set(reasons) == {"b06", "b07"}
    assert reasons["b06"].code == "selftest.failed"


@pytest.mark.parametrize(("budget", "state"), [("20%", "done"), ("19%", "failed")])
def test_a_percentage_of_the_wave_may_fail(given, budget, state):
    given.boards.bad.update({"b01", "b02"})
    assert given.rollout(waves="100%", settings={"budget": budget}).state == state


def test_a_board_that_went_back_by_itself_is_found_by_the_soak(given):
    def later(name):
        if name == "b01":
            given.boards.cut.add("b01")

    given.boards.each = later
    real = given.boards.serving
    given.boards.serving = lambda member: OLD if member.name == "b01" else real(member)
    document = given.rollout(waves="1,100%", settings={"soak_s": 0.001})
    assert document.state == "failed"
    row = document.boards[0]
    assert row.error.code == "fleet.went-back"


def test_a_cut_answer_is_requested_again_and_nothing_is_done_twice(given):
    given.boards.cut.update({"b02", "b05"})
    document = given.rollout()
    assert document.counts == {"done": 10}
    assert set(given.boards.deployed.values()) == {1}


def test_pause_waits_for_what_is_under_way_and_resume_forgets_none(given):
    with given.fleet() as fleet, given.fleet() as other:
        name = given.begin(fleet, waves="100%", settings={"parallel": 2})
        requested = threading.Event()

        def ask(board):
            if board == "b03":
                other.request(name, "pause")
                requested.set()
            elif board > "b03":
                assert requested.wait(120)

        given.boards.each = ask
        paused = fleet.drive(name)
        assert paused.state == "paused"
        assert "running" not in paused.counts
        assert paused.counts["done"] + paused.counts["pending"] == 10
        assert paused.counts["pending"] >= 5
        given.boards.each = lambda board: None
        assert fleet.drive(name).counts == {"done": 10}
    assert set(given.boards.deployed.values()) == {1}


def test_abort_leaves_what_is_done_and_ends(given):
    with given.fleet() as fleet, given.fleet() as other:
        name = given.begin(fleet, waves="100%", settings={"parallel": 1})
        given.boards.each = lambda board: board == "b03" and other.request(name, "abort")
        document = fleet.drive(name)
        assert document.state == "aborted"
        assert document.counts == {"aborted": 7, "done": 3}
        with pytest.raises(UsageError, match="has ended"):
            fleet.request(name, "pause")


def test_only_one_process_drives_a_rollout_and_others_may_look(given):
    seen = []
    with given.fleet() as fleet, given.fleet() as other:
        name = given.begin(fleet, waves="100%", settings={"parallel": 1})

        def look(board):
            if board == "b02":
                seen.append(other.document(name))
                with pytest.raises(UsageError, match="is already driven by process") as caught:
                    other.drive(name)
                seen.append(caught.value.code)

        given.boards.each = look
        fleet.drive(name)
    assert seen[0].driven is True
    assert seen[0].counts == {"done": 1, "pending": 8, "running": 1}
    assert seen[1] == "fleet.driven"


def test_rollback_of_a_wave_and_of_all(given):
    given.rollout(waves="4,100%", settings={"deadline_s": 0.05})
    with given.fleet() as fleet:
        document = fleet.roll_back("one", wave=0)
        assert document.state == "rolled-back"
        assert sorted(given.boards.went_back) == ["b01", "b02", "b03", "b04"]
        given.boards.away["b09"] = 10**9
        document = fleet.roll_back("one", wave=None)
    # each once: a second rollback would bring the new release again
    assert len(given.boards.went_back) == len(set(given.boards.went_back)) == 9
    assert document.failure.code == "fleet.not-rolled-back"
    assert "b09" in document.failure.message


def test_a_board_that_is_away_at_first_goes_back_all_the_same(given):
    given.rollout(waves="100%")
    given.boards.away["b02"] = 2
    with given.fleet() as fleet:
        document = fleet.roll_back("one")
    assert (document.state, document.failure) == ("rolled-back", None)
    assert document.counts == {"rolled-back": 10}


def test_boards_that_served_it_before_are_not_taken_back(given):
    given.boards.serves["b05"] = NEW
    given.rollout(waves="100%")
    with given.fleet() as fleet:
        fleet.roll_back("one")
    assert given.boards.serves["b05"] == NEW
    assert given.boards.deployed["b05"] == 0


def test_the_inventory_may_change_between_pause_and_resume(given):
    with given.fleet() as fleet:
        name = given.begin(fleet, waves="100%")
        text = given.inventory.read_text().replace("10.0.0.3,", "10.9.9.9,")
        gone = [line for line in text.splitlines() if "b04" not in line]
        given.inventory.write_text("\n".join(gone) + "\n  - {name: new, host: new.lan}\n")
        document = fleet.drive(name)
    reported = states(document)
    assert reported["b04"] == "skipped"
    assert "new" not in reported
    assert next(r for r in document.boards if r.board == "b03").host == "10.9.9.9"
    assert any("not in this rollout: 1 board of the inventory" in n for n in document.notes)


def test_an_inventory_that_is_gone_does_not_stop_a_resume(given):
    with given.fleet() as fleet:
        name = given.begin(fleet)
        given.inventory.unlink()
        document = fleet.drive(name)
    assert document.state == "done"
    assert "no longer exists" in document.notes[0]


def test_names_are_taken_once(given):
    given.rollout()
    with given.fleet() as fleet, pytest.raises(UsageError) as caught:
        given.begin(fleet)
    assert caught.value.code == "fleet.name"


@pytest.mark.whole
def test_a_range_of_two_thousand_boards_goes_through(given):
    given.inventory.write_text(
        'version: 1\nboards:\n  - {name: "b[0001:2000]", host: "h[0001:2000]"}\n'
    )
    document = given.rollout(waves="1%,100%", settings={"parallel": 32})
    assert document.counts == {"done": 2000}
