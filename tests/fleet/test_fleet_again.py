"""A rollout after one that failed: who is innocent, which commands go on, whose name is free."""

import json
import re
import shlex

import pytest

from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.errors import BoardError, UsageError
from edgekit.fleet.driver import SshDriver
from edgekit.fleet.waves import FleetBoard
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, home, remote
from tests.fleet.fleet_doubles import OLD, write_inventory

__all__ = ["boards", "home"]


def states(document):
    return {row.board: row.state for row in document.boards}


def test_boards_whose_wave_went_back_for_others_count_as_new(given):
    write_inventory(given.inventory, 4)
    given.boards.bad.add("b04")
    first = given.rollout(waves="100%", settings={"parallel": 1})
    assert states(first) == {
        "b01": "rolled-back",
        "b02": "rolled-back",
        "b03": "rolled-back",
        "b04": "failed",
    }
    given.boards.bad.clear()
    second = given.rollout(name="two", waves="100%")
    assert (second.state, second.counts) == ("done", {"done": 4})


def test_a_board_that_failed_is_no_innocent_and_an_operators_rollback_makes_none(given):
    write_inventory(given.inventory, 3)
    given.boards.cut.add("b03")  # it switched, and the answer was lost: nobody knows why
    given.rollout(waves="100%", settings={"parallel": 1, "deadline_s": 0.0})
    assert given.boards.serves == {"b01": OLD, "b02": OLD, "b03": OLD}
    assert given.boards.taken_back == {"b03"}
    given.boards.cut.clear()
    second = given.rollout(name="two", waves="100%", settings={"budget": "1"})
    assert states(second) == {"b01": "done", "b02": "done", "b03": "failed"}
    with given.fleet() as fleet:
        fleet.roll_back("two")
        assert given.boards.taken_back == {"b01", "b02", "b03"}


def test_a_second_try_of_a_wave_keeps_its_boards_innocent(given):
    write_inventory(given.inventory, 2)
    given.boards.bad.add("b02")
    given.boards.each = lambda name: given.boards.away.update({"b01": 9} if name == "b02" else {})
    document = given.rollout(waves="100%", settings={"parallel": 1, "deadline_s": 0.0})
    given.boards.away.clear()
    assert "could not be rolled back" in document.failure.message
    with given.fleet() as fleet:
        assert fleet.roll_back("one", wave=0).state == "rolled-back"
    assert given.boards.taken_back == set()


def commands(text):
    """The commands that a text advises, each as it can be typed."""
    return [shlex.split(found)[2:] for found in re.findall(r"edgekit fleet [^;\n]*", text)]


def test_the_hint_names_again_and_resume_the_two_commands_that_go_on(given, run):
    write_inventory(given.inventory, 2)
    state = ("--state", given.folder / "state")
    base = ("deploy", given.config, "-i", given.inventory, "--bundle", given.bundle, *state)
    given.boards.taken_back.update({"b01", "b02"})
    status, _, err = run(
        *base,
        "--name",
        "one",
        "--select",
        "name=b0*",
        "--waves",
        "1,100%",
        "--canary",
        "1",
        "--max-failures",
        "50%",
    )
    assert status == 1
    assert "install.taken-back: b01" in err
    (again,) = [words for words in commands(err) if words[0] == "deploy"]
    assert "--again" in again
    _, out, _ = run("status", "one", "--json", *state)
    hints = {row["error"]["hint"] for row in json.loads(out)["boards"] if row["error"]}
    assert all("--again" in hint for hint in hints)
    # the rollout's own terms are in the command
    for pair in (
        ("--select", "name=b0*"),
        ("--waves", "1,100%"),
        ("--canary", "1"),
        ("--max-failures", "50%"),
        ("--bundle", str(given.bundle)),
    ):
        assert " ".join(pair) in " ".join(again)

    status, _, err = run("resume", "one", *state)
    assert status == 2
    assert "one has ended: failed: Wave 1: 1 of 1 boards failed" in err
    deploy, rollback = commands(err)
    assert (deploy[0], "--again" in deploy, rollback[:2]) == ("deploy", True, ["rollback", "one"])
    given.boards.again = True
    assert run(*deploy, "--name", "two")[0] == 0
    assert run(*rollback)[0] == 0


def test_a_rollout_that_sent_nothing_gives_its_name_away(given, run):
    write_inventory(given.inventory, 2)

    def unknown(name):
        raise BoardError("no key made it", code="bundle.unknown-signer", where=name)

    given.boards.each = unknown
    assert given.rollout(waves="100%").state == "failed"
    given.boards.each = lambda name: None
    document = given.rollout(waves="100%", settings={"budget": "1"})
    assert (document.rollout, document.state, document.counts) == ("one", "done", {"done": 2})
    # what brought a release to a board keeps its name, also where that failed or went back
    given.boards.serves.clear()
    given.boards.bad.add("b02")
    assert given.rollout(name="two", waves="100%", settings={"parallel": 1}).state == "failed"
    for name in ("one", "two"):
        with given.fleet() as fleet, pytest.raises(UsageError) as caught:
            given.begin(fleet, name=name)
        assert caught.value.code == "fleet.name"


def test_a_name_is_not_given_away_while_a_process_drives_it(given):
    given.boards.away.update({"b01": 10**9})
    write_inventory(given.inventory, 1)
    with given.fleet() as fleet:
        given.boards.each = lambda name: None
        name = given.begin(fleet, waves="100%", settings={"offline": "fail", "deadline_s": 0.0})
        assert fleet.drive(name).state == "failed"
        with (
            given.fleet() as other,
            other.rollout(name).driven(),
            pytest.raises(UsageError) as caught,
        ):
            given.begin(fleet)
    assert caught.value.code == "fleet.driven"


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
def test_a_board_takes_a_bundle_again_that_went_back_for_others(tmp_path, boards):
    """A real board over SSH: with an earlier release, and with none."""
    key = ensure_key(tmp_path / "key" / "id_ed25519")
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    old, new = (
        bundle.signed(sign(bundle.manifest_bytes, key))
        for bundle in (hand_made(seed=0), hand_made(seed=1))
    )
    server = boards(tmp_path / "board")
    (tmp_path / "board" / "allowed_signers").write_text(line + "\n")
    member = FleetBoard(remote(server, name="cam"))
    given = [old]
    driver = SshDriver("net", lambda client, member: given[0], state_folder=tmp_path / "state")

    def deploy(bundle):
        given[0] = bundle
        return driver.deploy(member, lambda before, digest: None).digest

    deploy(old)
    assert driver.back(member, old.digest, "", others_failed=True)
    assert deploy(old) == old.digest
    deploy(new)
    assert driver.back(member, new.digest, old.digest, others_failed=True)
    # a rollback by hand never goes forward to it
    with driver.client(member) as client, pytest.raises(BoardError) as caught:
        client.rollback("net")
    assert caught.value.code == "release.no-previous"
    assert deploy(new) == new.digest
    assert driver.back(member, new.digest, old.digest)
    with pytest.raises(BoardError) as caught:
        deploy(new)
    assert caught.value.code == "install.taken-back"
