"""Types that TensorRT's importer casts: a refit gives what the importer would have given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit_device.errors import DeviceError
from edgekit_device.tensorrt.bindings import ErrorListener
from edgekit_device.tensorrt.refit import _set_weights
from tests.trt_double import double


class Refitter:
    """Takes what it is given; says types from 10.0 on, as TensorRT does."""

    def __init__(self, prototypes: dict[str, tuple[str, int]] | None = None) -> None:
        self.given: dict[str, Any] = {}
        if prototypes is not None:
            self.get_weights_prototype = lambda name: SimpleNamespace(
                dtype=SimpleNamespace(name=prototypes[name][0]), size=prototypes[name][1]
            )

    def set_named_weights(self, name: str, weights: Any) -> bool:
        self.given[name] = weights
        return True

    def get_missing_weights(self) -> list[str]:
        return []


def given(version: str, refitter: Refitter, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    trt = double.module(version)
    _set_weights(trt, refitter, ErrorListener(trt), list(arrays), arrays, [], "the engine")
    return {name: (w.dtype.name, w.numpy().tolist()) for name, w in refitter.given.items()}


BIGGEST = float(np.finfo(np.float32).max)


def test_before_types_are_reported_the_importers_are_taken() -> None:
    arrays = {
        "end": np.array([3, 1 << 40], np.int64),
        "table": np.array([0, 255], np.uint8),
        "wide": np.array([0.5, -1e300]),
    }
    assert given("8.6.1", Refitter(), arrays) == {
        "end": ("INT32", [3, (1 << 31) - 1]),
        "table": ("INT32", [0, 255]),
        "wide": ("FLOAT", [0.5, -BIGGEST]),
    }


def test_the_engines_type_says_what_becomes_of_uint8() -> None:
    arrays = {"old": np.array([7], np.uint8), "new": np.array([9], np.uint8)}
    refitter = Refitter({"old": ("INT32", 1), "new": ("UINT8", 1)})
    assert given("10.3.0", refitter, arrays) == {"old": ("INT32", [7]), "new": ("UINT8", [9])}


@pytest.mark.parametrize("dtype", ["uint16", "uint64"])
def test_a_type_that_the_release_lacks_is_named(dtype: str) -> None:
    arrays = {"odd": np.zeros(2, dtype), "fine": np.zeros(2, np.float32)}
    with pytest.raises(DeviceError, match="odd") as caught:
        given("8.6.1", Refitter(), arrays)
    assert caught.value.code == "refit.mismatch"
    assert "fine" not in caught.value.message
