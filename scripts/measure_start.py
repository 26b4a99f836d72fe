#!/usr/bin/env python3
"""Measures how long the commands of docs/start.md take, and writes its table.

scripts/measure_start.py          measure and write the table (minutes; no other work should run)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "start.md"
NETWORKS = ("light_squeezenet", "light_resnet50")
TARGET = "jetson-agx-orin-64gb"
_PLACE = re.compile(r"(<!-- times -->\n).*?(<!-- end times -->)", re.DOTALL)


def time_command(arguments: list[str], folder: Path) -> float:
    """Returns the wall time of an edgekit command.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    environment = {**os.environ, "EDGEKIT_CACHE": str(folder / "cache")}
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "edgekit", *arguments, "-q"],
        cwd=folder,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def measure_network(network: str) -> list[float]:
    """Returns the seconds of check, plan, calibrate, run and a second run of a built-in network."""
    model = f"builtin:{network}"
    with tempfile.TemporaryDirectory(prefix="edgekit-") as name:
        folder = Path(name)
        time_command(["check", model, "-t", TARGET], folder)  # compiles the modules
        found = [time_command([c, model, "-t", TARGET], folder) for c in ("check", "plan")]
        time_command(["init", model, "-t", TARGET, "-o", "net.yaml"], folder)
        found += [time_command([c, "net.yaml"], folder) for c in ("calibrate", "run", "run")]
        return found


def main() -> None:
    """Writes the table."""
    rows = [
        "| network | check | plan | calibrate | run after that | run again |",
        "|---|---|---|---|---|---|",
    ]
    for network in NETWORKS:
        times = " | ".join(f"{value:.0f} s" for value in measure_network(network))
        rows.append(f"| `builtin:{network}` | {times} |")
    text = "\n".join(rows) + "\n"
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_PLACE.sub(lambda found: found[1] + text + found[2], page), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
