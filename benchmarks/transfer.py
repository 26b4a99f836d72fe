"""How fast a bundle goes to a board, against scp.

    python benchmarks/transfer.py [MEGABYTES] [RUNS]

Starts edgekit's own sshd on loopback and sends a bundle of MEGABYTES (500 unless given) of random
weights, the same bytes as one file with ``scp -O`` and the same cipher, and to ``cat`` and ``sync``
through a plain channel of paramiko's, in turn, RUNS times (5 unless given). Prints seconds, rates
and their medians. scp syncs no file, and neither scp nor cat checks a digest; edgekit does both.
Then: 1,000 blobs of 4 KB.

Exit status 1 when the median rate is below 120 MB/s; on a machine that is too slow or too busy for
scp to reach twice that, below half of scp's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
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
from edgekit_device.trust.keys import TrustRequest

_LEAST = 120.0  # MB/s
_CIPHER = "aes128-gcm@openssh.com"
_WEIGHT = 4 << 20  # bytes, as a convolution of 1024 x 1024 in FP32


def main() -> int:
    """Measures and prints."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    prefix = "edgekit-transfer-"
    with (
        tempfile.TemporaryDirectory(prefix=prefix) as name,
        Sending(Path(name), total * 10**6) as to,
    ):
        ours, theirs = _measure_rates(to, runs)
        _send_many(to.client)
    return 0 if ours >= min(_LEAST, theirs / 2) else 1


class Sending:
    """A board on loopback, and bytes that it does not have.

    Args:
        folder: An empty one.
        total: How many bytes.
    """

    def __init__(self, folder: Path, total: int) -> None:
        self.total = total
        self._folder = folder
        self._key = ensure_key(folder / "signer")
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Sending:
        loader = self._folder / "loader.pyz"
        build_zipapp(loader)
        server = self._stack.enter_context(sshd(self._folder / "board"))
        self._board = server.board
        self.client = BoardClient(server.board, connect(server.board), loader)
        self._stack.callback(self.client.close)
        signer = allowed_signers_line(self._key.with_name("signer.pub"))
        self.client.trust(TrustRequest(new=(signer,)))
        self._plain = connect(server.board)
        self._stack.callback(self._plain.close)
        self.bundle = _bundle(self.total)
        self._signature = sign(self.bundle.manifest_bytes, self._key)
        with (self._folder / "file").open("wb") as out:
            for weight in self.bundle.weights.values():
                out.write(blob_view(weight))
        os.sync()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def ours(self) -> None:
        """Sends the bundle as ``edgekit deploy`` does."""
        send(self.client, self.bundle, self._signature)
        for path in (self._folder / "board" / "blobs").glob("??/*"):
            path.unlink()

    def plain_channel(self) -> None:
        """Sends its bytes to ``cat`` and ``sync`` through a channel of its own."""
        chunks = map(blob_view, self.bundle.weights.values())
        target = self._folder / "copied"
        done = self._plain.run(["sh", "-c", f"cat > {target} && sync {target}"], stdin=chunks)
        assert (done.status, target.stat().st_size) == (0, self.total)
        target.unlink()

    def scp(self) -> None:
        """Sends the file with OpenSSH's ``scp -O``."""
        target = self._folder / "copied"
        subprocess.run(_scp(self._board, self._folder / "file", target), check=True)
        target.unlink()


def _measure_rates(sending: Sending, runs: int) -> tuple[float, float]:
    """Returns the median rates of edgekit and of scp, in MB/s."""
    total = sending.total
    ways = {"scp": sending.scp, "channel": sending.plain_channel, "edgekit": sending.ours}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    print(f"{total:,} bytes, blobs of {_WEIGHT:,} bytes, {_CIPHER}, {os.cpu_count()} cores")
    for _ in range(runs):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - began)
            rate = total / 1e6 / seconds[name][-1]
            print(f"{name:<8}{seconds[name][-1]:8.2f} s {rate:7.0f} MB/s")
            os.sync()
    rates = {name: total / 1e6 / statistics.median(times) for name, times in seconds.items()}
    print(f"load {os.getloadavg()[0]:.1f}")
    print("median: " + ", ".join(f"{name} {rate:.0f} MB/s" for name, rate in rates.items()))
    return rates["edgekit"], rates["scp"]


def _scp(board: Board, file: Path, target: Path) -> list[str]:
    options = (
        f"Ciphers={_CIPHER}",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        f"IdentityFile={board.key}",
    )
    words = [word for option in options for word in ("-o", option)]
    there = f"{board.user}@{board.host}:{target}"
    return ["scp", "-O", "-q", "-F", "none", *words, "-P", str(board.port), str(file), there]


def _send_many(client: BoardClient) -> None:
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


def _bundle(total: int) -> Bundle:
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
