"""The cache that is saved has the names of ONNX tensors, which TensorRT asks for."""

import numpy as np

from edgekit.quantize.caches import scales_from_cache
from edgekit.quantize.calibration.calibrate import calibrate
from edgekit.quantize.given_scales import cache_for_both
from tests.quantize.quantize_nets import make, node


def test_tensors_of_layers_that_the_parser_puts_in_have_no_line():
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 2, 1, 1)).astype(np.float32),
        "v": rng.standard_normal((64, 3)).astype(np.float32),
    }
    nodes = [node("Conv", "x w", "c"), node("Flatten", "c", "f"), node("MatMul", "f v", "y")]
    model, network = make(nodes, weights, {"x": [1, 2, 4, 4]}, ["y"])
    feed = {"x": rng.standard_normal((1, 2, 4, 4)).astype(np.float32)}
    scales = calibrate(model, network, [feed])
    inserted = scales.scales.keys() - {"x", "c", "f", "y"}
    assert inserted
    cache = cache_for_both(scales, model, model, "8.6.2")
    assert set(cache.scales) == {"x", "c", "f", "y"}
    # and nothing is lost
    reading = scales_from_cache(cache, network, model=model)
    assert reading.lacks == ()
    assert reading.scales.scales == scales.scales
