"""Ansible's check mode against what the run then does, ``serving.yml``, and a folder that another
machine runs: boards that are fresh, current, old and taken back.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from edgekit.bundles.files import write
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.fleet.ansible.export import export_ansible
from edgekit.fleet.waves import FleetBoard
from tests.boards.bundles import hand_made
from tests.boards.fixtures import boards, home, remote

__all__ = ["boards", "home"]

_BIN = Path(sys.executable).parent
_FRESH, _CURRENT, _OLD, _BACK = (f"cam-{n}" for n in range(4))


def _recap(text):
    rows = re.findall(r"^(cam-\d) +: (.*)$", text, re.MULTILINE)
    return {name: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", row)} for name, row in rows}


def _shown(text):
    """What a playbook's debug tasks print by board, without -v."""
    found = re.findall(r'^\w+: \[(cam-\d)\] => \{\s*"msg": "(.*?)"', text, re.MULTILINE)
    said: dict[str, list[str]] = {}
    for name, words in found:
        said.setdefault(name, []).append(words)
    return said


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Runs a playbook in a folder; returns its exit status, recap and output."""
    if not (_BIN / "ansible-playbook").is_file():
        pytest.skip("no ansible-core here: pip install 'edgekit[ansible]'")
    with tempfile.TemporaryDirectory(prefix="ek-") as sockets:
        env = {
            **os.environ,
            "ANSIBLE_REMOTE_TMP": str(tmp_path / "remote"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "ANSIBLE_SSH_RETRIES": "0",
            "ANSIBLE_ASYNC_DIR": str(tmp_path / "async"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
        }

        def run(folder, *arguments, **more):
            done = subprocess.run(
                [str(_BIN / "ansible-playbook"), *arguments],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=600,
                stdin=subprocess.DEVNULL,
                env={**env, **more},
            )
            return done.returncode, _recap(done.stdout), done.stdout + done.stderr

        yield run


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.boards
def test_check_mode_predicts_the_run_and_the_folder_is_all_that_is_needed(tmp_path, boards, play):
    key = ensure_key(tmp_path / "key" / "id_ed25519")
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    old, new = (
        bundle.signed(sign(bundle.manifest_bytes, key))
        for bundle in (hand_made(seed=0), hand_made(seed=1))
    )
    files = {b.digest: write(b, tmp_path / f"{b.digest}.ekb", stripped=False) for b in (old, new)}
    roots = {name: tmp_path / name for name in (_FRESH, _CURRENT, _OLD, _BACK)}
    servers = {name: boards(root) for name, root in roots.items()}
    members = [FleetBoard(remote(server, name=name)) for name, server in servers.items()]

    def device(name, command, *words):
        run = [sys.executable, "-m", "edgekit_device", command, "--root", str(roots[name]), *words]
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL)

    for name, had in {_CURRENT: (new,), _OLD: (old,), _BACK: (old, new)}.items():
        (roots[name] / "allowed_signers").write_text(line + "\n")
        for bundle in had:
            device(
                name,
                "install",
                "--app",
                "net",
                "--from",
                str(files[bundle.digest]),
                "--policy",
                '{"measure_s": 0.01}',
            )
    device(_BACK, "rollback", "--app", "net", "--reason", "too slow")
    # a board that nobody used: not even its folder is there
    shutil.rmtree(roots[_FRESH])

    export_ansible(
        tmp_path / "out",
        members,
        dict.fromkeys(roots, new),
        waves="100%",
        budget="50%",
        signers=[line],
    )
    # as AWX does it: the folder somewhere else, its inventory imported and handed over by a program
    folder = tmp_path / "project"
    shutil.move(tmp_path / "out", folder)
    listing = subprocess.run(
        [str(_BIN / "ansible-inventory"), "-i", "inventory.yml", "--list"],
        cwd=folder,
        capture_output=True,
        check=True,
        stdin=subprocess.DEVNULL,
    ).stdout
    imported = tmp_path / "runner" / "hosts"
    imported.parent.mkdir()
    imported.write_text(f"#!/bin/sh\ncat <<'END'\n{listing.decode()}\nEND\n")
    imported.chmod(0o755)
    awx = ("-i", str(imported))
    before = {name: _files(root) for name, root in roots.items()}

    status, predicted, text = play(folder, *awx, "deploy.yml", "--check")
    assert {name: _files(root) for name, root in roots.items()} == before
    words = _shown(text)
    assert status == 2
    assert any(f"would be updated to {new.digest[:12]} (now: nothing)" in w for w in words[_FRESH])
    assert any(f"(now: 000001-{old.digest[:12]})" in w for w in words[_OLD])
    assert "install.taken-back" in text
    assert "too slow" in text
    assert "edgekit_board_again=true" in text
    assert _CURRENT not in words
    status, done, text = play(folder, *awx, "deploy.yml")
    assert status == 2
    for name in roots:
        assert (predicted[name]["changed"] > 0) == (done[name]["changed"] > 0), name
        assert predicted[name]["failed"] == done[name]["failed"] == int(name == _BACK)
    # a second check predicts that a second run changes nothing
    _, predicted, _ = play(folder, *awx, "deploy.yml", "--check", "--limit", f"{_FRESH},{_OLD}")
    assert [row["changed"] for row in predicted.values()] == [0, 0]
    _, predicted, text = play(
        folder, *awx, "deploy.yml", "--check", "--limit", _BACK, "-e", "edgekit_board_again=true"
    )
    assert (predicted[_BACK]["changed"], predicted[_BACK]["failed"]) == (1, 0)

    # what serves, without -v; a board that is new again has nothing, and stays so
    shutil.rmtree(roots[_FRESH])
    status, recap, text = play(folder, *awx, "serving.yml")
    assert (status, {row["changed"] for row in recap.values()}) == (0, {0})
    assert _shown(text) == {
        _FRESH: ["net: nothing"],
        _CURRENT: [f"net: 000001-{new.digest[:12]} (the release of this folder)"],
        _OLD: [f"net: 000002-{new.digest[:12]} (the release of this folder)"],
        _BACK: [
            f"net: 000001-{old.digest[:12]} (not the release of this folder, {new.digest[:12]})"
        ],
    }
    assert not roots[_FRESH].exists()
    status, recap, text = play(folder, *awx, "rollback.yml", "--check")
    assert {name for name, row in recap.items() if row["changed"]} == {_CURRENT, _OLD}


def _files(root):
    return {str(path.relative_to(root)) for path in root.rglob("*")} if root.exists() else None


@pytest.fixture
def exported(tmp_path):
    bundle = hand_made()
    key = ensure_key(tmp_path / "key" / "id_ed25519")
    bundle = bundle.signed(sign(bundle.manifest_bytes, key))
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    rows = "".join(
        f"  - {{name: cam-{n}, host: h{n}.lan, host_key: 'SHA256:{'A' * 43}', key: k{n},"
        f" labels: {{site: a, 'rack/row': {n}}}}}\n"
        for n in range(3)
    )
    (tmp_path / "fleet.yaml").write_text(f"version: 1\nboards:\n{rows}")
    from edgekit.fleet.inventory import load_inventory

    members = load_inventory(tmp_path / "fleet.yaml")
    export_ansible(
        tmp_path / "out", members, {m.name: bundle for m in members}, canary=1, signers=[line]
    )
    return tmp_path / "out"


def test_ansible_lint_passes_on_the_whole_export(exported, tmp_path):
    lint = shutil.which("ansible-lint")
    if lint is None:
        pytest.skip("no ansible-lint here")
    done = subprocess.run(
        [lint, "--offline", "--nocolor", "--strict", str(exported)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(lint).parent}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_task_has_tags_and_nothing_depends_on_where_the_inventory_lies(exported):
    plays = {path.stem: yaml.safe_load(path.read_text()) for path in exported.glob("*.yml")}
    assert plays["rollback"][0]["tasks"][0]["tags"] == ["edgekit_rollback"]
    assert plays["serving"][0]["tasks"][0]["tags"] == ["edgekit_serving"]
    tasks = yaml.safe_load((exported / "roles/edgekit_board/tasks/main.yml").read_text())
    assert {tag for task in tasks for tag in task["tags"]} == {
        "always",
        "edgekit_loader",
        "edgekit_trust",
        "edgekit_copy",
        "edgekit_install",
    }
    text = "".join(path.read_text() for path in exported.rglob("*.yml"))
    assert "inventory_dir" not in text
    assert json.loads((next(exported.glob("bundles/net/*/offer.json"))).read_text())["signature"]
    # the linter's own rule of indentation, which PyYAML's default breaks
    assert "  tasks:\n    - name:" in (exported / "deploy.yml").read_text()
