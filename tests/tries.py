"""How much a run tries: what is quick, and with --all an eighth of the rest, or all of the rest.

Each of these belongs to one eighth, by a digest of its name: a test marked `whole`, a case after
the first N of a test marked `few(N)`, the further cases of a test that takes the fixture
`exhaustive`, the further examples of a property, a seeded fault. ``--all`` adds the eighth that the
commit chooses, ``--all=N`` eighth N, and ``--all=full`` all eight. This plugin of pytest is
registered by tests/conftest.py; ``python -m tests.tries --all`` prints such a run's closing line.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

__all__ = ["EIGHTHS", "OPTION", "Share", "eighth_of", "exhaustive_part", "share_of", "tries"]

EIGHTHS = range(1, 9)
_COMMIT, _FULL = "commit", "full"


def _which(text: str) -> str:
    if text in (_COMMIT, _FULL) or text in map(str, EIGHTHS):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is no eighth: write --all=full, --all=1 to --all=8, or --all after the paths"
    )


#: What pytest's ``addoption`` and argparse's ``add_argument`` take for --all.
OPTION: dict[str, Any] = {
    "nargs": "?",
    "const": _COMMIT,
    "type": _which,
    "metavar": "full|1..8",
    "help": "also the exhaustive part: the commit's eighth of it, that eighth, or all of it",
}


@dataclass(frozen=True)
class Share:
    """The eighths of the exhaustive part that a run tries.

    Attributes:
        eighths: Numbers of ``EIGHTHS``; none without --all.
        line: Tells which they are and how all are run; "" without --all.
    """

    eighths: tuple[int, ...] = ()
    line: str = ""

    def has(self, name: str) -> bool:
        return eighth_of(name) in self.eighths


def eighth_of(name: str) -> int:
    """The eighth that something of this name belongs to, the same in every process."""
    return EIGHTHS[hashlib.sha256(name.encode()).digest()[0] % len(EIGHTHS)]


def share_of(option: str | None) -> Share:
    """What --all, as ``OPTION`` parses it, asks for."""
    if option is None:
        return Share()
    if option == _FULL:
        return Share(tuple(EIGHTHS), "exhaustive part: all of it")
    if option != _COMMIT:
        eighth, chosen = int(option), "as asked for"
    elif commit := _commit():
        eighth, chosen = eighth_of(commit), f"chosen by commit {commit[:8]}"
    else:
        eighth, chosen = EIGHTHS[0], "as there is no commit to choose one"
    line = f"exhaustive part: eighth {eighth} of {len(EIGHTHS)}, {chosen}"
    return Share((eighth,), f"{line}; all of it: scripts/test --all=full")


def _commit() -> str:
    """The checkout's commit; "" outside a checkout of git."""
    command = ["git", "-c", "safe.directory=*", "rev-parse", "--verify", "-q", "HEAD"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


class _Run:
    share = Share()


def exhaustive_part(name: str) -> bool:
    """Whether this run tries what of the exhaustive part has this name."""
    return _Run.share.has(name)


def tries(examples: int) -> int:
    """Hypothesis' ``max_examples`` of a property: a third; all where its module's eighth runs."""
    # max_examples is settled before there is a test with a name of its own
    module = sys._getframe(1).f_globals["__name__"]
    return examples if exhaustive_part(module) else max(5, examples // 3)


@pytest.fixture
def exhaustive(request: pytest.FixtureRequest) -> bool:
    """Whether this test tries every case that it knows, not some."""
    return exhaustive_part(request.node.nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", **OPTION)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Chooses before any test is imported; workers get what the first process chose."""
    if hasattr(config, "workerinput"):
        _Run.share = Share(tuple(config.workerinput["eighths"]))
    else:
        _Run.share = share_of(config.getoption("--all"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["eighths"] = _Run.share.eighths


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what belongs to another eighth."""
    seen = Counter[str]()
    # each is counted, also one that this run tries
    long = [item for item in items if _takes_long(item, seen)]
    left_out = [item for item in long if not exhaustive_part(item.nodeid)]
    config.hook.pytest_deselected(items=left_out)
    gone = {item.nodeid for item in left_out}
    items[:] = [item for item in items if item.nodeid not in gone]


def _takes_long(item: pytest.Item, seen: Counter[str]) -> bool:
    """Whether its marks put a test into the exhaustive part; ``seen`` counts a function's cases."""
    few = item.get_closest_marker("few")
    function = item.nodeid.partition("[")[0]
    seen[function] += 1
    return bool(item.get_closest_marker("whole")) or (
        few is not None and seen[function] > few.args[0]
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _Run.share.line:
        terminalreporter.line(_Run.share.line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Prints which eighth a run with --all tries.")
    parser.add_argument("--all", **OPTION)
    print(share_of(parser.parse_args().all).line)
