"""Fixtures that several folders share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory) -> Path:
    """A cache that the whole run shares, so that a built-in network is filled once."""
    chosen = os.environ.get("EDGEKIT_CACHE")
    return Path(chosen) if chosen else tmp_path_factory.getbasetemp().parent / "edgekit-cache"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """Keeps every test away from the user's cache."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
