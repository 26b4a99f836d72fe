"""What a search of tune finds is told from others before its plan is made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.dla.judge import judge
from edgekit.network.load import load
from edgekit.network.lowering.layers import layers
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import Options
from edgekit.placement.profiles.estimation import estimate
from edgekit.placement.search import PlanShare
from edgekit.targets.loader import get
from edgekit.tuning import candidates as trial_space
from edgekit.tuning.candidates import STEPS, device_class, plan_signature
from tests.pipeline.nets import small_net

ORIN = get("jetson-agx-orin-64gb")


@pytest.mark.parametrize("objective", ["throughput", "latency"])
def test_a_key_is_the_plans_and_costs_no_plan(
    objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_net(tmp_path / "small.onnx")
    net = layers(load(tmp_path / "small.onnx"))
    options = Options(objective=objective, dla_cores=(0, 1))
    query = PlacementQuery(net, judge(net, ORIN, precision="fp16"), ORIN, "fp16", None, options)
    space = trial_space.PlacementSpace(query.prepared())
    learnt = estimate(net, space.prior_us, ())
    random = np.random.default_rng(3)
    found = [space.solve(learnt, learnt.sample(random)) for _ in range(6)]
    keys = set()
    for placed in found:
        assert placed is not None
        assert placed.plan is not None
        assert placed.key == plan_signature(placed.plan)
        keys.add(placed.key)
        device = {layer.name: device_class(layer.device) for layer in placed.plan.layers}
        for v, kernel in enumerate(space.kernels):
            assert placed.class_at(v) == device[net.layers[kernel.layers[-1]].name]
    assert len(keys) > 1
    # shares that moved a little are no other plan, and nothing is assembled to see it
    monkeypatch.setattr(trial_space, "assemble", None)
    for placed in found:
        assert placed is not None
        moved = tuple(PlanShare(p.share + 1e-9, p.placing) for p in placed.parts)
        if all(round(a.share * STEPS) == round(b.share * STEPS)
               for a, b in zip(moved, placed.parts, strict=True)):  # fmt: skip
            assert space.key(moved) == placed.key
