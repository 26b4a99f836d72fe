"""Compiled modules are kept beside a loader that a host has placed, and believed only if sound."""

from __future__ import annotations

import ast
import json
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.bundles.files import build_zipapp
from edgekit_device import bytecode
from tests.edgekit_device.test_device_commands import PYTHON38

PYTHONS = [sys.executable, pytest.param(PYTHON38, marks=pytest.mark.skipif(
    PYTHON38 is None, reason="no python3.8 on the path"))]  # fmt: skip

HELLO = "board.identity"


@pytest.fixture
def placed(tmp_path: Path) -> Path:
    """A loader where a host puts it."""
    digest = build_zipapp(tmp_path / "made.pyz")
    path = tmp_path / "root" / "bin" / f"edgekit_device-{digest[:16]}.pyz"
    path.parent.mkdir(parents=True, mode=0o700)
    shutil.copyfile(tmp_path / "made.pyz", path)
    return path


def hello(loader: Path, python: str = sys.executable, *options: str) -> dict[str, object]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    argv = [python, *options, str(loader), "hello", f"--root={loader.parent.parent}"]
    done = subprocess.run(argv, env=environment, capture_output=True, check=True)
    assert done.stderr == b""
    answer: dict[str, object] = json.loads(done.stdout)
    return {name: value for name, value in answer.items() if not name.endswith("_bytes")}


def retained(loader: Path) -> dict[str, Path]:
    """What is kept, by module."""
    files = (loader.parent / "__pycache__").glob("*")
    return {file.name.split(".", 1)[1].rsplit(".cpython-", 1)[0]: file for file in files}


@pytest.mark.parametrize("python", PYTHONS)
def test_modules_are_compiled_once(placed: Path, python: str) -> None:
    first = hello(placed, python)
    files = retained(placed)
    assert {"__main__", "commands", "board", HELLO} <= set(files)
    assert "store.transfer" not in files
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o600}
    assert (placed.parent / "__pycache__").stat().st_mode & 0o777 == 0o700
    before = {file: file.stat().st_ino for file in files.values()}
    assert hello(placed, python) == first
    assert {file: file.stat().st_ino for file in retained(placed).values()} == before


def _answering(file: Path) -> None:
    """Keeps another module in the place of ``hello``'s."""
    source = file.with_name("x.source.py")
    source.write_text("def do_hello(*given): return {'from': 'kept'}")
    os.utime(source, (0, 0))
    data = Path(str(py_compile.compile(str(source), str(source) + "c"))).read_bytes()
    file.unlink()
    bytecode._write(str(file), data)


def test_modules_of_one_name_do_not_clash(placed: Path) -> None:
    names = ["edgekit_device." + name for name in ("release", "serve", "jobs")]
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import importlib;"
        "from edgekit_device.bytecode import keep_bytecode; keep_bytecode();"
        "made = [importlib.import_module(name + '.commands') for name in sys.argv[2:]];"
        "print([(one.__name__, one.__package__, one.__file__) for one in made])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(2):
        argv = [sys.executable, "-I", "-c", program, str(placed), *names]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        assert ast.literal_eval(done.stdout) == [
            (f"{name}.commands", name, f"{placed}/{name.replace('.', '/')}/commands.py")
            for name in names
        ]
        assert {"release", "release.commands", "serve.commands", "jobs.commands"} <= set(
            retained(placed)
        )


def test_what_is_retained_is_what_runs(placed: Path) -> None:
    hello(placed)
    _answering(retained(placed)[HELLO])
    assert hello(placed) == {"from": "kept"}


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _others_write(file: Path) -> None:
    _answering(file)
    file.chmod(0o620)


def _link(file: Path) -> None:
    other = file.with_name("x.other.pyc")
    _answering(file)
    file.rename(other)
    file.symlink_to(other)


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def _of_another_module(file: Path) -> None:
    """Whole, and this account's: only its place is wrong."""
    other = file.with_name(file.name.replace(HELLO, "board.monitor"))
    file.rename(other)
    _answering(other)
    other.rename(file)


def _of_another_loader(file: Path) -> None:
    other = file.with_name("edgekit_device-0123456789abcdef" + file.name[31:])
    assert len(other.name) == len(file.name)
    file.rename(other)
    _answering(other)
    other.rename(file)


@pytest.mark.parametrize("damage", [
    _flip, _others_write, _link, _pipe, _of_another_module, _of_another_loader,
    lambda file: file.write_bytes(b""),
    lambda file: file.write_bytes(file.read_bytes()[:-1]),
])  # fmt: skip
def test_what_is_not_sound_is_compiled_again(
    placed: Path, damage: Callable[[Path], object]
) -> None:
    first = hello(placed)
    file = retained(placed)[HELLO]
    right = file.read_bytes()
    damage(file)
    assert hello(placed) == first
    file = retained(placed)[HELLO]
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (right, 0o600)
    assert not file.is_symlink()


def test_nothing_is_retained_where_python_is_to_keep_nothing(placed: Path) -> None:
    hello(placed, sys.executable, "-B")
    assert not (placed.parent / "__pycache__").exists()


@pytest.mark.parametrize("name", ["bin/edgekit_device.pyz", "else/edgekit_device-{}.pyz"])
def test_a_loader_that_may_change_keeps_nothing(placed: Path, name: str) -> None:
    digest = placed.stem.partition("-")[2]
    other = placed.parents[1] / name.format(digest)
    other.parent.mkdir(exist_ok=True)
    placed.rename(other)
    assert hello(other)["version"]
    assert not (other.parent / "__pycache__").exists()


def test_what_was_compiled_by_another_python_is_compiled_again(
    placed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hello(placed)
    monkeypatch.setattr(bytecode, "MAGIC_NUMBER", b"else")
    _answering(retained(placed)[HELLO])
    assert hello(placed) == first


def _is_a_link(folder: Path) -> None:
    folder.rename(folder.with_name("other"))
    folder.symlink_to("other")


@pytest.mark.parametrize("damage", [_is_a_link, lambda folder: folder.chmod(0o777)])
def test_a_folder_that_others_may_have_filled_is_not_believed(
    placed: Path, damage: Callable[[Path], object]
) -> None:
    first = hello(placed)
    _answering(retained(placed)[HELLO])
    folder = placed.parent / "__pycache__"
    damage(folder)
    assert hello(placed) == first
    assert (folder.lstat().st_mode & 0o777, folder.is_symlink()) == (0o700, False)
    assert hello(placed) == first


def test_a_file_in_the_folders_place_gives_way(placed: Path) -> None:
    (placed.parent / "__pycache__").write_text("not a folder")
    assert hello(placed)["version"]
    assert HELLO in retained(placed)


def test_what_cannot_be_retained_costs_only_time(placed: Path) -> None:
    first = hello(placed)
    file = retained(placed)[HELLO]
    file.unlink()
    (file / "in the way").mkdir(parents=True)
    assert hello(placed) == first
    assert file.is_dir()
