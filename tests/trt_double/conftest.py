"""Each test of the double has a memory of its own, whoever used the fake CUDA in this process."""

from __future__ import annotations

import pytest

from tests.trt_double._memory import MEMORY


@pytest.fixture(autouse=True)
def _own_memory() -> None:
    MEMORY.reset()
