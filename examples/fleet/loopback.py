"""Three boards on this machine for trying a fleet, each an OpenSSH server on loopback.

    python examples/fleet/loopback.py

writes the inventory out/boards.yaml and serves until Ctrl-C. The boards' folders are throw-away.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import yaml

from edgekit.deployment.embedded_sshd import sshd

OUT = Path(__file__).parent / "out"
NAMES = ("cam-1", "cam-2", "cam-3")


def main() -> None:
    with ExitStack() as stack:
        rows = []
        for name in NAMES:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgekit-")))
            board = stack.enter_context(sshd(root)).board
            row = {
                "host": board.host,
                "port": board.port,
                "user": board.user,
                "key": str(board.key),
                "host_key": board.host_key,
                "root": board.root,
                "python": sys.executable,
            }
            rows.append({"name": name, **row, "labels": {"kind": "orin"}})
        OUT.mkdir(exist_ok=True)
        text = yaml.safe_dump({"version": 1, "boards": rows}, sort_keys=False)
        (OUT / "boards.yaml").write_text(text)
        print(f"{OUT / 'boards.yaml'}: {', '.join(NAMES)} serve until Ctrl-C", flush=True)
        with suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
