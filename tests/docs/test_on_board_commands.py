"""Every command of the docs that is run on a board runs there: through the documented path.

The board is a folder with nothing of edgekit but what a deployment places in it, and a Python that
does not find edgekit.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundles.files import build_zipapp, write
from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.deployment.loader import ENSURE
from tests.boards.toy_jobs import until
from tests.bundles.bundle_toys import toy_bundle
from tests.processes import processes

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
LOADER = "~/.edgekit/bin/edgekit_device.pyz"
# what the docs call the application and its bundle
WORDS = {
    "NAME": "toy",
    "APP": "toy",
    "resnet50": "toy",
    "/media/usb/resnet50.ekb": "~/toy.ekb",
    "~/.edgekit/apps/resnet50": "~/.edgekit/apps/toy",
}


def _documented() -> set[str]:
    """Every command line of a page, in a block or within a sentence; synopses as their commands."""
    found = set()
    for page in PAGES:
        text = page.read_text()
        for line in re.findall(rf"python3 {re.escape(LOADER)} ([^`\n]+)", text):
            found.add(line.partition("#")[0].strip())
        for line in re.findall(r"^edgekit_device ([a-z-]+ .+)$", text, re.M):
            found.add(line)
    return found


class _OnBoard:
    """An account of a board: its home, its Python, and what its shell has in PATH."""

    def __init__(self, home: Path) -> None:
        self.home, self.root = home, home / ".edgekit"
        programs, packages = home / "bin", home / "packages"
        for folder in (programs, packages):
            folder.mkdir(parents=True)
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if "edgekit" not in entry.name and entry.suffix != ".pth":
                (packages / entry.name).symlink_to(entry)
        python = os.path.realpath(sys.executable)
        (programs / "python3").symlink_to(python)
        keep = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        self.environment = {
            **keep,
            "HOME": str(home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(packages),
        }

    def place(self, folder: Path) -> None:
        """Places the loader as a deployment does."""
        digest = build_zipapp(folder / "new.pyz")
        data = zlib.compress((folder / "new.pyz").read_bytes(), 1)
        name = f"edgekit_device-{digest[:16]}.pyz"
        argv = ["python3", "-c", ENSURE, "~/.edgekit", name, digest]
        done = self._run(argv, b"%012d" % len(data) + data)
        assert done.returncode == 0, done.stderr

    def command(self, line: str) -> list[str]:
        words = [WORDS.get(word, word) for word in shlex.split(line)]
        return [
            os.path.join(self.home, word[2:]) if word[:2] == "~/" else word
            for word in ["python3", LOADER, *words]
        ]

    def run(self, line: str, stdin: bytes = b"") -> dict[str, Any]:
        done = self._run(self.command(line), stdin)
        assert done.returncode == 0, f"{line}: {done.stdout.decode()} {done.stderr.decode()}"
        assert done.stderr == b""
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def start(self, line: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(line), cwd=self.home, env=self.environment, stdout=subprocess.DEVNULL
        )

    def python(self, code: str) -> subprocess.CompletedProcess[bytes]:
        return self._run(["python3", "-c", code], b"")

    def _run(self, argv: list[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            check=False,
            cwd=self.home,
            env=self.environment,
            timeout=300,
        )


@pytest.fixture
def board(tmp_path: Path) -> Iterator[_OnBoard]:
    board = _OnBoard(tmp_path / "home")
    board.place(tmp_path)
    key = ensure_key(tmp_path / "id_ed25519")
    line = allowed_signers_line(key.with_name("id_ed25519.pub"), "tests")
    board.run("trust", json.dumps({"lines": [line]}).encode())
    yield board
    for pid in processes(board.root):
        os.kill(pid, signal.SIGKILL)


def _copy(board: _OnBoard, seed: int, folder: Path) -> Bundle:
    bundle = toy_bundle(seed)
    bundle = bundle.signed(sign(bundle.manifest_bytes, folder / "id_ed25519"))
    write(bundle, board.home / "toy.ekb", stripped=False)
    return bundle


@pytest.mark.whole
def test_every_documented_command_runs_through_the_documented_path(
    board: _OnBoard, tmp_path: Path
) -> None:
    assert os.readlink(board.root / "bin/edgekit_device.pyz").startswith("edgekit_device-")
    assert b"No module named 'edgekit'" in board.python("import edgekit").stderr
    done = set()

    def run(line: str) -> dict[str, Any]:
        done.add(line)
        return board.run(line)

    link = board.root / "bin/edgekit_device.pyz"
    assert run("hello")["loader"] == hashlib.sha256(link.read_bytes()).hexdigest()
    first = _copy(board, 0, tmp_path)
    install = "install --from /media/usb/resnet50.ekb --app resnet50"
    assert run(install)["changed"]
    assert not run(install)["changed"]
    status = run("status --app resnet50")["apps"]["toy"]
    assert status["deployment"]["digest"] == first.digest
    assert run("releases --app resnet50")["apps"]["toy"]["current"] == status["current"]
    assert run("selftest --app resnet50")["ok"]
    for source in ("/media/usb/resnet50.ekb", "~/.edgekit/apps/resnet50"):
        needed = run(f"memory --from {source}")
        assert needed["total"] == needed["engines"] + sum(needed["contexts"].values())

    synopsis = (
        "serve --app NAME [--background] [--socket PATH] [--workers N] [--queue N] "
        "[--timeout-s S] [--threads N]"
    )
    done.add(synopsis)
    options = "--background --workers 1 --queue 4 --timeout-s 60 --threads 1"
    assert board.run(f"serve --app NAME {options}")["serving"]["release"] == status["current"]
    done.add("serve-status --app NAME [--reload]")
    assert board.run("serve-status --app NAME --reload")["serving"]["last_error"] is None
    code = f"""
