"""DLA_HWC4 is the format of an image that a convolution reads, not of what is added behind it."""

import numpy as np
import pytest

from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.placement.forecast import forecast
from edgekit.placement.placing import place
from edgekit.placement.plan import Options, Pin
from edgekit.targets.loader import get
from tests.rewriting.nets import net, node, weight

ORIN = get("jetson-agx-orin-64gb")


@pytest.fixture
def network():
    """A convolution of four channels; what the GPU computes is added to its result."""
    return layers(
        net(
            [
                node("Erf", "z", "e"),
                node("Conv", "x w", "c"),
                node("Add", "c e", "y"),
            ],
            {"x": (1, 4, 8, 8), "z": (1, 16, 8, 8)},
            ["y"],
            {"w": weight(16, 4, 1, 1)},
        )
    )


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_only_the_image_has_it(network, precision):
    judgement = judge(network, ORIN, precision=precision)
    assert np.isfinite(forecast(network, judgement, ORIN).auto_us)
    pins = (Pin("conv_c", "DLA0"), Pin("add_y", "DLA0"))
    plan = place(network, judgement, ORIN, precision=precision, options=Options(pins=pins))
    (loadable,) = plan.loadables
    assert loadable.formats["x"] == "DLA_HWC4"
    assert loadable.formats["e"] != "DLA_HWC4"
