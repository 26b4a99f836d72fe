"""What an approximation changes: numbers, and null where there are none."""

import numpy as np
import pytest

from edgekit.reference.approximation import approximation
from tests.rewriting.nets import net, node

FEEDS = [{"x": np.array([[1.0, -4.0, 2.0, 0.0]], np.float32)}, {"x": np.ones((1, 4), np.float32)}]


def scaled(*factors):
    return net(
        [node("Mul", "x f", "y")], {"x": (1, 4)}, ["y"], {"f": np.array([factors], np.float32)}
    )


def test_the_error_is_of_the_largest_value():
    found = approximation("r", scaled(1, 1, 1, 1), scaled(1, 1.5, 1, 1), FEEDS)
    assert found.max_error == 0.5
    assert found.rms_error == pytest.approx(0.25)
    assert found.inputs == 2


@pytest.mark.parametrize("factor", [np.nan, np.inf], ids=str)
def test_what_is_not_finite_is_no_error_of_zero(factor):
    broken = scaled(1, factor, 1, 1)
    for before, after in ((scaled(1, 1, 1, 1), broken), (broken, scaled(1, 1, 1, 1))):
        found = approximation("r", before, after, FEEDS)
        assert (found.max_error, found.rms_error) == (None, None)
    # where the original is as little a number there, the rest is compared
    assert approximation("r", broken, broken, FEEDS).max_error == 0
    assert approximation("r", broken, scaled(2, factor, 1, 1), FEEDS).max_error == 1.0