import sys; sys.path.insert(0, {str(link)!r})
import edgekit_device, numpy
with edgekit_device.connect("~/.edgekit/apps/toy") as client:
    print(client({{"x": numpy.zeros((1, 3, 8, 8), "float32")}})["y"].shape)
"""
    assert board.python(code).stdout.split() == [b"(1,", b"10)"]
    done.add("serve-stop --app NAME")
    assert board.run("serve-stop --app NAME")["stopped"]

    # a deployment that is cut off is carried on, and taken back while it soaks
    second = _copy(board, 1, tmp_path)
    policy = shlex.quote(json.dumps({"measure_s": 0, "soak_s": 600}))
    cut = board.start(f"{install} --policy {policy}")
    journal = board.root / "apps/toy/deployment.json"

    def soaks() -> bool:
        facts = json.loads(journal.read_bytes())
        return bool(facts["digest"] == second.digest and facts["state"] == "soaking")

    until(lambda: soaks() or None)
    for pid in processes("job-run", board.root):
        os.kill(pid, signal.SIGKILL)
    cut.wait(300)
    assert [one["app"] for one in run("resume")["resumed"]] == ["toy"]
    until(lambda: json.loads(journal.read_bytes())["attempts"] == 2 or None)
    back = run("rollback --app resnet50 --reason 'too many false alarms'")
    assert back["current"] == status["current"]
    run("gc --keep 3")
    assert status["current"] in run("remove --app resnet50")["removed"]
    assert done == _documented()


@pytest.mark.whole
def test_an_application_finds_the_module_through_the_documented_path(
    board: _OnBoard, tmp_path: Path
) -> None:
    assert f"PYTHONPATH={LOADER} python3 app.py" in (ROOT / "docs/start.md").read_text()
    _copy(board, 0, tmp_path)
    board.run("install --from /media/usb/resnet50.ekb --app resnet50")
    board.environment["PYTHONPATH"] += f":{board.root}/bin/edgekit_device.pyz"
    frame = np.zeros((1, 3, 8, 8), np.float32)
    np.save(board.home / "x.npy", frame)
    done = board.python(
        "import edgekit_device, numpy\n"
        'model = edgekit_device.load("~/.edgekit/apps/toy")\n'
        'print(model({"x": numpy.load("x.npy")})["y"].shape)'
    )
    assert done.stdout == b"(1, 10)\n", done.stderr
