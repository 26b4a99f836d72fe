"""Boards through ansible-runner: its events as answers; a program of our own plays it."""

import json
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from edgekit.cli import _main
from edgekit.deploy import Board
from edgekit.errors import BoardError, EdgekitError, EnvironmentLack
from edgekit.fleet import Member, _runner
from edgekit.fleet._over_ansible import AnsibleDriver
from tests.boards.bundles import hand_made
from tests.fleet.fleet_doubles import write_inventory

PLAYED = """\
#!{python}
import json, sys, pathlib
folder, words = pathlib.Path(sys.argv[2]), sys.argv
playbook = words[words.index("--playbook") + 1]
inventory = pathlib.Path(words[words.index("--inventory") + 1]).read_text()
with (folder / "runs.jsonl").open("a") as log:
    log.write(json.dumps([playbook, inventory]) + "\\n")
for line in json.loads((folder / "script.json").read_text()).get(playbook, []):
    print(line if isinstance(line, str) else json.dumps(line), flush=True)
"""


def told(host, task, what="ok", **result):
    data = {"host": host, "task": task, "res": result}
    return {"event": f"runner_on_{what}", "event_data": data}


def member(name, **fields):
    return Member(Board(name, **{"host": f"{name}.lab", **fields}))


@pytest.fixture
def played(tmp_path, monkeypatch):
    """A driver whose program says what is written for each playbook; and the runs it saw."""
    program = tmp_path / "ansible-runner"
    program.write_text(PLAYED.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(_runner, "program", lambda: str(program))
    folder = tmp_path / "out"
    bundle = hand_made()
    made = AnsibleDriver("net", lambda m: bundle, folder=folder, forks=8,
                         terms_of=lambda m: {"keep": 2, "policy": {"latency_ms": 9.0},
                                             "source": "https://a/\nhttps://b/"})  # fmt: skip

    def say(**script):
        folder.mkdir(exist_ok=True, mode=0o700)
        (folder / "roles" / "edgekit_board").mkdir(parents=True, exist_ok=True)
        lines = {f"{name}.yml": lines for name, lines in script.items()}
        (folder / "script.json").write_text(json.dumps(lines))

    def runs():
        rows = [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]
        return [(play, yaml.safe_load(text)["all"]["children"]["edgekit_boards"])
                for play, text in rows]  # fmt: skip

    made.say, made.runs, made.bundle = say, runs, bundle
    yield made
    made.close()


def serves(host, digest=None):
    releases = [{"id": "000001-1", "digest": digest}] if digest else []
    app = {"current": "000001-1" if digest else None, "previous": None, "releases": releases}
    return told(host, "What serves", rc=0, stdout=json.dumps({"apps": {"net": app}}))


def test_boards_that_are_asked_together_are_one_run_and_each_has_its_answer(played):
    installed = {"release": "000002-2", "changed": True}
    refused = {"error": {"code": "selftest.failed", "message": "y is off", "where": "", "hint": ""}}
    played.say(
        serving=[serves("a", "0" * 64), "not JSON", serves("b"),
                 told("c", "What serves", "unreachable", msg="no route\n to host")],
        deploy=[told("a", "The bundle is installed", stdout=json.dumps(installed)),
                told("b", "The bundle is installed", "failed", stdout=json.dumps(refused)),
                told("b", "Why it was not", "failed", msg="again")],
    )  # fmt: skip
    found, barrier = {}, threading.Barrier(3)

    def deploy(name):
        barrier.wait()
        try:
            return played.deploy(member(name), lambda *facts: found.update({name: facts}))
        except EdgekitError as error:
            return error

    with ThreadPoolExecutor(3) as pool:
        a, b, c = pool.map(deploy, "abc")
    assert (a.release, a.changed, a.digest) == ("000002-2", True, played.bundle.digest)
    assert isinstance(b, BoardError)
    assert (b.code, b.message, b.where) == ("selftest.failed", "y is off", "b")
    assert isinstance(c, EnvironmentLack)
    assert (c.code, c.message) == ("board.unreachable", "no route to host")
    # on record before it was changed; the board that is away has nothing on record
    assert found == {"a": ("0" * 64, played.bundle.digest), "b": ("", played.bundle.digest)}
    runs = played.runs()
    assert [play for play, _ in runs] == ["serving.yml", "deploy.yml"]
    assert sorted(runs[0][1]["hosts"]) == ["a", "b", "c"]
    given = runs[1][1]["vars"]
    assert given["edgekit_board_policy"] == {"keep": 2, "latency_ms": 9.0}
    assert given["edgekit_board_sources"] == ["https://a/", "https://b/"]


@pytest.mark.parametrize(
    ("what", "answer"), [("ok", True), ("skipped", False)]
)  # fmt: skip
def test_taking_back_names_what_served_before(played, what, answer):
    played.say(rollback=[told("a", "What served before serves again", what)])
    assert played.back(member("a"), "1" * 64, "") is answer
    ((play, boards),) = played.runs()
    assert play == "rollback.yml"
    assert boards["vars"]["edgekit_board_before"] == "nothing"


def test_another_edgekits_loader_is_no_answer_and_a_silent_run_is_told(played):
    python = told("a", "What serves", rc=2, stdout="")
    played.say(serving=[python, "ERROR! the role has a fault"])
    with pytest.raises(BoardError, match="the role has a fault") as caught:
        played.serving(member("a"))
    assert caught.value.code == "fleet.ansible"
    second = {**serves("a", "1" * 64)}
    second["event_data"] = {**second["event_data"], "task": "What serves, with the loader"}
    played.say(serving=[python, second])
    assert played.serving(member("a")) == "1" * 64


def test_what_serves_already_is_not_installed_again(played):
    offer = told("a", "What it lacks of the bundle", stdout='{"serving": "000003-1"}')
    played.say(serving=[serves("a", played.bundle.digest)], deploy=[offer])
    answer = played.deploy(member("a"), lambda *facts: None)
    assert (answer.release, answer.changed) == ("000003-1", False)


def test_without_the_program_nothing_is_begun(tmp_path, given, monkeypatch, capsys):
    monkeypatch.setattr(_runner.shutil, "which", lambda name: None)
    monkeypatch.setattr(_runner.sys, "executable", str(tmp_path / "python"))
    inventory = write_inventory(tmp_path / "two.yaml", 2)
    with pytest.raises(SystemExit) as caught:
        _main.main(["fleet", "deploy", str(given.config), "-i", str(inventory), "--bundle",
                    str(given.bundle), "--driver", "ansible", "--state",
                    str(tmp_path / "state")])  # fmt: skip
    assert caught.value.code == EnvironmentLack.exit_code
    assert "edgekit[ansible]" in capsys.readouterr().err
    with given.fleet_in(Path(tmp_path / "state")) as fleet:
        assert fleet.store.rollouts() == []
