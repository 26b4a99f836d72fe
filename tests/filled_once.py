"""One run of the tests fills each built-in network once: the others read the same weights."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

if TYPE_CHECKING:
    import pytest

    from edgekit.network.zoo import ShippedGraph, WeightRecipe

__all__ = ["filled_once"]


@contextmanager
def filled_once(factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps what `fill` answers in the run's own folder, which its workers share.

    Filling takes seconds of sums in FP32, and thirty tests in four workers ask for the same ones.
    """
    from edgekit.network import zoo

    fill = zoo.fill
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "filled"
    folder.mkdir(exist_ok=True)

    def retained(
        graph: ShippedGraph, seed: int, recipe: WeightRecipe
    ) -> dict[str, np.ndarray[Any, Any]]:
        proto = graph.proto.SerializeToString(deterministic=True)
        key = hashlib.sha256(proto + repr((seed, recipe)).encode()).hexdigest()
        file = folder / f"{key}.npz"
        with locked(folder / f"{key}.lock"):
            if not file.exists():
                weights = fill(graph, seed, recipe)
                with file.with_suffix(".part").open("wb") as part:
                    np.savez(part, **weights)
                Path(part.name).replace(file)
                return weights
        with np.load(file) as found:
            return {name: found[name] for name in found.files}

    with patch.object(zoo, "fill", retained):
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock between processes."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
