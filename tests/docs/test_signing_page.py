"""The commands of docs/signing.md run as they stand, on a real board."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from edgekit.bundles.files import read
from edgekit.cli import main
from tests.boards.fixtures import StartBoard, boards, home
from tests.bundles.bundle_toys import document_of
from tests.pipeline.nets import small_net
from tests.security.security_keys import make_signer

__all__ = ["boards", "home"]

PAGE = Path(__file__).parents[2] / "docs" / "signing.md"


def lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.whole
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
            main.main([*arguments, *options])
        found = capsys.readouterr()
        assert caught.value.code == 0, (line, found.err)
        said[line] = found.out
    reported = list(said.values())
    assert "no key is trusted" in reported[0]
    assert "ci@example.com" in reported[1]
    document = json.loads(reported[-1])["boards"][0]
    assert document["signers"] == ["new", "guest"]
    assert set(document["revocations"]["fingerprints"]) == {
        keys["ci"].fingerprint,
        keys["stolen"].fingerprint,
    }


def test_a_bundle_with_a_counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text(encoding="utf-8")
    line = re.search(r"```console\n\$ edgekit (bundle .*)\n", text)
    assert line is not None
    small_net(tmp_path / "model.onnx")
    (tmp_path / "app.yaml").write_text(
        "version: 1\nname: app\nmodel: {onnx: model.onnx}\ntarget: jetson-agx-orin-64gb\n"
        "calibration: {count: 8}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    with pytest.raises(SystemExit) as caught:
        main.main([*shlex.split(line[1]), "-q"])
    assert caught.value.code == 0
    assert document_of(read(tmp_path / "app.ekb"))["issued"] == {
        "at": "2026-01-01T00:00:00Z",
        "counter": 42,
        "valid_until": "2099-12-31T23:59:59Z",
    }
    with pytest.raises(SystemExit) as caught:
        main.main(["bundle", "app.yaml", "--valid-until", "2099-02-31"])
    assert caught.value.code == 2
