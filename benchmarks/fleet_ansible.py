"""The cost of a board in a rollout by Ansible: time, the workstation's CPU time, bytes on the wire.

Usage: fleet_ansible.py [--boards 4] [--json]: real sshd boards on loopback, each behind a relay
that counts; a toy network. Prints the tables of docs/fleet.md ("When to change").
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.fleet_relay import BOARDS, Relay, amount, duration, table
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.deployment.embedded_sshd import sshd
from edgekit.fleet.ansible.export import export_ansible
from edgekit.fleet.waves import FleetBoard
from tests.boards.bundles import hand_made

BYTES = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ek-") as made, contextlib.ExitStack() as stack:
        rows = measure(Path(made), stack, options.boards)
    if options.json:
        print(json.dumps({"boards": options.boards, "bundle_bytes": BYTES, "rows": rows}))
        return
    print(tables(options.boards, rows))


def tables(count: int, rows: list[dict[str, Any]]) -> str:
    """Returns the tables of docs/fleet.md: measurements, and extrapolations from these."""
    shown = ["by board | controller's CPU | bytes over SSH"]
    shown += [f"{row['what']} | {row['cpu_s']:.1f} s | {row['bytes']:,}" for row in rows]
    (first,) = (row for row in rows if row["what"] == "first")
    more = ["boards | controller's CPU | bytes over SSH"]
    for boards in BOARDS:
        cells = [duration(boards * first["cpu_s"]), amount(boards * first["bytes"])]
        more.append(f"{boards:,} | {' | '.join(cells)}")
    reported = f"{count} boards, a bundle of {BYTES:,} bytes:"
    return "\n\n".join([reported, table(*shown), table(*more)])


def measure(tmp: Path, stack: contextlib.ExitStack, count: int) -> list[dict[str, Any]]:
    global BYTES  # noqa: PLW0603
    key = ensure_key(tmp / "key" / "id")
    made = (hand_made(seed=seed, columns=4096) for seed in (0, 1))
    first, second = (bundle.signed(sign(bundle.manifest_bytes, key)) for bundle in made)
    BYTES = first.full_bytes
    line = allowed_signers_line(tmp / "key" / "id.pub")
    rows: list[dict[str, Any]] = []
    servers = [stack.enter_context(sshd(tmp / str(n))) for n in range(count)]
    relays = [Relay(server.port) for server in servers]
    members = [
        FleetBoard(dataclasses.replace(s.board, name=f"b{n}", kind="remote", port=relay.port))
        for n, (s, relay) in enumerate(zip(servers, relays, strict=True))
    ]
    for what, bundle in (("first", first), ("unchanged", first), ("one tensor changed", second)):
        bundles = {member.name: bundle for member in members}
        export_ansible(tmp / "out", members, bundles, waves="100%", signers=[line])
        sent = sum(relay.bytes for relay in relays)
        seconds, cpu = run_playbook(tmp / "out", tmp)
        rows.append(
            {
                "what": what,
                "seconds": seconds / count,
                "cpu_s": cpu / count,
                "bytes": (sum(relay.bytes for relay in relays) - sent) // count,
            }
        )
    return rows


def run_playbook(folder: Path, tmp: Path) -> tuple[float, float]:
    (tmp / "home").mkdir(exist_ok=True)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp / "home"),
        "LANG": "C.UTF-8",
        "ANSIBLE_REMOTE_TMP": str(tmp / "remote"),
        "ANSIBLE_ASYNC_DIR": str(tmp / "async"),
        "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
    }
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [str(program), "deploy.yml"],
        cwd=folder,
        env=env,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout[-4000:] + done.stderr[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu


if __name__ == "__main__":
    main()
