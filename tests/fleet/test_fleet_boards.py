"""``edgekit fleet status``: which board serves what, over SSH and from memory; Ansible's runs."""

import json
import time

import pytest

from edgekit import api
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.cli import main
from edgekit.deployment.board import Board
from edgekit.fleet.boards import Answer, LastAnswers, ServedRelease, board_address, served_release
from edgekit.fleet.driver import SshDriver
from edgekit.fleet.inventory import load_inventory
from edgekit.fleet.waves import FleetBoard
from edgekit.saved_documents import read_document
from edgekit_device.deployment.status import AppStatus
from edgekit_device.protocol.codec import read
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, hard_kill, home
from tests.fleet.fleet_doubles import NEW, OLD, write_inventory

__all__ = ["boards", "home"]


@pytest.fixture
def run(capsys):
    def call(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main.main(["fleet", *map(str, arguments)])
        out, err = capsys.readouterr()
        return caught.value.code, out, err

    return call


def table(out):
    """Rows of a printed table by board."""
    head, *rows = [line for line in out.splitlines()[1:] if line]
    starts = [head.index(word) for word in head.split()]
    ends = [*starts[1:], None]
    found = [[row[a:b].strip() for a, b in zip(starts, ends, strict=True)] for row in rows]
    return {row[0]: dict(zip(head.split(), row, strict=True)) for row in found}


@pytest.mark.slow
@pytest.mark.boards
def test_boards_are_asked_and_one_that_is_away_has_its_last_answer(tmp_path, boards, run):
    key = ensure_key(tmp_path / "key" / "id_ed25519")
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    bundle = hand_made()
    bundle = bundle.signed(sign(bundle.manifest_bytes, key))
    servers = {f"cam-{n}": boards(tmp_path / f"b{n}") for n in range(2)}
    rows = "".join(
        f"  - {{name: {name}, host: 127.0.0.1, port: {one.board.port}, user: {one.board.user}, "
        f"key: {one.board.key}, host_key: '{one.board.host_key}', root: {one.board.root}, "
        f"python: {one.board.python}, labels: {{site: a}}}}\n"
        for name, one in servers.items()
    )
    never = "  - {name: cam-2, host: 127.0.0.1, port: 9, root: /nowhere}\n"
    inventory = tmp_path / "fleet.yaml"
    inventory.write_text(f"version: 1\nboards:\n{rows}{never}")
    (tmp_path / "b0" / "allowed_signers").write_text(line + "\n")
    driver = SshDriver("net", lambda client, member: bundle, state_folder=tmp_path / "loader")
    driver.deploy(load_inventory(inventory)[0], lambda before, digest: None)
    state = ("--state", tmp_path / "state")

    status, out, _ = run("status", "-i", inventory, *state)
    assert (status, out.splitlines()[0]) == (0, "3 boards: 1 away, 2 reached")
    reported = table(out)
    assert reported["cam-0"]["release"] == f"000001-{bundle.digest[:12]}"
    assert reported["cam-0"]["digest"] == bundle.digest[:12]
    assert reported["cam-0"]["since"].startswith("20")
    assert (reported["cam-1"]["release"], reported["cam-1"]["seen"]) == ("nothing", "now")
    assert (reported["cam-2"]["release"], reported["cam-2"]["seen"]) == ("-", "never")

    hard_kill(servers["cam-0"])
    status, out, _ = run("status", "-i", inventory, *state, "--select", "site=a", "--json")
    document = read_document(json.loads(out))
    assert (status, document.counts) == (0, {"away": 1, "reached": 1})
    away = document.boards[0]
    assert away.error.code == "board.unreachable"
    assert away.apps[0].release == f"000001-{bundle.digest[:12]}"
    assert away.seen_at
    assert away.age_s >= 0
    assert " ago" in table(run("status", "-i", inventory, *state)[1])["cam-0"]["seen"]


def everyone_is_away(monkeypatch):
    from edgekit.errors import EnvironmentLack
    from edgekit.fleet import boards as module

    def refused(*_, **__):
        raise EnvironmentLack("cannot reach it", code="board.unreachable")

    monkeypatch.setattr(module, "open_board", refused)


def test_boards_that_are_away_are_known_from_rollouts(given, run, monkeypatch):
    write_inventory(given.inventory, 4)
    given.boards.bad.add("b04")
    given.rollout(waves="2,100%", settings={"budget": "1"})
    everyone_is_away(monkeypatch)
    state = ("--state", given.folder / "state")
    reported = table(run("status", "-i", given.inventory, *state)[1])
    assert {name: row["wave"] for name, row in reported.items()} == {
        "b01": "one 1 done",
        "b02": "one 1 done",
        "b03": "one 2 done",
        "b04": "one 2 failed",
    }
    assert [reported[f"b{n:02}"]["digest"] for n in (1, 3)] == [NEW[:12]] * 2
    assert reported["b04"]["seen"] == "never"
    # an answer of the board that is older than the rollout says less
    seen = LastAnswers(given.folder / "state")
    members = {member.name: member for member in load_inventory(given.inventory)}
    old = [ServedRelease(app="net", release="000001-0", digest=OLD, since=None)]
    seen.add({board_address(members["b01"]): Answer(at=1.0, apps=old)})
    seen.add({board_address(members["b02"]): Answer(at=time.time() + 9.0, apps=old)})
    reported = table(run("status", "-i", given.inventory, *state)[1])
    assert [reported[n]["digest"] for n in ("b01", "b02")] == [NEW[:12], OLD[:12]]


def test_a_damaged_memory_of_answers_is_none(tmp_path, given, run, monkeypatch):
    everyone_is_away(monkeypatch)
    (given.folder / "state").mkdir()
    (given.folder / "state" / "seen.json").write_text("{")
    status, out, _ = run("status", "-i", given.inventory, "--state", given.folder / "state")
    assert (status, "10 away" in out) == (0, True)


def test_what_does_not_go_together_is_refused(given, run):
    status, _, err = run("status", "one", "-i", given.inventory)
    assert (status, "a rollout or --inventory, not both" in err) == (2, True)
    status, _, err = run("status", "--select", "a=b")
    assert (status, "--select needs --inventory" in err) == (2, True)
    with pytest.raises(Exception, match="matches no board"):
        api.fleet_boards(given.inventory, selector="a=b", state=given.folder / "state")


def test_one_board_is_one_whatever_inventories_call_it():
    one = FleetBoard(Board("a", "H.lan", user="u"))
    two = FleetBoard(Board("b", "h.lan", 22, "u"))
    other = FleetBoard(Board("a", "h.lan", root="/data"))
    assert board_address(one) == board_address(two) != board_address(other)


@pytest.mark.parametrize(
    ("current", "history", "since"),
    [
        (
            "000002-b",
            [("committed", "000001-a", None, "T1"), ("committed", "000002-b", None, "T2")],
            "T2",
        ),
        (
            "000001-a",
            [("committed", "000002-b", None, "T2"), ("rolled-back", "000002-b", "000001-a", "T3")],
            "T3",
        ),
        ("000001-a", [("failed", "000002-b", "000001-a", "T4")], None),
        (None, [], None),
    ],
)
def test_since_when_a_release_serves(current, history, since):
    status = read(AppStatus, {
        "current": current and f"{current}{'0' * 11}", "previous": None, "deployment": None,
        "taken_back": None, "error": None, "refused": [], "serving": None, "changed": None,
        "releases": [
            {"id": f"{name}{'0' * 11}", "digest": digest, "backend": "reference", "signer": None,
             "staged_at": "", "ready": True, "taken_back": None}
            for name, digest in (("000001-a", OLD), ("000002-b", NEW))
        ],
        "history": [
            {"schema": "edgekit.rollback/1", "id": str(n), "app": "net", "state": state,
             "release": f"{release}{'0' * 11}", "previous": before and f"{before}{'0' * 11}",
             "started_at": at, "state_at": at, "error": None}
            for n, (state, release, before, at) in enumerate(history)
        ],
    })  # fmt: skip
    assert served_release("net", status).since == since
