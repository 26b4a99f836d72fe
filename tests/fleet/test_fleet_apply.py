"""``edgekit fleet apply``: boards get what the inventory says that they are meant to serve."""

import fcntl
import json
import sys
from pathlib import Path

import pytest

from edgekit import api
from edgekit.bundles.files import write
from edgekit.bundles.sign import ensure_key, sign
from edgekit.errors import ConfigError
from edgekit.fleet.inventory import load_inventory
from edgekit.saved_documents import read_document
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, hard_kill, home
from tests.fleet.fleet_doubles import NEW, write_inventory
from tests.pipeline.nets import small_config

__all__ = ["boards", "home"]


def test_the_first_release_that_fits_a_board_is_its(tmp_path):
    (tmp_path / "fleet.yaml").write_text("""\
version: 1
releases:
  - {select: "stage=canary", config: net.yaml, bundle: ../next.ekb}
  - {select: "kind=xavier,!spare", config: xavier.yaml, bundle: xavier.ekb}
  - {select: "kind=orin", config: net.yaml, bundle: orin.ekb}
boards:
  - {name: a, host: a, labels: {kind: orin, stage: canary}}
  - {name: b, host: b, labels: {kind: orin}, config: own.yaml}
  - {name: c, host: c, labels: {kind: xavier, spare: ""}}
  - {name: d, host: d, labels: {kind: xavier}}
""")
    found = {m.name: m.release for m in load_inventory(tmp_path / "fleet.yaml")}
    assert found["a"].bundle == tmp_path.parent / "next.ekb"
    assert found["b"].bundle == tmp_path / "orin.ekb"
    assert found["c"] is None
    assert (found["d"].config, found["d"].bundle) == (
        tmp_path / "xavier.yaml",
        tmp_path / "xavier.ekb",
    )


