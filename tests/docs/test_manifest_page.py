"""The commands of docs/manifest.md make what the page describes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.cli.main import app
from edgekit_device.protocol.manifest import parse
from tests.pipeline.nets import small_config

PAGE = (Path(__file__).parents[2] / "docs" / "manifest.md").read_text(encoding="utf-8")


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    pack, unpack = map(shlex.split, block.splitlines())
    text = small_config(tmp_path).read_text() + "build: {backend: reference}\n"
    (tmp_path / "app.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert pack[0] == "edgekit"
    assert app([*pack[1:], "-q"]) == 0
    assert unpack[0] == "python3"
    subprocess.run([sys.executable, *unpack[1:]], check=True)
    files = [
        path.relative_to("app").as_posix() for path in Path("app").rglob("*") if path.is_file()
    ]
    named = re.findall(r"^\| `([\w./]+)", PAGE.partition("## Example")[0], re.M)
    assert {name.split("/")[0] for name in files} == {name.split("/")[0] for name in named}
    manifest = parse(Path("app/manifest.json").read_bytes())
    assert {f"blobs/{digest}" for digest in manifest.blobs} <= set(files)
