"""Kinds of the board commands' options, and the options of ``bench``."""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["add_bench", "count", "folder", "offset", "positive"]


def add_bench(one: argparse.ArgumentParser) -> None:
    """Adds the options of ``bench`` (docs/architecture.md)."""
    one.add_argument("--warmup-ms", type=positive, default=200.0)
    one.add_argument("--duration-s", type=positive, default=3.0)
    one.add_argument("--iterations", type=count, default=10, help="of each stream, at least")
    one.add_argument("--streams", type=count, default=1, help="frames in flight at once")
    one.add_argument("--graph", action="store_true", help="replay frames as a CUDA graph")
    how = one.add_mutually_exclusive_group()
    how.add_argument("--spin", action="store_true", help="wait for the GPU spinning")
    how.add_argument("--blocking", action="store_true", help="wait for the GPU blocked")
    one.add_argument("--no-transfers", action="store_true", help="copy nothing for each frame")
    one.add_argument("--inputs", action="store_true", help="frames are an .npz on stdin")
    one.add_argument("--sleep-ms", type=positive, default=0.0, help="pause after each frame")
    one.add_argument("--idle-ms", type=positive, default=0.0, help="watch it idle first")
    one.add_argument("--monitor-ms", type=positive, default=0.0, help="between two samples")
    one.add_argument("--power-mode", default=None, help="while it measures: name or id")
    one.add_argument("--lock-clocks", action="store_true", help="all at their highest meanwhile")
    one.add_argument(
        "--trtexec", default=None, metavar="JSON", help="run trtexec on the plans, too"
    )
    one.add_argument("--progress", action="store_true", help="say each stage as it begins")
    one.add_argument("--profile", action="store_true", help="times of single nodes too")


def count(text: str) -> int:
    """A whole number of things."""
    value = int(text)
    if not 0 <= value <= 1 << 30:
        raise ValueError(text)
    return value


def folder(text: str) -> Path:
    """A folder; an empty text is none, and not the one that the caller happens to be in."""
    if not text:
        raise ValueError(text)
    return Path(text)


def offset(text: str) -> int:
    """A place in a file."""
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def positive(text: str) -> float:
    """An amount of time."""
    value = float(text)
    if not 0 <= value <= 1e9:
        raise ValueError(text)
    return value
