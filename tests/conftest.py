"""Fixtures that several folders share."""

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the slow tests first in each half of the list.

    Two workers begin with one half each and take from each other what is left: at the end these
    are quick tests, and neither waits for the other's slow ones.
    """
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    half, middle = len(slow) // 2, len(quick) // 2
    items[:] = [*slow[:half], *quick[:middle], *slow[half:], *quick[middle:]]


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory) -> Path:
    """A cache that the whole run shares, so that a built-in network is filled once."""
    chosen = os.environ.get("EDGEKIT_CACHE")
    return Path(chosen) if chosen else tmp_path_factory.getbasetemp().parent / "edgekit-cache"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """Keeps every test away from the user's cache."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
