"""A split build: each lane rounds where its own devices do."""

import numpy as np
import pytest

from edgekit.bundles.manifest import golden_inputs
from edgekit.config.loader import load_config
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.accuracy import artefacts
from edgekit.pipeline.steps.rewrite import network
from edgekit.reference.run import Runner
from tests.bundles.bundle_toys import document_of
from tests.pipeline.nets import small_config, small_net


@pytest.mark.whole
@pytest.mark.boards
def test_lanes_that_differ_pass_their_own_golden_vectors(tmp_path):
    config = small_config(tmp_path, objective="throughput", extra="build: {mode: split}\n")
    # a softmax that is not saturated shows the rounding of what it reads
    small_net(tmp_path / "small.onnx", scale=0.05)
    text = config.read_text()
    objective = "{objective: throughput, dla_cores: [0, 1]}"
    config.write_text(text.replace("{objective: throughput}", objective))
    cache = Cache(tmp_path / "cache")
    with Pipeline(load_config(config), out=tmp_path / "out", cache=cache) as pipeline:
        document = pipeline.run().document
        built = artefacts(pipeline.context)
        manifest = document_of(pipeline.packed())
    cases = manifest["golden"]
    assert [case["lane"] for case in cases] == list(range(len(built.lanes)))
    assert document.refit.bit_equal is True
    ranges = {name: (one["low"], one["high"]) for name, one in cases[0]["inputs"].items()}
    inputs = golden_inputs(network(pipeline.context), cases[0]["seed"], ranges)
    results = [Runner(built, lane=i).run(inputs)["y"] for i in range(len(cases))]
    # or the test shows nothing: the lane on the GPU alone gives other values
    assert any(not np.array_equal(results[0], other) for other in results)
