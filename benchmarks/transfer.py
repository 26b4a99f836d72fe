"""How fast a bundle goes to a board, against scp.

    python benchmarks/transfer.py [MEGABYTES] [RUNS]

Starts edgekit's own sshd on loopback and sends a bundle of MEGABYTES (500 unless given) of random
weights, and the same bytes as one file with ``scp -O`` and the same cipher, in turn, RUNS times (5
unless given). Prints seconds and rates, and the medians' ratio. scp makes nothing durable and
checks no digest; ours does both. Then: 1,000 blobs of 4 KB.

Exit status 1 when the median rate is below 120 MB/s; on a machine that is too slow or too busy for
scp to reach twice that, below half of scp's.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from edgekit.bundles.files import build_zipapp
from edgekit.bundles.manifest import Bundle, blob_view, canonical
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.deployment.board import Board
from edgekit.deployment.client import BoardClient
from edgekit.deployment.embedded_sshd import sshd
from edgekit.deployment.install import send
from edgekit.deployment.ssh import connect
from edgekit_device.protocol.codec import write
from edgekit_device.protocol.manifest import WeightEntry, parse

_LEAST = 120.0  # MB/s
_CIPHER = "aes128-gcm@openssh.com"
_WEIGHT = 4 << 20  # bytes, as a convolution of 1024 x 1024 in FP32


def main() -> int:
    """Measures and prints."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory(prefix="edgekit-transfer-") as name:
        folder = Path(name)
        loader, key = folder / "loader.pyz", ensure_key(folder / "signer")
        build_zipapp(loader)
        with sshd(folder / "board") as server:
            client = BoardClient(server.board, connect(server.board), loader)
            client.trust([allowed_signers_line(key.with_name("signer.pub"))])
            ours, theirs = _rates(client, server.board, key, folder, total * 10**6, runs)
            _many(client)
            client.close()
    return 0 if ours >= min(_LEAST, theirs / 2) else 1


def _rates(
    client: BoardClient, board: Board, key: Path, folder: Path, total: int, runs: int
) -> tuple[float, float]:
    """Returns the median rates of edgekit and of scp, in MB/s."""
    file = folder / "file"
    ours: list[float] = []
    theirs: list[float] = []
    print(f"{total:,} bytes, blobs of {_WEIGHT:,} bytes, {_CIPHER}, {os.cpu_count()} cores")
    for run in range(runs):
        bundle = _bundle(run, total)
        signature = sign(bundle.manifest_bytes, key)
        with file.open("wb") as out:
            for weight in bundle.weights.values():
                out.write(blob_view(weight))
        os.sync()
        copy = partial(subprocess.run, _scp(board, file, folder / "copied"), check=True)
        theirs.append(_timed("scp", total, copy))
        (folder / "copied").unlink()
        os.sync()
        ours.append(_timed("edgekit", total, partial(send, client, bundle, signature)))
        for path in (folder / "board" / "blobs").glob("??/*"):
            path.unlink()
    mine, scp = (total / 1e6 / statistics.median(times) for times in (ours, theirs))
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"median: scp {scp:.0f} MB/s, edgekit {mine:.0f} MB/s, ratio {mine / scp:.2f}")
    return mine, scp


def _timed(label: str, total: int, job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    seconds = time.perf_counter() - began
    print(f"{label:<8}{seconds:8.2f} s {total / 1e6 / seconds:7.0f} MB/s")
    return seconds


def _scp(board: Board, file: Path, target: Path) -> list[str]:
    options = (f"Ciphers={_CIPHER}", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null",
               "LogLevel=ERROR", f"IdentityFile={board.key}")  # fmt: skip
    words = [word for option in options for word in ("-o", option)]
    there = f"{board.user}@{board.host}:{target}"
    return ["scp", "-O", "-q", "-F", "none", *words, "-P", str(board.port), str(file), there]


def _many(client: BoardClient) -> None:
    """1,000 small blobs, several times."""
    for _ in range(3):
        blobs = {hashlib.sha256(data).hexdigest(): data for data in map(os.urandom, [4096] * 1000)}
        began = time.perf_counter()
        client.receive(blobs)
        print(f"1,000 blobs of 4 KB: {time.perf_counter() - began:.2f} s")
    data = os.urandom(4_096_000)
    began = time.perf_counter()
    client.receive({hashlib.sha256(data).hexdigest(): data})
    print(f"one blob of the same bytes: {time.perf_counter() - began:.2f} s")


def _bundle(seed: int, total: int) -> Bundle:
    """A bundle that a board takes and never refits: random weights of ``total`` bytes."""
    from tests.boards.bundles import hand_made

    made = hand_made(name="transfer")
    weights = {}
    while total:
        data = os.urandom(min(_WEIGHT, total))
        weights[hashlib.sha256(data).hexdigest()] = data
        total -= len(data)
    entries = {
        f"w{number}": WeightEntry(digest, "int8", (len(data),), len(data), f"w{number}", "none")
        for number, (digest, data) in enumerate(weights.items())
    }
    data = canonical(write(replace(made.manifest, weights=entries)))
    return Bundle(parse(data), data, made.blobs, weights)


if __name__ == "__main__":
    sys.exit(main())
