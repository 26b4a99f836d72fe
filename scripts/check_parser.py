#!/usr/bin/env python3
"""Compares edgekit with NVIDIA's own ONNX parser and builder.

scripts/check_parser.py [--wheels FOLDER] [--only KIND] [--jobs N]

Fetches TensorRT for RTX (parser and builder of TensorRT 11, without a GPU) into a temporary folder.
On real exports, networks with loops and conditionals, and the onnx package's tests of nodes it
compares the nodes accepted and refused, the layers by node, their parameters, shapes and types,
kept constants, and the network as edgekit_device reads it. It builds edgekit's typed FP16 and
INT8 models, of one shape and of a range, and asks the tests' double the same questions as NVIDIA's
module. Every difference is in scripts/data/parser-differences.yaml with its reason: one that is
missing there, and a row that no difference needs, fail. Where the registry has no such wheels it
prints that and exits with 0.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import _parser_models as models
from _parser_builds import BUILT, RANGES
from _parser_known import read_rows, sort_out
from _parser_wheels import Unavailable, fetch

HERE = Path(__file__).resolve().parent
_QUESTIONS = "questions"  # of a fresh child
# of the clock, for a task that waits for ever; a child bounds its own work, whatever else runs
_SECONDS = 900


@dataclass
class Found:
    """The children's answers."""

    version: str = ""
    differences: list[dict[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    shown: bool = False


class _Worker(threading.Thread):
    """Works on tasks with one child after the other: one that dies is replaced."""

    def __init__(self, wheels: Path, tasks: deque[str], found: Found, lock: Any) -> None:
        super().__init__()
        self._wheels, self._tasks, self._found, self._lock = wheels, tasks, found, lock
        self._child: subprocess.Popen[str] | None = None

    def run(self) -> None:
        while True:
            try:
                task = self._tasks.popleft()
            except IndexError:
                break
            self._run_task(task)
        self._end()

    def _end(self) -> None:
        if self._child is not None:
            self._child.communicate()
            self._child = None

    def _run_task(self, task: str) -> None:
        begun = time.monotonic()
        if task == _QUESTIONS:
            self._end()
        child = self._child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        timer = threading.Timer(_SECONDS, child.kill)
        timer.start()
        at, answer = task, None
        try:
            child.stdin.write(f"{task}\n")
            child.stdin.flush()
            for line in child.stdout:
                said = json.loads(line)
                at = said.get("at", at)
                if "version" in said:
                    self._found.version = said["version"]
                if "counts" in said or "failed" in said:
                    answer = said
                    break
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
        with self._lock:
            self._found.seconds[task] = time.monotonic() - begun
            if answer is None:
                self._child = None
                self._found.failures.append(f"{at}: the process died ({child.wait()})")
            elif "failed" in answer:
                self._found.failures.append(f"{at}: {answer['failed']}")
            else:
                self._found.differences += answer["differences"]
                for difference in answer["differences"] if self._found.shown else ():
                    print(f"check_parser: {_describe(difference)}", file=sys.stderr, flush=True)
                self._found.counts.update(answer["counts"])

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(HERE / "_parser_child.py"), str(self._wheels)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def list_tasks() -> list[str]:
    """Returns the names of all tasks, the longest first."""
    found = [f"build {name} {precision}" for name in BUILT for precision in ("int8", "fp16")]
    found += [f"range {name} {precision}" for name in RANGES for precision in ("int8", "fp16")]
    found += [f"export {name}" for name in models.export_names()]
    found += [f"flow {name}" for name in models.flow_names()]
    return [_QUESTIONS, *found, *(f"node {name}" for name in models.node_modules())]


def run_tasks(wheels: Path, chosen: list[str], jobs: int, shown: bool) -> Found:
    """Runs tasks in children of their own."""
    found, queue, lock = Found(shown=shown), deque(chosen), threading.Lock()
    workers = [_Worker(wheels, queue, found, lock) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def main() -> int:
    """Runs the check; returns 1 if it finds an unexplained difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, help="a folder with the wheels, instead of fetching")
    parser.add_argument("--only", default="", help="only tasks that begin so: 'export resnet'")
    parser.add_argument("--jobs", type=int, default=2, help="children at the same time")
    parser.add_argument("--all", action="store_true", help="print every difference at once")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheels = given.wheels or Path(folder)
        try:
            if given.wheels is None:
                fetch(wheels)
        except Unavailable as reason:
            print(f"check_parser: not run, no wheels ({reason})")
            return 0
        begun = time.monotonic()
        chosen = [task for task in list_tasks() if task.startswith(given.only)]
        found = run_tasks(wheels, chosen, given.jobs, given.all)
    rows = read_rows()
    unknown, unused = sort_out(found.differences, rows, whole=not given.only)
    for difference in unknown:
        print(f"check_parser: {_describe(difference)}", file=sys.stderr)
    for row in unused:
        print(f"check_parser: no difference needs the row {row}", file=sys.stderr)
    for failure in found.failures:
        print(f"check_parser: {failure}", file=sys.stderr)
    slow = sorted(found.seconds.items(), key=lambda item: -item[1])[:5]
    print("check_parser: slowest:", ", ".join(f"{task} {taken:.0f} s" for task, taken in slow))
    counted = ", ".join(f"{count} {what}" for what, count in found.counts.items())
    known_ones = len(found.differences) - len(unknown)
    print(
        f"check_parser: compared with NVIDIA's parser {found.version} in "
        f"{time.monotonic() - begun:.0f} s: {counted}; {known_ones} known differences, "
        f"{len(unknown)} unknown, {len(found.failures)} failures"
    )
    return 1 if unknown or unused or found.failures else 0


def _describe(difference: Mapping[str, str]) -> str:
    return "{check} {operator} {where}: {ours} | {theirs}".format_map(difference)


if __name__ == "__main__":
    sys.exit(main())
