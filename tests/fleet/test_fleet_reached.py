"""``--min-reached``: a rollout that reached too few boards is not done."""

import json
import re
import shlex

import pytest

from edgekit.errors import UsageError
from edgekit.fleet.waves import RolloutSettings, least_reached
from tests.fleet.fleet_doubles import NEW, write_inventory

GONE = 10**9


@pytest.mark.parametrize(
    ("text", "count", "least"),
    [
        ("80%", 1000, 800),
        ("80%", 3, 2),
        ("80%", 9, 7),
        ("80%", 1, 1),
        ("0", 5, 0),
        ("0%", 5, 0),
        ("100%", 7, 7),
        ("4", 7, 4),
    ],
)
def test_how_many_boards_are_enough(text, count, least):
    assert least_reached(text, count) == least


@pytest.mark.parametrize("text", ["11", "101%", "most", "-1", ""])
def test_what_cannot_be_reached_is_refused_before_anything_is_begun(given, text):
    with given.fleet() as fleet:
        with pytest.raises(UsageError) as caught:
            given.begin(fleet, settings={"min_reached": text})
        assert caught.value.code == "fleet.min-reached"
        assert "--min-reached 10, or --min-reached 80%" in caught.value.hint
        with pytest.raises(UsageError):
            fleet.dry_run_deploy(
                given.config, given.inventory, settings=RolloutSettings(min_reached=text)
            )
        assert not fleet.store.rollouts()


def test_a_hundred_boards_of_which_six_answer_are_not_done(given):
    given.inventory.write_text(
        'version: 1\nboards:\n  - {name: "b[001:100]", host: "h[001:100]"}\n'
    )
    given.boards.away.update({f"b{n:03}": GONE for n in range(7, 101)})
    document = given.rollout(waves="100%", settings={"deadline_s": 0.0, "parallel": 32})
    assert (document.state, document.failure.code) == ("paused", "fleet.too-few-reached")
    assert "6 of 100 boards" in document.failure.message
    assert "(needed: 80, --min-reached 80%)" in document.failure.message
    assert document.counts == {"done": 6, "skipped": 94}


def advised(text, action):
    return shlex.split(re.findall(rf"edgekit fleet {action} [^;\n]*", text)[0])[2:]


def test_the_rollout_pauses_and_a_resume_tries_again(given, run):
    write_inventory(given.inventory, 4)
    given.boards.away.update(b02=GONE, b03=GONE)
    more = (
        "-i",
        given.inventory,
        "--bundle",
        given.bundle,
        "--name",
        "one",
        "--waves",
        "1,100%",
        "--deadline",
        "0",
        "--state",
        given.folder / "state",
    )
    status, out, _ = run("deploy", given.config, *more, "--dry-run")
    assert (status, "done when at least 3 of them are reached" in out) == (0, True)
    _, out, _ = run("deploy", given.config, *more, "--dry-run", "--json")
    assert json.loads(out)["min_reached"] == 3
    status, out, err = run("deploy", given.config, *more)
    assert status == 1
    assert "2 of 4 boards were reached (needed: 3, --min-reached 80%)" in err
    # still away: the same again; then one is back
    assert run(*advised(err, "resume"))[0] == 1
    given.boards.away.pop("b02")
    status, out, err = run(*advised(err, "resume"))
    assert (status, "3 done" in out) == (0, True)
    assert given.boards.serves["b02"] == NEW
    assert given.boards.deployed["b01"] == 1


def test_it_is_ended_as_it_is_by_an_abort(given, run):
    write_inventory(given.inventory, 4)
    given.boards.away.update(b02=GONE, b03=GONE)
    document = given.rollout(waves="100%", settings={"deadline_s": 0.0})
    assert run(*advised(document.failure.hint, "abort"))[0] == 0
    with given.fleet() as fleet:
        assert fleet.document("one").state == "aborted"


def test_boards_that_left_the_inventory_do_not_count(given):
    write_inventory(given.inventory, 4)
    with given.fleet() as fleet:
        name = given.begin(fleet, waves="100%", settings={"min_reached": "100%"})
        write_inventory(given.inventory, 2)
        assert fleet.drive(name).state == "done"


def test_fewer_can_be_enough(given):
    given.boards.away.update({f"b{n:02}": GONE for n in range(2, 11)})
    document = given.rollout(waves="100%", settings={"deadline_s": 0.0, "min_reached": "1"})
    assert (document.state, document.counts) == ("done", {"done": 1, "skipped": 9})


def test_ansible_has_its_own_way_of_counting(given, run):
    status, _, err = run(
        "deploy", given.config, "-i", given.inventory, "--driver", "ansible", "--min-reached", "50%"
    )
    assert (status, "--min-reached is not supported by --driver ansible" in err) == (2, True)
