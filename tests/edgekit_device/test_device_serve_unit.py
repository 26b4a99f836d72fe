"""The systemd unit: systemd takes it, and reads back the very words that were meant."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.serve.commands import quoted, unit_name, unit_text
from edgekit_device.store.root import Root
from tests.edgekit_device.device_board import BoardFolder, Refused

_ODD = "a b%h$HOME${X}\"q'\\n"


def _field(text: str, name: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith(name + "="))
    return line[len(name) + 1 :]


def _as_systemd_reads(text: str) -> list[str]:
    """systemd's quoting is near a shell's without variables; then ``%%`` and ``$$``."""
    assert not re.search(r"(?<![$])[$](?:[$][$])*(?![$])", text)
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(text)]


def test_odd_paths_are_read_back_as_they_are(tmp_path: Path) -> None:
    root = Root(tmp_path / _ODD)
    text = unit_text(
        root.app("net.v1"), ["/usr/bin/python3", "/x/serve.pyz"], ["--queue", "9"], True
    )
    assert _as_systemd_reads(_field(text, "ExecStart")) == [
        "/usr/bin/python3", "/x/serve.pyz", "serve", "--root", str(root.folder),
        "--app", "net.v1", "--queue", "9",
    ]  # fmt: skip
    (path,) = shlex.split(_field(text, "ReadWritePaths"))
    assert path.replace("%%", "%") == str(root.folder)
    assert _field(text, "UMask") == "0077"
    assert _field(text, "User")
    for word in ("a\nb", "a\x00b", "\x7f"):
        with pytest.raises(DeviceError) as caught:
            quoted(word)
        assert caught.value.code == "serve.unit"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("system", [True, False])
def test_systemd_verifies_the_unit(tmp_path: Path, system: bool) -> None:
    app = Root(tmp_path / _ODD).app("net")
    app.folder.mkdir(parents=True)
    file = tmp_path / unit_name(app)
    file.write_text(unit_text(app, ["/bin/sh", str(app.folder / "serve.pyz")], [], system))
    argv = ["systemd-analyze", "verify", "--man=no", *([] if system else ["--user"]), str(file)]
    env = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert unit_name(app) not in done.stderr
    file.write_text(file.read_text().replace("WatchdogSec=30", "WatchdogSec=often"))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert "often" in done.stderr  # it does read what it is given


def test_nothing_is_installed_unless_requested(
    board: BoardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for option in ("--print", "--install"):
        with pytest.raises(Refused) as caught:
            board.command("serve-unit", "--app", "toy", option)
        assert caught.value.code == "release.none"
    (board.root / "apps/toy").mkdir(parents=True)
    answer = board.command("serve-unit", "--app", "toy")
    assert answer["installed"] is False
    assert str(board.root / "apps/toy/serve.pyz") in answer["text"]
    assert not (tmp_path / "config").exists()
    assert board.command("serve-unit", "--app", "toy", "--remove")["installed"] is False
    assert not (tmp_path / "config").exists()


def _systemctl(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "systemctl").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "systemctl").chmod(0o755)


def test_what_systemd_does_not_take_is_taken_back_and_goes_whatever_it_says(
    board: BoardFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    folder = tmp_path / "config/systemd/user"
    unit, wants = folder / "edgekit-toy.service", folder / "default.target.wants"
    (board.root / "apps/toy").mkdir(parents=True)
    ask = ("serve-unit", "--app", "toy")
    no_bus = "echo Failed to connect to bus >&2; exit 1"

    _systemctl(tmp_path / "bin", no_bus)
    with pytest.raises(Refused, match="connect to bus"):
        board.command(*ask, "--install")
    assert not unit.exists()
    _systemctl(tmp_path / "bin", "exit 0")
    assert board.command(*ask, "--install", "--workers", "3")["installed"] is True
    before = unit.read_bytes()
    wants.mkdir()
    (wants / unit.name).symlink_to(unit)
    _systemctl(tmp_path / "bin", no_bus)
    with pytest.raises(Refused):  # one that was there stays as it was
        board.command(*ask, "--install")
    assert unit.read_bytes() == before
    answer = board.command(*ask, "--remove")
    assert answer["installed"] is False
    assert any("connect to bus" in note for note in answer["notes"])
    assert [path.name for path in folder.rglob("*")] == [wants.name]
