"""A rollout to fifty sshd boards: some away, some failing, its driver paused and killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp, write
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.cli import main
from edgekit.fleet.rollout import Fleet
from edgekit.fleet.status import rollout_listing
from tests.boards.bundles import hand_made
from tests.boards.fixtures import need_sshd
from tests.boards.toy_jobs import until
from tests.boards.warm_python import warm_python
from tests.fleet.many_boards import farm
from tests.pipeline.nets import small_config

pytestmark = [pytest.mark.boards, pytest.mark.slow]

COUNT = 50
AWAY = ("b10", "b20", "b40")
BAD = ("b15", "b35")


def signed(seed, key):
    bundle = hand_made(seed=seed)
    return bundle.signed(sign(bundle.manifest_bytes, key))


def ask(capsys, *arguments):
    """Runs a command in this process; returns its status and its document."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main.main(["fleet", *arguments, "--json"])
    return caught.value.code, json.loads(capsys.readouterr().out)


def states(document):
    return {row["board"]: row["state"] for row in document["boards"]}


@pytest.mark.whole
def test_fifty_boards(tmp_path, home, capsys, monkeypatch):
    need_sshd()
    config = small_config(tmp_path / "net")
    config.write_text(config.read_text().replace("name: small", "name: net"))
    key = ensure_key(tmp_path / "key")
    old, new = signed(0, key), signed(1, key)
    files = [write(b, tmp_path / f"{b.digest[:8]}.ekb", stripped=False) for b in (old, new)]
    loader = tmp_path / "loader.pyz"
    build_zipapp(loader)
    state = tmp_path / "state"
    monkeypatch.setattr(signal, "signal", lambda *_: signal.SIG_DFL)  # pytest's own stay
    with (
        tempfile.TemporaryDirectory(dir="/tmp", prefix="ek-") as short,
        warm_python(Path(short), loader) as python,
        farm(tmp_path / "boards", COUNT, python) as boards,
        Fleet(state) as watched,
    ):
        inventory = boards.inventory(tmp_path / "fleet.yaml")
        boards.trust(allowed_signers_line(Path(f"{key}.pub")))
        boards.start([name for name in boards.names if name not in AWAY])
        for name in BAD:
            boards.distrust(name)

        def driver(*arguments):
            command = [sys.executable, "-m", "edgekit", "fleet", *arguments]
            return subprocess.Popen(
                [*command, "--state", str(state), "--json"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "HOME": str(home)},
            )

        def done(count):
            """Whether so many are done, as another process sees it."""
            rows = rollout_listing(watched.store).rollouts
            return rows and rows[0].counts.get("done", 0) >= count

        # paused: boards under way are waited for
        first = driver(
            "deploy",
            str(config),
            "-i",
            str(inventory),
            "--bundle",
            str(files[0]),
            "--name",
            "one",
            "--canary",
            "2",
            "--waves",
            "50%,100%",
            "--max-failures",
            "1",
            "--parallel",
            "4",
        )
        until(lambda: done(3) or first.poll() is not None, 120)
        assert ask(capsys, "pause", "one", "--state", str(state))[0] == 0
        out, err = first.communicate(timeout=120)
        assert first.returncode == 1, err
        paused = json.loads(out)
        assert paused["state"] == "paused"
        assert "running" not in paused["counts"]
        assert paused["waves"][0]["counts"] == {"done": 2}

        # killed: boards are left in the midst of it, and others were away
        second = driver("resume", "one")
        until(
            lambda: (
                (done(15) and states(watched.document("one").to_json())["b10"] == "offline")
                or second.poll() is not None
            ),
            240,
        )
        second.kill()
        second.communicate()
        left = watched.document("one")
        assert left.state == "running"
        assert not left.driven
        assert left.counts["running"] >= 1

        # and on: none twice, none forgotten
        boards.start(AWAY)
        status, document = ask(capsys, "resume", "one", "--state", str(state))
        assert status == 0
        assert document["state"] == "done"
        assert document["counts"] == {"done": COUNT - len(BAD), "failed": len(BAD)}
        reported = states(document)
        assert [reported[name] for name in BAD] == ["failed"] * len(BAD)
        was_running = {n for n, s in states(left.to_json()).items() if s in ("running", "offline")}
        for row in document["boards"]:
            name = row["board"]
            serving = boards.serving(name, "net")
            assert boards.releases(name, "net") == ([serving] if serving else [])
            assert bool(serving) == (name not in BAD)
            assert row["attempts"] == 1 or name in {*was_running, *AWAY}

        # one of a wave fails: those of the wave that had switched go back
        boards.distrust("b12")
        before = {name: boards.serving(name, "net") for name in boards.names}
        status, document = ask(
            capsys,
            "deploy",
            str(config),
            "-i",
            str(inventory),
            "--bundle",
            str(files[1]),
            "--select",
            "rack=1,name!=b15",
            "--waves",
            "100%",
            "--parallel",
            "1",
            "--name",
            "two",
            "--state",
            str(state),
        )
        assert status == 1
        assert document["state"] == "failed"
        assert document["counts"] == {"aborted": 3, "failed": 1, "rolled-back": 3}
        assert document["failure"]["code"] == "fleet.failures"
        assert {name: boards.serving(name, "net") for name in boards.names} == before
