"""PyTorch's modules and fixtures, for compiled networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import edgekit
from tests.boards.fixtures import boards, home
from tests.pytorch.conftest import nets

__all__ = ["TARGET", "boards", "compiled", "gap", "home", "nets"]

TARGET = "jetson-agx-orin-64gb"


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., Any]:
    def compiled(source: Any, *inputs: Any, **options: Any) -> Any:
        options = {"target": TARGET, "precision": "fp16", "out": tmp_path / "out", **options}
        return edgekit.compile(source, inputs, **options)

    return compiled


def gap(ours: Any, theirs: Any) -> float:
    """The largest difference by the largest magnitude."""
    theirs = theirs.detach()
    return float((ours.detach() - theirs).abs().max() / theirs.abs().max())
