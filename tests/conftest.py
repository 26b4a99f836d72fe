"""Fixtures that several folders share."""

import gc
import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import tests.faults.fault_report
import tests.tries
from tests.boards.warm_python import warm, warm_boards
from tests.filled_once import filled_once

__all__ = ["warm", "warm_boards"]

_NUMBER = count()
# by generator of a module, after the module's own draws
_FIRST_STATES: dict[object, object] = {}

# set before NumPy is imported: workers share the cores, and a pool in each would only wait
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # counts of injected faults are printed once, whichever workers injected them
    for plugin in (tests.tries, tests.faults.fault_report):
        pluginmanager.register(plugin)
    parser.addoption("--record", metavar="FOLDER", help="write golden documents there")


def pytest_configure() -> None:
    # nothing depends on load: no deadline, no check of how long data takes to make; and no test
    # changes what its fixtures made
    settings.register_profile(
        "edgekit",
        max_examples=tests.tries.tries(100),
        deadline=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.function_scoped_fixture),
    )
    settings.load_profile("edgekit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the slow tests first in each worker's share of the list.

    Workers begin with an equal part each and take from the ends of each other's what is left: in
    the end these are quick tests, and nobody waits for another's slow ones.
    """
    parts = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]

    def part(some: list[pytest.Item], index: int) -> list[pytest.Item]:
        return some[len(some) * index // parts : len(some) * (index + 1) // parts]

    items[:] = [item for i in range(parts) for item in part(slow, i) + part(quick, i)]


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
def _same_numbers_in_any_order(request):
    """A module's generator RANDOM gives each test the same numbers, whichever tests ran before."""
    if generator := getattr(getattr(request, "module", None), "RANDOM", None):
        state = _FIRST_STATES.setdefault(generator, generator.bit_generator.state)
        generator.bit_generator.state = state


@pytest.fixture(autouse=True)
def _own_cache(request, tmp_path_factory, monkeypatch):
    """Keeps every test away from the user's cache; most have no other use for a folder."""
    if "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path") / "cache"
    else:
        folder = tmp_path_factory.getbasetemp() / f"cache-{next(_NUMBER)}"
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder))
    yield
    # pytest removes its own folders only
    shutil.rmtree(folder, ignore_errors=True)
