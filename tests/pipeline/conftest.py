"""Fixtures of this folder: edgekit's own board starts quickly."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _boards_start_quickly(warm_boards):
    pass
