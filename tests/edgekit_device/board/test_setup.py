"""``setup`` with a sudo and a visudo that only take notes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edgekit_device.board.power_tools import NvpmodelMode, read_modes
from edgekit_device.board.setup import SUDOERS, Account, setup, sudoers_text
from edgekit_device.protocol.codec import write
from tests.edgekit_device.board.test_probe import put

ADA = Account("ada", False, ["ada", "video", "render"])
CONF = "< POWER_MODEL ID=0 NAME=MAXN >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=2 NAME=MODE_30W >\n"


@pytest.fixture
def system(tmp_path: Path) -> Path:
    root = tmp_path / "system"
    put(root, "etc/nvpmodel.conf", CONF)
    for name in ("usr/sbin/nvpmodel", "usr/bin/jetson_clocks", "usr/bin/tegrastats", "usr/bin/cat"):
        put(root, name)
    return root


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sudo that writes down what it is asked; it fails at the word in the file "fails"."""
    record = tmp_path / "asked"
    script = (
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{record}"\n'
        f'if [ -e "{tmp_path}/password" ]; then\n'
        'echo "sudo: a password is required" >&2; exit 1; fi\n'
        f'case "$*" in *"$(cat "{tmp_path}/fails" 2>/dev/null || echo nothing)"*) '
        'echo "syntax error near line 1" >&2; exit 1;; esac\n'
    )
    path = put(tmp_path / "bin", "sudo", script)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return record


def test_the_file_names_exact_commands(system: Path) -> None:
    assert read_modes(system) == [NvpmodelMode(0, "MAXN"), NvpmodelMode(2, "MODE_30W")]
    lines = sudoers_text("ada", system).splitlines()
    assert lines[0].startswith("#")
    assert all(line.startswith("ada ALL=(root) NOPASSWD: /usr/") for line in lines[1:])
    assert "ada ALL=(root) NOPASSWD: /usr/sbin/nvpmodel -m 2" in lines
    assert 'ada ALL=(root) NOPASSWD: /usr/bin/jetson_clocks ""' in lines
    # what root writes from a file must be no file that the account can write
    stored = [line.split()[-1] for line in lines if "--store" in line or "--restore" in line]
    assert stored == ["/run/edgekit.clocks"] * 2
    # a pattern, or a command with arguments left open, would allow more than it says
    assert not set("*?[!") & set("".join(lines[1:]))
    assert all(len(line.split(": ")[1].split()) > 1 for line in lines[1:])


def test_showing_changes_nothing(system: Path, sudo: Path, tmp_path: Path) -> None:
    answer = write(setup(tmp_path / "root", ADA, system=system))
    assert answer["state"] == "shown"
    assert answer["sudoers"] in answer["text"]
    assert "visudo -c" in answer["text"]
    assert not sudo.exists()
    assert not (tmp_path / "root").exists()


def test_it_is_checked_then_moved_into_place_once(system: Path, sudo: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert setup(root, ADA, apply=True, system=system).state == "applied"
    requested = sudo.read_text().splitlines()
    assert [line.split()[1] for line in requested] == ["visudo", "install"]
    assert requested[1].endswith(f"{root}/edgekit.sudoers {SUDOERS}")
    assert (root / "edgekit.sudoers").read_text() == sudoers_text("ada", system)
    assert setup(root, ADA, apply=True, system=system).state == "unneeded"
    assert sudo.read_text().splitlines() == requested
    assert setup(root, ADA, undo=True, apply=True, system=system).state == "undone"
    assert sudo.read_text().splitlines()[2:] == [f"-n rm -f {SUDOERS}"]
    assert setup(root, ADA, undo=True, apply=True, system=system).state == "unneeded"


def test_groups_are_added_and_only_those_taken_back(
    system: Path, sudo: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    ada = Account("ada", False, ["render"])  # "video" is on every Debian
    answer = write(setup(root, ada, apply=True, system=system))
    assert (answer["state"], answer["groups"]) == ("applied", ["video"])
    assert "-n usermod -aG video ada" in sudo.read_text().splitlines()
    setup(root, ADA, undo=True, apply=True, system=system)
    assert sudo.read_text().splitlines()[-1] == "-n gpasswd -d ada video"


def test_a_file_that_visudo_refuses_goes_nowhere(system: Path, sudo: Path, tmp_path: Path) -> None:
    (tmp_path / "fails").write_text("visudo")
    answer = write(setup(tmp_path / "root", ADA, apply=True, system=system))
    assert answer["state"] == "failed"
    assert "syntax error" in answer["text"]
    assert "install" not in sudo.read_text()
    assert not (tmp_path / "root/setup.json").exists()


def test_a_password_is_never_requested(system: Path, sudo: Path, tmp_path: Path) -> None:
    (tmp_path / "password").touch()
    answer = write(setup(tmp_path / "root", ADA, apply=True, system=system))
    assert answer["state"] == "by-hand"
    script = Path(answer["script"]).read_text()
    assert script.index("visudo -c") < script.index("install -m 0440")
    assert f"sudo sh {answer['script']}" in answer["text"]
    assert not (tmp_path / "root/setup.json").exists()


def test_root_needs_nothing(system: Path, sudo: Path, tmp_path: Path) -> None:
    root = Account("root", True, ["root"])
    assert setup(tmp_path / "root", root, apply=True, system=system).state == "unneeded"
    assert not sudo.exists()
    json.dumps(write(setup(tmp_path / "root", root, system=system)))
