"""Outputs that are NaN or infinite in FP16 are named, with the node that began it."""

import numpy as np

from edgekit.placement.segments import cut_segments
from edgekit.reference.accuracy import NodePlace, accuracy
from edgekit.reference.build import build_reference
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of


def test_an_overflow_is_reported_with_the_node_that_began_it():
    model = model_of(
        [
            node("Add", "x mask", "masked"),
            node("Mul", "x big", "huge"),
            node("Mul", "huge small", "fine"),
            node("Sub", "huge huge", "zero"),
            node("Exp", "masked", "e"),
            node("Add", "fine e", "sum"),
        ],
        {
            "big": np.float32([1000.0]),
            "small": np.float32([0.001]),
            "mask": np.float32([0.0, -np.inf]),
        },
        {"x": (1, 2)},
        ["sum", "zero"],
    )
    network = network_of(model)
    plan = plan_of(place_all(network, "fp16", lambda i: i // 2))
    artefacts = build_reference(cut_segments(model, network, plan), None)
    feeds = [{"x": np.float32([[1.0, 2.0]])}, {"x": np.float32([[1.0, 200.0]])}]
    rows = {row.output: row for row in accuracy(model, artefacts, feeds).nonfinite}
    assert rows["sum"].what == "infinity"
    assert rows["zero"].what == "NaN"
    assert rows["sum"].inputs == 1
    # "masked" is infinite in FP32, too
    assert rows["sum"].since == NodePlace("huge", 0, "GPU")
    assert "'sum' has infinity for 1 of 2 inputs, first written by node 'huge'" in (
        rows["sum"].message
    )
    assert accuracy(model, artefacts, feeds[:1]).nonfinite == ()
