"""A cache of a network before it was rewritten, for the network after it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from edgekit.network.lowering.layers import layers
from edgekit.network.model import Model, Network
from edgekit.network.session import session
from edgekit.network.synthetic import synthetic_inputs
from edgekit.network.zoo import builtin
from edgekit.quantize.caches import CalibrationCache, equal_tensors, scales_from_cache
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.quantize.quantize_nets import make, node
from tests.rewriting import real_nets

ORIN = get("jetson-agx-orin-64gb")


def cache(scales: Mapping[str, float]) -> CalibrationCache:
    return CalibrationCache(100300, "EntropyCalibration2", dict(scales))


SMALL = ["yolo_v5", "mobilenet_v3", "unet", "audio_1d", "nhwc_classifier"]


def _rewritten(original: Model) -> tuple[Model, set[str]]:
    """The rewritten model, and the tensors that a cache of the original lists."""
    rewritten, applied, *_ = rewrite(original, ORIN, precision="int8", tensorrt="10.3")
    assert applied
    listed = {out for item in original.proto.graph.node for out in item.output}
    return rewritten, listed | {value.name for value in original.proto.graph.input}


def _largest(model: Model, network: Network) -> dict[str, float]:
    """The largest magnitudes of a model's tensors on one input, as scales."""
    (feed,) = synthetic_inputs(model, 1, 7)
    written = {out for item in model.proto.graph.node for out in item.output}
    wanted = [n for n in network.tensors if n in written]
    values = session(model, outputs=wanted).run(wanted, feed)
    found = {**feed, **dict(zip(wanted, values, strict=True))}
    return {n: float(np.abs(value).max()) / 127 for n, value in found.items()}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["light_squeezenet", "light_shufflenet"])
def test_no_scale_is_missing_for_want_of_a_name(name: str) -> None:
    original = builtin(name, 0)
    rewritten, listed = _rewritten(original)
    after = layers(rewritten)
    known = cache(dict.fromkeys(listed, 0.5))
    assert not scales_from_cache(known, after, model=rewritten, original=original).lacks
    # the rewritten network alone does not tell what its new tensors hold
    assert {lack.tensor for lack in scales_from_cache(known, after).lacks}.isdisjoint(listed)
    assert scales_from_cache(known, after).lacks


@pytest.mark.parametrize("name", SMALL)
def test_a_cache_of_the_original_serves_the_rewritten_network(name: str) -> None:
    original = getattr(real_nets, name)()
    rewritten, listed = _rewritten(original)
    before, after = layers(original), layers(rewritten)
    known = cache(_largest(original, before))
    reading = scales_from_cache(known, after, model=rewritten, original=original)
    assert not reading.lacks
    measured = _largest(rewritten, after)
    # names that stay mean the same values
    for tensor in listed & measured.keys():
        assert measured[tensor] == pytest.approx(known.scales[tensor], rel=1e-3), tensor
    # what is inferred holds all values on these inputs, unless the readers clip or cut them
    readers = after.consumers()
    for tensor in measured.keys() & reading.inferred.keys():
        if not any(layer.kind in ("ACTIVATION", "SLICE") for layer in readers.get(tensor, ())):
            assert reading.scales.scales[tensor] >= measured[tensor] * (1 - 1e-3), tensor


def test_equal_values_are_found_whatever_their_order() -> None:
    original, _ = make(
        [node("Relu", "x", "a"), node("Neg", "x", "b"), node("Add", "a b", "y")],
        {},
        {"x": [1, 4, 4, 4]},
        ["y"],
    )
    other, _ = make(
        [
            node("Transpose", "x", "t", perm=[0, 2, 3, 1]),
            node("Relu", "t", "r"),
            node("Abs", "t", "n"),
            node("Add", "r n", "y"),
        ],
        {},
        {"x": [1, 4, 4, 4]},
        ["y"],
    )
    assert equal_tensors(original, other, {"a", "b"}, {"t", "r", "n"}) == {"r": ("a",)}
    assert equal_tensors(original, other, set(), {"t"}) == {}