@pytest.mark.parametrize(
    ("row", "where", "words"),
    [
        ("{select: 'a==b==', config: c.yaml, bundle: b.ekb, x: 1}", "3:", "unknown key"),
        ("{config: c.yaml}", "3:", "'releases.0.bundle' is missing"),
        ("{select: '=', config: c.yaml, bundle: b.ekb}", "3:", "is not a valid selector"),
    ],
)
def test_a_release_that_makes_no_sense_has_its_place(tmp_path, row, where, words):
    text = f"version: 1\nreleases:\n  - {row}\nboards: [{{name: a, host: a}}]\n"
    (tmp_path / "fleet.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_inventory(tmp_path / "fleet.yaml")
    (problem,) = caught.value.problems
    assert problem.where.partition("fleet.yaml:")[2].startswith(where)
    assert words in problem.message


def test_ansibles_inventory_names_a_release_by_variables(tmp_path):
    if not Path(sys.executable).with_name("ansible-inventory").is_file():
        pytest.skip("no ansible-core here: pip install 'edgekit[ansible]'")
    (tmp_path / "hosts.ini").write_text(
        "[orin]\na\n[orin:vars]\nedgekit_bundle=net.ekb\nedgekit_config=net.yaml\n[spare]\nb\n"
    )
    found = {m.name: m for m in load_inventory(tmp_path / "hosts.ini")}
    assert found["a"].release.bundle == tmp_path / "net.ekb"
    assert found["a"].config == tmp_path / "net.yaml"
    assert found["b"].release is None


@pytest.fixture
def meant(given, monkeypatch):
    """The boards of ``given``, all meant to serve one bundle."""
    monkeypatch.setattr("edgekit.fleet.apply.SshDriver", lambda *_, **__: given.boards)

    def inventory(count):
        path = write_inventory(given.inventory, count)
        rows = path.read_text().partition("boards:")[2]
        release = f"{{config: {given.config.name}, bundle: {given.bundle.name}}}"
        path.write_text(f"version: 1\nreleases: [{release}]\nboards:{rows}")
        return ("-i", path, "--state", given.folder / "state")

    return inventory


def test_boards_that_are_late_or_new_get_their_release_and_the_others_are_left(given, meant, run):
    words = meant(4)
    given.boards.serves["b01"] = NEW
    given.boards.away["b02"] = 10**9
    status, out, _ = run("apply", *words)
    assert (status, out.splitlines()[0]) == (0, "4 boards: 1 away, 1 current, 2 updated")
    assert given.boards.deployed == {"b03": 1, "b04": 1}
    given.boards.away.clear()
    meant(5)
    status, out, _ = run("apply", *words, "--json")
    document = read_document(json.loads(out))
    assert (status, document.state, document.counts) == (0, "done", {"current": 3, "updated": 2})
    # nothing is left: cron gets no mail
    assert run("apply", *words, "-q") == (0, "", "")
    assert set(given.boards.deployed.values()) == {1}
    # what the boards serve is known from now on
    monkey = api.fleet_boards(words[1], state=words[3])
    assert {board.seen_at is not None for board in monkey.boards} == {True}


def test_boards_of_a_rollout_that_has_not_ended_are_left_to_it(given, meant, run):
    words = meant(4)
    with given.fleet() as fleet:
        name = given.begin(fleet, selector="name=b01")
        status, out, _ = run("apply", *words)
        assert (status, "1 in-rollout, 3 updated" in out) == (0, True)
        assert given.boards.deployed["b01"] == 0
        fleet.drive(name)
    assert "4 current" in run("apply", *words)[1]


def test_too_many_failures_begin_no_further_board(given, meant, run):
    words = (*meant(6), "--parallel", "1")
    given.boards.bad.update({"b02", "b03", "b04"})
    status, out, err = run("apply", *words)
    assert status == 1
    assert "2 failed, 3 not-begun, 1 updated" in out
    assert "2 boards failed: b02, b03; no further board was begun" in err
    status, out, _ = run("apply", *words, "--max-failures", "3", "-q")
    assert (status, "3 failed" in out) == (1, True)


def test_boards_that_took_the_release_back_stop_nothing(given, meant, run):
    words = (*meant(4), "--parallel", "1", "--max-failures", "0")
    given.boards.taken_back.update({"b01", "b02"})
    status, out, err = run("apply", *words)
    assert (status, "2 failed, 2 updated" in out) == (1, True)
    assert "--again" in err


def test_one_apply_at_a_time(given, meant, run):
    words = meant(2)
    run("apply", *words)
    with (given.folder / "state" / "apply.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, _, err = run("apply", *words)
    assert (status, "another edgekit fleet apply is running" in err) == (2, True)
    assert run("apply", *words)[0] == 0


def test_without_a_release_or_with_a_wrong_one_nothing_is_begun(given, meant, run, tmp_path):
    write_inventory(tmp_path / "none.yaml", 2)
    status, _, err = run("apply", "-i", tmp_path / "none.yaml", "--state", tmp_path / "state")
    assert (status, "releases: [{config: net.yaml, bundle: net.ekb}]" in err) == (2, True)
    words = meant(2)
    given.bundle.write_bytes(b"no bundle")
    assert run("apply", *words)[0] in (2, 3, 4)
    given.bundle.unlink()
    assert run("apply", *words)[0] in (2, 3, 4)
    assert not given.boards.deployed


def test_ctrl_c_begins_no_further_board(given, meant):
    words = meant(4)
    met = []
    given.boards.each = met.append
    found = api.apply_releases(words[1], state=words[3], parallel=1, stopped=lambda: len(met) > 1)
    assert (found.state, found.counts) == ("stopped", {"not-begun": 2, "updated": 2})


@pytest.mark.slow
@pytest.mark.boards
def test_a_new_board_over_ssh(tmp_path, boards, run):
    """A fresh board, one that comes back, and one that took the release back by itself."""
    key = ensure_key(tmp_path / "key" / "id_ed25519")
    bundle = hand_made()
    bundle = bundle.signed(sign(bundle.manifest_bytes, key))
    write(bundle, tmp_path / "net.ekb", stripped=False)
    config = small_config(tmp_path / "net")
    text = config.read_text().replace("name: small", "name: net")
    config.write_text(f"{text}deploy: {{sign_with: {key}, health: {{measure_s: 0.01}}}}\n")
    servers = [boards(tmp_path / f"b{n}") for n in range(2)]
    rows = "".join(
        f"  - {{name: cam-{n}, host: 127.0.0.1, port: {one.board.port}, user: {one.board.user}, "
        f"key: {one.board.key}, host_key: '{one.board.host_key}', root: {one.board.root}, "
        f"python: {one.board.python}}}\n"
        for n, one in enumerate(servers)
    )
    inventory = tmp_path / "fleet.yaml"
    inventory.write_text(
        f"version: 1\nreleases: [{{config: net/small.yaml, bundle: net.ekb}}]\nboards:\n{rows}"
    )
    hard_kill(servers[1])
    words = ("-i", inventory, "--state", tmp_path / "state")
    status, _, err = run("apply", *words)
    assert (status, "--trust-key" in err) == (1, True)
    status, out, _ = run("apply", *words, "--trust-key")
    assert (status, out.splitlines()[0]) == (0, "2 boards: 1 away, 1 updated")
    release = json.loads((tmp_path / "b0/apps/net/current/release.json").read_text())
    assert release["digest"] == bundle.digest
    status, out, _ = run("apply", *words)
    assert (status, out.splitlines()[0]) == (0, "2 boards: 1 away, 1 current")
