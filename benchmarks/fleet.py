"""The cost of a rollout for each board: time, CPU of the workstation, bytes on the wire.

    python benchmarks/fleet.py [--boards 8] [--parallel 1 4] [--state 10000] [--json]

Starts sshd boards on loopback, which share this machine's cores with the workstation's side: the
wall time is of both, so that the figure to read is the CPU of this process, which is measured
apart, and the bytes, which a relay counts. Then it runs the state alone, with boards in memory, for
the cost of a rollout beside its boards. Prints the tables of docs/fleet.md ("What it costs").
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fleet_relay import BOARDS, Relay, amount, duration, table
from edgekit.bundles.files import write
from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from edgekit.deployment.embedded_sshd import sshd
from edgekit.fleet.driver import Deployed
from edgekit.fleet.rollout import Fleet
from edgekit.fleet.waves import FleetBoard, RolloutSettings
from tests.boards.bundles import hand_made
from tests.pipeline.nets import small_config

WIDTH = 16_384  # columns of the one weight: a megabyte
AT_A_TIME = 32  # boards, for the extrapolated table
NAMES = {
    "first": "first (loader, weights, engine)",
    "weights": "another weight of 1 MiB",
    "unchanged": "unchanged",
}


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def make_signed(seed: int, key: Path) -> Bundle:
    """Returns a bundle of one megabyte of weights."""
    bundle = hand_made(seed=seed, columns=WIDTH)
    return bundle.signed(sign(bundle.manifest_bytes, key))


def measure_over_ssh(folder: Path, count: int, parallel: int) -> dict[str, Any]:
    """Rolls out a release, the same again, and another one, and measures each."""
    key = ensure_key(folder / "key")
    config = small_config(folder / "net")
    config.write_text(config.read_text().replace("name: small", "name: net"))
    bundles = [make_signed(seed, key) for seed in (0, 0, 1)]
    found: dict[str, Any] = {"weights_bytes": sum(bundles[0].weight_bytes.values())}
    with contextlib.ExitStack() as stack:
        rows, relays = [], []
        for number in range(count):
            root = folder / f"b{number}"
            root.mkdir(mode=0o700)
            server = stack.enter_context(sshd(root))
            relays.append(Relay(server.board.port or 22))
            line = allowed_signers_line(Path(f"{key}.pub"))
            (root / "allowed_signers").write_text(line + "\n")
            board = replace(server.board, port=relays[-1].port)
            rows.append(
                f"  - {{name: b{number}, host: 127.0.0.1, port: {board.port}, user: {board.user}, "
                f"key: {board.key}, host_key: '{board.host_key}', root: {root}, "
                f"python: {board.python}}}"
            )
        inventory = folder / "fleet.yaml"
        inventory.write_text("version: 1\nboards:\n" + "\n".join(rows) + "\n")
        for what, bundle in zip(("first", "unchanged", "weights"), bundles, strict=True):
            file = write(bundle, folder / f"{what}.ekb", stripped=False)
            before = sum(relay.bytes for relay in relays)
            began, used = time.monotonic(), cpu_seconds()
            with Fleet(folder / "state") as fleet:
                name = fleet.begin(
                    config,
                    inventory,
                    waves="100%",
                    bundle=file,
                    name=what,
                    settings=RolloutSettings(parallel=parallel),
                )
                rollout = fleet.drive(name)
            assert rollout.counts == {"done": count}, rollout
            wall, spent = time.monotonic() - began, cpu_seconds() - used
            seconds = [board.seconds for board in rollout.boards if board.seconds is not None]
            found[what] = {
                "wall_s": round(wall, 2),
                "board_s": round(statistics.median(seconds), 2),
                "workstation_cpu_s_per_board": round(spent / count, 4),
                "wire_bytes_per_board": round((sum(r.bytes for r in relays) - before) / count),
            }
    return found


class InMemory:
    """Boards that answer at once."""

    def deploy(self, member: FleetBoard, found: Any) -> Deployed:
        """Reports success without work."""
        found("0" * 64, "1" * 64)
        return Deployed("000001-1", "1" * 64)

    def serving(self, member: FleetBoard) -> str:
        """Always the new one."""
        return "1" * 64

    def back(
        self, member: FleetBoard, digest: str, before: str, *, others_failed: bool = False
    ) -> bool:
        """Has no work to do."""
        return True


def measure_state(folder: Path, count: int) -> dict[str, Any]:
    """Measures the inventory and the state for so many boards."""
    folder.mkdir()
    config = small_config(folder / "net")
    config.write_text(config.read_text().replace("name: small", "name: net"))
    file = write(hand_made(), folder / "net.ekb", stripped=False)
    rows = [
        f"  - {{name: b{n}, host: h{n}, labels: {{kind: orin, rack: r{n // 40}}}}}"
        for n in range(count)
    ]
    inventory = folder / "fleet.yaml"
    inventory.write_text("version: 1\nboards:\n" + "\n".join(rows) + "\n")
    with Fleet(folder / "state", driver_for=lambda rollout, bundles: InMemory()) as fleet:
        began, used = time.monotonic(), cpu_seconds()
        name = fleet.begin(config, inventory, bundle=file, settings=RolloutSettings(parallel=32))
        middle, spent = time.monotonic(), cpu_seconds()
        fleet.drive(name)
        size = fleet.rollout(name).path.stat().st_size
        return {
            "boards": count,
            "begin_s": round(middle - began, 2),
            "begin_cpu_s": round(spent - used, 2),
            "drive_s": round(time.monotonic() - middle, 2),
            "drive_cpu_s": round(cpu_seconds() - spent, 2),
            "state_bytes": size,
        }


def tables(document: dict[str, Any]) -> str:
    """Returns the tables of docs/fleet.md: measurements, and extrapolations from these."""
    runs = document["over_ssh"]
    rows = ["deployment of one board | workstation's CPU | bytes on the wire"]
    for what, name in NAMES.items():
        spent = [run[what]["workstation_cpu_s_per_board"] for run in runs]
        shown = dict.fromkeys(f"{value:.2f}" for value in (min(spent), max(spent)))
        most = max(run[what]["wire_bytes_per_board"] for run in runs)
        rows.append(f"{name} | {' to '.join(shown)} s | {most:,}")
    parts = [table(*rows)]
    alone = min(runs, key=lambda run: run["parallel"])
    board_s = alone["first"]["board_s"]
    cpu_s = max(run["first"]["workstation_cpu_s_per_board"] for run in runs)
    wire = {what: max(run[what]["wire_bytes_per_board"] for run in runs) for what in NAMES}
    more = [
        f"boards | time by boards ({board_s:.1f} s each, {AT_A_TIME} at a time) | workstation's "
        f"CPU ({cpu_s:.2f} s each) | bytes, first | bytes, 1 MiB changed"
    ]
    for count in BOARDS:
        more.append(
            f"{count:,} | {duration(count * board_s / AT_A_TIME)} | {duration(count * cpu_s)} | "
            f"{amount(count * wire['first'])} | {amount(count * wire['weights'])}"
        )
    state = document["state"]
    parts.append(
        f"{alone['boards']} boards, {alone['parallel']} at a time: {board_s:.1f} s each.\n"
        f"State of {state['boards']:,} boards: {state['begin_cpu_s']:.1f} s of CPU to begin, "
        f"{state['drive_cpu_s']:.0f} s to drive, {state['drive_s']:.0f} s by the clock, "
        f"{state['state_bytes'] / 1e6:.1f} MB."
    )
    return "\n\n".join([*parts, table(*more)])


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--boards", type=int, default=8)
    parser.add_argument("--parallel", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--state", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    document: dict[str, Any] = {"cores": os.cpu_count(), "over_ssh": []}
    for parallel in options.parallel:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["EDGEKIT_CACHE"] = str(Path(folder, "cache"))
            measured = measure_over_ssh(Path(folder), options.boards, parallel)
            row = {"boards": options.boards, "parallel": parallel, **measured}
            document["over_ssh"].append(row)
    with tempfile.TemporaryDirectory() as folder:
        document["state"] = measure_state(Path(folder, "state"), options.state)
    print(json.dumps(document, indent=1) if options.json else tables(document))


if __name__ == "__main__":
    main()
