"""The cost of a deployment on loopback, with edgekit's own sshd as the board.

    python benchmarks/deployment.py [--model light_resnet50] [--megabytes 134] [--runs 5]

Prints

* how often a cold ``edgekit run`` starts Python on the board;
* wall-clock and the host's processor seconds of an unchanged ``edgekit deploy``, of the status of
  a configuration's board and of a HOST: medians of processes;
* seconds of a first install of MEGABYTES in this process, on a board that trusts the signer:
  connecting, the transfer, the job; and the times of its longest commands and the job's states.

The board shares this machine's cores. Where other work does, too, ``chrt -r 10 python ...`` (as
root) comes close to an idle machine's seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from edgekit.bundles.files import build_zipapp
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.embedded_sshd import sshd
from edgekit.deployment.install import install
from edgekit.deployment.ssh import connect
from edgekit_device.trust.keys import TrustRequest
from tests.boards.bundles import hand_made

_ROWS = 16  # of the one weight, in FP32


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Measure the cost of a deployment on loopback.")
    parser.add_argument("--model", default="light_resnet50")
    parser.add_argument("--megabytes", type=int, default=134)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edgekit-deployment-") as name:
        folder = Path(name)
        python, starts = _counting_python(folder / "python")
        os.environ["EDGEKIT_CACHE"] = str(folder / "cache")
        with sshd(folder / "board") as server:
            _time_commands(folder, server.board, python, starts, given.model, given.runs)
        fresh = [
            _install_fresh(folder / f"fresh-{run}", run, given.megabytes)
            for run in range(given.runs)
        ]
    whole, transfer = (statistics.median(times) for times in zip(*fresh, strict=True))
    print(
        f"fresh install of {given.megabytes} MB: {whole:.2f} s, the transfer alone "
        f"{transfer:.2f} s, all else {whole - transfer:.2f} s (medians of {given.runs})"
    )


def _counting_python(folder: Path) -> tuple[Path, Path]:
    """Returns an interpreter that is this one, and the file that has a line for each of its starts.

    The board's processes get it as ``sys.executable``, too.
    """
    starts, python = folder / "starts", folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    with contextlib.suppress(FileNotFoundError):
        (folder / "pyvenv.cfg").write_bytes(Path(sys.prefix, "pyvenv.cfg").read_bytes())
    real = Path(sys.executable).resolve()
    python.write_text(f'#!/bin/bash\necho >>{starts}\nexec -a "$0" {real} "$@"\n')
    python.chmod(0o755)
    return python, starts


def _time_commands(
    folder: Path, board: Board, python: Path, starts: Path, model: str, runs: int
) -> None:
    fields = {
        "name": "lab",
        "host": board.host,
        "port": board.port,
        "user": board.user,
        "key": str(board.key),
        "host_key": board.host_key,
        "root": board.root,
        "python": str(python),
    }
    config = {
        "version": 1,
        "name": "net",
        "model": {"builtin": model, "seed": 0},
        "target": "jetson-agx-orin-64gb",
        "precision": "fp16",
        "deploy": {"boards": [fields]},
    }
    file = folder / "net.yaml"
    file.write_text(yaml.safe_dump(config))
    out = ("--out", str(folder / "out"))
    _run_edgekit("run", str(file), *out, "--trust-key")
    print(f"cold run of {model}: {len(starts.read_text())} starts of Python on the board")
    host = f"{board.user}@{board.host}:{board.port}"
    own = f"  IdentityFile {board.key}\n  StrictHostKeyChecking no\n"
    with _ssh_config(folder / "home", f"Host {board.host}\n{own}"):
        for title, arguments in (
            ("unchanged deploy", ("deploy", str(file), *out)),
            ("status of a configuration", ("status", str(file))),
            (
                "status of a HOST",
                (
                    "status",
                    host,
                    "--root",
                    board.root,
                    "--python",
                    sys.executable,
                    "--accept-host-key",
                ),
            ),
        ):
            measured = [_run_edgekit(*arguments) for _ in range(runs)]
            wall, processor = (statistics.median(times) for times in zip(*measured, strict=True))
            print(f"{title:<26} {wall:.2f} s, {processor:.2f} s of the host's processor")


@contextlib.contextmanager
def _ssh_config(home: Path, text: str) -> Iterator[None]:
    """Has commands read ``text`` as ``~/.ssh/config``."""
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "config").write_text(text)
    before = os.environ.get("HOME", "")
    os.environ["HOME"] = str(home)
    try:
        yield
    finally:
        os.environ["HOME"] = before


def _run_edgekit(*arguments: str) -> tuple[float, float]:
    """Runs a command; returns its wall-clock and processor seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "edgekit", *arguments], check=True, capture_output=True
    )  # the board's processes are not children of this one's
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _install_fresh(folder: Path, seed: int, megabytes: int) -> tuple[float, float]:
    """Installs a bundle on a board that has none; returns the seconds, and the transfer's."""
    folder.mkdir()
    loader, key = folder / "loader.pyz", ensure_key(folder / "signer")
    build_zipapp(loader)
    bundle = hand_made(seed=seed, columns=megabytes * 10**6 // (4 * _ROWS))
    signature = sign(bundle.manifest_bytes, key)
    took: defaultdict[str, float] = defaultdict(float)

    def add(name: str, seconds: float) -> None:
        took[name] += seconds

    with sshd(folder / "board") as server:
        client = BoardClient(server.board, connect(server.board), loader)
        client.trust(TrustRequest(new=(allowed_signers_line(key.with_name("signer.pub")),)))
        client.close()
        began = time.perf_counter()
        client = BoardClient(server.board, connect(server.board), loader)
        client.on_command = add
        release = install(bundle, client, signature=signature)
        whole = time.perf_counter() - began
        client.close()
    states = " ".join(
        f"{step.state} {step.seconds:.2f}" for step in release.deployment.steps if step.seconds
    )
    longest = sorted(took.items(), key=lambda pair: -pair[1])[:4]
    commands = " ".join(f"{name} {seconds:.2f}" for name, seconds in longest)
    print(f"  {whole:.2f} s: commands {commands}; states {states}")
    return whole, took["receive"]


if __name__ == "__main__":
    main()
