"""The commands of docs/signing.md run as they stand, on a real board."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.cli import _main
from tests.boards.fixtures import StartBoard, boards, home
from tests.security.security_keys import make_signer

__all__ = ["boards", "home"]

PAGE = Path(__file__).parents[2] / "docs" / "signing.md"


def lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.boards
def test_every_command(
    boards: StartBoard,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    board = boards().board
    (home / ".ssh/config").write_text(
        f"Host lab\n  HostName {board.host}\n  Port {board.port}\n  User {board.user}\n"
        f"  IdentityFile {board.key}\n"
    )
    keys = {name: make_signer(tmp_path, name) for name in ("ci", "new", "guest", "stolen")}
    (tmp_path / "allowed_signers").write_text(f"# ours\n{keys['new'].line}\n")
    (tmp_path / "revoked_keys").write_text(keys["ci"].words + "\n")
    monkeypatch.chdir(tmp_path)
    said = {}
    options = ["--root", str(tmp_path / "root"), "--python", board.python, "--accept-host-key"]
    for line in lines():
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        with pytest.raises(SystemExit) as caught:
            _main.main([*arguments, *options])
        found = capsys.readouterr()
        assert caught.value.code == 0, (line, found.err)
        said[line] = found.out
    told = list(said.values())
    assert "nobody may sign" in told[0]
    assert "ci@example.com" in told[1]
    document = json.loads(told[-1])["boards"][0]
    assert document["signers"] == ["new", "guest"]
    assert set(document["revocations"]["fingerprints"]) == {
        keys["ci"].fingerprint, keys["stolen"].fingerprint,
    }  # fmt: skip
