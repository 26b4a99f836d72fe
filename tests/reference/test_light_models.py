"""A real network from load to refit, through the layers as TensorRT sees them."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.network.synthetic import synthetic_inputs
from edgekit.network.zoo import builtin
from edgekit.placement.segments import cut_segments
from edgekit.quantize.caches import load_cache, scales_from_cache, write_cache
from edgekit.quantize.calibration.calibrate import calibrate
from edgekit.quantize.scales import Scales
from edgekit.reference.accuracy import accuracy
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.build import build_reference
from edgekit.reference.run import Runner
from edgekit.reference.weights import derive_weights
from tests.reference.toy_nets import place_all, plan_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> Model:
    return builtin("light_squeezenet")


@pytest.fixture(scope="module")
def network(model: Model) -> Network:
    return layers(model)


@pytest.fixture(scope="module")
def scales(model: Model, network: Network) -> Scales:
    # what entropy makes of random data is close to the limit below, and not the same on every
    # processor
    return calibrate(model, network, list(synthetic_inputs(model, 8)), method="minmax")


def build(model: Model, network: Network, scales: Scales, precision: str) -> Artefacts:
    size = len(network.layers)
    return build_reference(
        cut_segments(
            model, network, plan_of(place_all(network, precision, lambda i: i * 5 // size))
        ),
        scales,
    )


@pytest.mark.whole
@pytest.mark.parametrize(("precision", "snr"), [("fp32", 100.0), ("fp16", 25.0), ("int8", 12.0)])
def test_accuracy_by_precision(
    model: Model, network: Network, scales: Scales, precision: str, snr: float
) -> None:
    artefacts = build(model, network, scales, precision)
    result = accuracy(model, artefacts, synthetic_inputs(model, 4))
    assert result.exact or result.snr_db > snr
    assert result.cosine > 0.98
    assert len(result.per_segment) == len(artefacts.lanes[0][1]) > 2
    assert not [note for note in artefacts.notes if "FP16" in note]


@pytest.mark.whole
def test_stripped_engines_are_small_and_refit_bit_for_bit(
    model: Model, network: Network, scales: Scales
) -> None:
    artefacts = build(model, network, scales, "int8")
    weights = sum(value.nbytes for value in artefacts.values.values())
    assert sum(map(len, artefacts.engines.values())) < 0.05 * weights
    for feed in synthetic_inputs(model, 2, seed=3):
        stripped = Runner(artefacts).run(feed)
        full = Runner(artefacts, stripped=False).run(feed)
        assert all(np.array_equal(stripped[name], full[name]) for name in network.outputs)


@pytest.mark.whole
def test_another_seed_refits_without_a_build(
    model: Model, network: Network, scales: Scales
) -> None:
    other = builtin("light_squeezenet", seed=1)
    artefacts = build(model, network, scales, "int8")
    weights, values = derive_weights(artefacts.weights, other)
    fresh = build(other, layers(other), scales, "int8")
    assert weights == fresh.weights
    assert set(values) == set(fresh.values)
    assert artefacts.engines == fresh.engines


def test_a_cache_written_and_read_builds_the_same_engines(
    model: Model, network: Network, scales: Scales, tmp_path: object
) -> None:
    path = f"{tmp_path}/calib.cache"
    write_cache(scales, path, "10.3")
    again = scales_from_cache(load_cache(path), network).scales
    assert again.missing == ()
    first = build(model, network, scales, "int8")
    assert first.engines == build(model, network, again, "int8").engines
