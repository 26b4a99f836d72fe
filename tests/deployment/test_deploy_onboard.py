"""The program that places the loader, and how a board's answers are read."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.deployment.answers import explain_clocks, read_answer
from edgekit.deployment.loader import ENSURE
from edgekit.deployment.transport import Completed, LocalTransport
from edgekit.errors import BoardError, BundleError
from edgekit_device.benchmark.settings import BenchSettings


def loader(number: int = 0) -> bytes:
    """A loader whose agent ends at once."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("edgekit_device/agent.py", "def main(): pass")
        archive.writestr("edgekit_device/__init__.py", f"# {number}")
    return file.getvalue()


LOADER = loader()


def place(
    root: Path, data: bytes, sent: bytes | None = None, program: str = ENSURE
) -> dict[str, Any]:
    """Places ``data`` as the loader; what the board answers."""
    digest = hashlib.sha256(data).hexdigest()
    name = f"edgekit_device-{digest[:16]}.pyz"
    packed = zlib.compress(data) if sent is None else sent
    argv = [sys.executable, "-c", program, str(root), name, digest]
    done = LocalTransport().run(argv, stdin=[b"%012d" % len(packed), packed])
    lacks = json.dumps({"lacks": name}).encode() + b"\n"
    return read_answer(replace(done, out=done.out.removeprefix(lacks)), "lab", "python3")


def test_program_survives_any_shell() -> None:
    assert "\\" not in ENSURE


def test_loader_is_placed_once_under_its_digest(tmp_path: Path) -> None:
    first = place(tmp_path, LOADER)
    assert Path(first["path"]).read_bytes() == LOADER
    assert (tmp_path / "bin/edgekit_device.pyz").read_bytes() == LOADER
    before = os.stat(first["path"]).st_ino
    assert place(tmp_path, LOADER, sent=b"") == first
    assert os.stat(first["path"]).st_ino == before


@pytest.mark.parametrize(
    "sent", [b"", LOADER, zlib.compress(loader(1)), zlib.compress(LOADER)[:-7]]
)
def test_damaged_loader_is_never_put_in_place(tmp_path: Path, sent: bytes) -> None:
    with pytest.raises(BoardError) as caught:
        place(tmp_path, LOADER, sent)
    assert caught.value.code == "board.transfer"
    assert list((tmp_path).glob("bin/*")) == []


def test_altered_loader_is_replaced(tmp_path: Path) -> None:
    path = Path(place(tmp_path, LOADER)["path"])
    path.write_bytes(b"# tampered")
    place(tmp_path, LOADER)
    assert path.read_bytes() == LOADER


def test_old_loaders_and_leftovers_go(tmp_path: Path) -> None:
    for number in range(5):
        path = Path(place(tmp_path, loader(number))["path"])
        os.utime(path, (number, number))
    stale = path.with_name(".edgekit_device.1.tmp")
    stale.write_bytes(b"half")
    os.utime(stale, (0, 0))
    newest = loader(9)
    place(tmp_path, newest)
    names = {file.name for file in (tmp_path / "bin").iterdir()}
    assert stale.name not in names
    assert len(names) == 5  # three loaders, the link and what is unpacked
    assert unpacked(tmp_path) == names - {"edgekit_device.pyz", "run"}
    assert (tmp_path / "bin/edgekit_device.pyz").read_bytes() == newest


def unpacked(root: Path) -> set[str]:
    return {file.name for file in root.glob("bin/run/*/*")}


def test_loader_is_unpacked_once_a_boot_and_keeps_its_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    placed = Path(place(tmp_path, LOADER)["path"])
    (code,) = tmp_path.glob(f"bin/run/*/{placed.name}/edgekit_device/agent.py")
    before = os.stat(code).st_ino
    assert list(code.parent.glob("__pycache__/agent.*.pyc"))
    last_boot = code.parents[2].with_name("last boot")
    (last_boot / placed.name).mkdir(parents=True)
    place(tmp_path, LOADER)
    assert os.stat(code).st_ino == before
    place(tmp_path, loader(1))
    assert not last_boot.exists()
    assert len(unpacked(tmp_path)) == 2


def test_unpacked_loader_stays_while_a_process_runs_it(tmp_path: Path) -> None:
    placed = Path(place(tmp_path, LOADER)["path"])
    runs = [sys.executable, "-c", "input()", placed.name]
    with subprocess.Popen(runs, stdin=subprocess.PIPE) as process:
        placed.unlink()
        place(tmp_path, loader(1))
        assert placed.name in unpacked(tmp_path)
        process.communicate(b"\n")
    place(tmp_path, loader(2))
    assert placed.name not in unpacked(tmp_path)


