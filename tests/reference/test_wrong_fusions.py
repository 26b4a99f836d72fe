"""What ONNX Runtime's graph optimisations get wrong is kept from them, here and on boards."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.network.session import WRONG_FUSIONS, session
from edgekit.placement.segments import cut_segments
from edgekit.quantize.scales import Scales
from edgekit.reference.build import build_reference
from edgekit.reference.run import Runner
from edgekit_device.runtime import reference
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of

F = np.float32


def runner_of(model, precision, scales=None, *, optimise=True):
    network = network_of(model)
    plan = plan_of(place_all(network, precision, device=lambda _: "DLA0"))
    known = Scales(scales, "minmax", "by hand", "0") if scales else None
    return Runner(build_reference(cut_segments(model, network, plan), known), optimise=optimise)


def test_boards_have_the_same_list():
    assert reference._WRONG_FUSIONS == WRONG_FUSIONS


def test_a_pad_as_large_as_the_window_of_the_pool_after_it():
    nodes = [
        node("Pad", "x p", "a"),
        node("MaxPool", "a", "y", kernel_shape=[2, 2], strides=[1, 1]),
    ]
    pads = {"p": np.array([0, 0, 2, 2, 0, 0, 2, 2], np.int64)}
    model = model_of(nodes, pads, {"x": [1, 1, 4, 4]}, ["y"])
    feed = {"x": np.arange(16, dtype=F).reshape(1, 1, 4, 4)}
    padded = np.pad(feed["x"], ((0, 0), (0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 2), (2, 3))
    wanted = windows.max((-1, -2))
    np.testing.assert_array_equal(session(model).run(None, feed)[0], wanted)
    np.testing.assert_array_equal(runner_of(model, "fp32").run(feed)["y"], wanted)


@pytest.mark.parametrize("optimise", [True, False])
@pytest.mark.parametrize("step", [1e-3, 1e-9, 1e-12])
def test_a_clip_cuts_at_small_scales_too(step, optimise):
    step = float(F(step))
    weights = {"low": np.array(-3.3 * step, F), "high": np.array(50 * step, F)}
    model = model_of([node("Clip", "x low high", "y")], weights, {"x": [1, 256]}, ["y"])
    runner = runner_of(model, "int8", {"x": step, "y": step}, optimise=optimise)
    codes = np.arange(-128, 128)
    found = runner.run({"x": (codes * np.float64(step)).astype(F)[None]})["y"]
    # -3.3 steps are code -3
    np.testing.assert_array_equal(np.rint(found[0] / np.float64(step)), np.clip(codes, -3, 50))
