"""Fixtures that several folders share."""

import gc
import os
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from tests.boards.warm_python import warm, warm_boards

# counts of injected faults are printed once, whichever workers injected them
from tests.faults.fault_report import pytest_terminal_summary
from tests.filled_once import filled_once
from tests.tries import tries

__all__ = ["pytest_terminal_summary", "warm", "warm_boards"]

_NUMBER = count()

# set before NumPy is imported: workers share the cores, and a pool in each would only wait
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also what is marked `whole` or `few`")
    parser.addoption("--record", metavar="FOLDER", help="write golden documents there")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all"):
        os.environ.setdefault("EDGEKIT_FAULTS", "all")  # read when tests/faults is imported
    settings.register_profile("edgekit", max_examples=tries(100))
    settings.load_profile("edgekit")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the slow tests first in each worker's share of the list; without --all some are left.

    Workers begin with an equal part each and take from the ends of each other's what is left: in
    the end these are quick tests, and nobody waits for another's slow ones.
    """
    if not config.getoption("--all"):
        seen = Counter[str]()
        left_out = [item for item in items if _only_with_all(item, seen)]
        config.hook.pytest_deselected(items=left_out)
        gone = {item.nodeid for item in left_out}
        items[:] = [item for item in items if item.nodeid not in gone]
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]

    def part(some: list[pytest.Item], index: int) -> list[pytest.Item]:
        return some[len(some) * index // parts : len(some) * (index + 1) // parts]

    items[:] = [item for i in range(parts) for item in part(slow, i) + part(quick, i)]


def _only_with_all(item: pytest.Item, seen: Counter[str]) -> bool:
    """Whether the marks of a test leave it to --all; ``seen`` counts a function's cases so far."""
    few = item.get_closest_marker("few")
    function = item.nodeid.partition("[")[0]
    seen[function] += 1
    return bool(item.get_closest_marker("whole")) or (
        few is not None and seen[function] > few.args[0]
    )


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from walking thousands of tests and modules again and again."""
    # what is there is old now; it does not stay frozen, which edgekit.rewrite looks for
    gc.freeze()
    gc.unfreeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session", autouse=True)
def _networks_are_filled_once(tmp_path_factory):
    with filled_once(tmp_path_factory):
        yield


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory) -> Path:
    """A cache that the whole run shares, so that a built-in network is filled once."""
    chosen = os.environ.get("EDGEKIT_CACHE")
    return Path(chosen) if chosen else tmp_path_factory.getbasetemp().parent / "edgekit-cache"


@pytest.fixture(scope="module")
def quick_collections() -> Iterator[None]:
    """Keeps `gc.collect()` in a module's tests from walking all that was there before them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _own_cache(request, tmp_path_factory, monkeypatch):
    """Keeps every test away from the user's cache; most have no other use for a folder."""
    if "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path") / "cache"
    else:
        folder = tmp_path_factory.getbasetemp() / f"cache-{next(_NUMBER)}"
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder))