def test_what_another_host_is_unpacking_is_left_to_it(tmp_path: Path) -> None:
    placed = Path(place(tmp_path, LOADER)["path"])
    (goal,) = tmp_path.glob(f"bin/run/*/{placed.name}")
    with subprocess.Popen(["true"]) as ended:
        pass
    begun = {who: goal.with_name(f"{placed.name}.{who}.tmp") for who in (os.getpid(), 1, ended.pid)}
    for folder in begun.values():
        folder.mkdir()
    os.utime(begun[1], (0, 0))  # of a process whose number another one has by now
    place(tmp_path, loader(1))
    assert [who for who, folder in begun.items() if folder.exists()] == [os.getpid()]


@pytest.mark.parametrize("fails", ["boot_id", "agent.py"])
def test_loader_that_cannot_be_unpacked_runs_as_it_is(tmp_path: Path, fails: str) -> None:
    refuse = (
        "import builtins, io; real = open\n"
        "def refusing(path, *more, **named):\n"
        f"    if {fails!r} in str(path): raise OSError(28, 'full')\n"
        "    return real(path, *more, **named)\n"
        "builtins.open = io.open = refusing\n"
    )
    place(tmp_path, LOADER, program=f"{refuse}exec({ENSURE!r})")
    assert unpacked(tmp_path) == set()


def test_what_others_remove_or_rename_meanwhile_is_no_failure(tmp_path: Path) -> None:
    for number in range(4):
        path = Path(place(tmp_path, loader(number))["path"])
        os.utime(path, (number, number))
    folder = path.parent
    (folder / "a folder.tmp").mkdir()
    (folder / "half.tmp").write_bytes(b"half")
    os.utime(folder / "half.tmp", (0, 0))
    (folder / "link.tmp").symlink_to("nowhere")
    # each file that is to go has gone already
    others = "import os; real = os.unlink; os.unlink = lambda path: (real(path), real(path)); "
    place(tmp_path, loader(9), program=f"{others}exec({ENSURE!r})")
    assert {entry.name for entry in folder.glob("*.tmp")} == {"a folder.tmp", "link.tmp"}


def test_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoardError) as caught:
        place(tmp_path / "file" / "root", LOADER)
    assert caught.value.code == "board.filesystem"
    assert "lab" in caught.value.where


def _refused(code: str) -> bytes:
    error = {"code": code, "message": "no", "where": "", "hint": ""}
    return json.dumps({"error": error}).encode()


def answer(status: int, out: bytes, err: bytes = b"") -> dict[str, Any]:
    return read_answer(Completed(status, out, err), "lab", "python3")


def test_chatty_login_shell_is_passed_over() -> None:
    assert answer(0, b'Welcome!\n{"a": 1}\n') == {"a": 1}


@pytest.mark.parametrize("settings", [{"lock_clocks": True}, {"power_mode": "MAXN"}, {}])
def test_a_bench_that_is_cut_off_says_what_may_still_be_set(settings: dict[str, Any]) -> None:
    held = BenchSettings(**settings)
    with pytest.raises(BoardError) as killed, explain_clocks(held, "lab"):
        answer(137, b"")
    assert "dmesg" in killed.value.hint
    assert ("`edgekit status lab` restores them" in killed.value.hint) is bool(settings)
    with pytest.raises(KeyboardInterrupt) as stopped, explain_clocks(held, "lab"):
        raise KeyboardInterrupt
    assert ("restores power mode and clocks" in str(stopped.value)) is bool(settings)
    with pytest.raises(BoardError) as refused, explain_clocks(held, "lab"):
        answer(4, _refused("power.mode"))
    assert "restores them" not in refused.value.hint


@pytest.mark.parametrize(
    ("status", "out", "kind", "code"),
    [
        (0, b"Welcome!\n", BoardError, "board.protocol"),
        (0, b"[1]\n", BoardError, "board.protocol"),
        (127, b"", BoardError, "board.no-python"),
        (1, b"", BoardError, "board.loader-failed"),
        (137, b"", BoardError, "board.killed"),
        (4, b"not json", BoardError, "board.loader-failed"),
        (4, _refused("x.y"), BoardError, "x.y"),
        (4, _refused("bundle.no"), BundleError, "bundle.no"),
        (4, b'{"error": {"code": "x.y"}}', BoardError, "board.loader-failed"),
    ],
)
def test_failures_become_errors(status: int, out: bytes, kind: type, code: str) -> None:
    with pytest.raises(BoardError) as caught:
        answer(status, out)
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.exit_code) == (code, 4)
