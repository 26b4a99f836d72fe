"""Globs of the user's become layers."""

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.network.layer_names import layers_named
from tests.quantize.quantize_nets import make, node

_, NETWORK = make(
    [node("Conv", "x w", "block/conv[0]"), node("Relu", "block/conv[0]", "relu")],
    {"w": np.ones((2, 3, 1, 1), np.float32)},
    {"x": [1, 3, 4, 4]},
    ["relu"],
)


@pytest.mark.parametrize(
    ("globs", "found"),
    [
        ([], set()),
        (["block/*"], {"block/conv[0]"}),
        (["block/conv[0]"], {"block/conv[0]"}),
        (["*"], {"block/conv[0]", "relu"}),
        (["relu", "r?lu"], {"relu"}),
    ],
)
def test_names_and_globs(globs, found) -> None:
    assert layers_named(NETWORK, globs) == found


def test_where_none_is_near_some_are_listed() -> None:
    with pytest.raises(UsageError) as caught:
        layers_named(NETWORK, ["zzz"])
    assert "'block/conv[0]', 'relu'" in caught.value.hint


def test_one_that_matches_nothing_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="rely") as caught:
        layers_named(NETWORK, ["rely"], where="calibration.fp16_layers")
    assert "'relu'" in caught.value.hint
    assert caught.value.where == "calibration.fp16_layers"
    assert layers_named(NETWORK, ["rely"], strict=False) == frozenset()
