"""An account without a home folder and without a name, as a container has: one clear error."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.cli.main import main
from edgekit_device.__main__ import main as loader
from tests.security.test_terminal import network

TARGET = ["-t", "jetson-agx-orin-64gb"]
COMMANDS = (
    ["check", "m.onnx", *TARGET],
    ["plan", "m.onnx", *TARGET],
    ["run", "c.yaml"],
    ["deploy", "c.yaml"],
    ["status", "c.yaml"],
    ["history"],
    ["doctor"],
    ["status", "lab@127.0.0.1:9"],
)


_WITHOUT_HOME = """
import pwd, sys

def none(*_):
    raise KeyError("no entry")

pwd.getpwuid = pwd.getpwnam = none
from edgekit.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise KeyError("no entry")

    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", none)
    monkeypatch.setattr(pwd, "getpwnam", none)
    monkeypatch.chdir(tmp_path)
    network(tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text(
        "version: 1\nname: net\ntarget: jetson-agx-orin-64gb\nmodel: {onnx: m.onnx}\n"
    )


def _run(words: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


@pytest.mark.few(4)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_a_command_without_a_home_says_so(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEKIT_CACHE")
    # in a process of its own: this one has read the files of knowledge already
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_HOME, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "this account has no home folder" in done.stderr
    assert "set HOME to a folder" in done.stderr


def test_home_is_all_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The account still has no name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _run(["check", "m.onnx", *TARGET, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"]
    assert _run(["status", "c.yaml"]) == 0


@pytest.mark.parametrize("command", ["probe", "status", "serve-status"])
def test_a_loader_without_a_home_says_so(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.delenv("EDGEKIT_ROOT", raising=False)
    words = [command, *(["--app", "net"] if command == "serve-status" else [])]
    umask = os.umask(0o077)
    try:
        assert loader(words) == 4
        assert json.loads(capsysbinary.readouterr().out)["error"]["code"] == "root.no-home"
        assert loader([*words, "--root", str(tmp_path / "root")]) == 0
    finally:
        os.umask(umask)
