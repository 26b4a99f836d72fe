"""The agent on its own: what a host that is gone had sent."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.boards.toy_jobs import until

_AGENT = "from edgekit_device import agent; agent.main()"


def test_what_came_before_the_host_was_gone_reaches_the_command(tmp_path: Path) -> None:
    data = os.urandom(4_000_000)
    digest = hashlib.sha256(data).hexdigest()
    frame = json.dumps({"digest": digest, "bytes": len(data)}).encode() + b"\n"
    argv = ["receive", f"--root={tmp_path / 'board'}"]
    parts = [json.dumps({"run": 1, "argv": argv}).encode() + b"\n"]
    # in small parts: a host that listens no longer must not end it at the first
    for part in (frame, *(data[start : start + 100_000] for start in range(0, 3_000_000, 100_000))):
        parts += [json.dumps({"in": 1, "bytes": len(part)}).encode() + b"\n", part]
    listening, writing = os.pipe()
    os.close(listening)
    agent = subprocess.Popen(
        [sys.executable, "-c", _AGENT], stdin=subprocess.PIPE, stdout=writing, bufsize=0
    )
    os.close(writing)
    agent.communicate(b"".join(parts), timeout=120)
    assert agent.returncode == 0
    partial = tmp_path / "board" / "partial" / digest
    until(lambda: partial.exists() and partial.stat().st_size == 3_000_000)
    assert partial.read_bytes() == data[:3_000_000]
