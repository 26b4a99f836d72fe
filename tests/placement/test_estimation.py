"""What measured sums teach about the layers in them: samples keep the sums."""

from __future__ import annotations

import numpy as np

from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.placement.profiles.estimation import TimingEvidence, estimate
from tests.pipeline.nets import small_net


def test_samples_keep_the_measured_sums(tmp_path):
    small_net(tmp_path / "small.onnx")
    network = layers(load(tmp_path / "small.onnx"))
    count = len(network.layers)
    prior = {"GPU": np.linspace(1.0, 9.0, count), "DLA": np.linspace(30.0, 2.0, count)}
    parts = [
        ("GPU", range(count), 200.0),
        ("GPU", range(2), 3.0),
        ("GPU", range(1, count - 1), 30.0),
        ("DLA", range(count // 2), 15.0),
        ("DLA", range(1, count), 300.0),
    ]
    evidence = [TimingEvidence(tuple((name, i, 1.0) for i in some), us) for name, some, us in parts]
    learnt = estimate(network, prior, evidence)
    rows = np.array([learnt.row([(name, i) for i in some]) for name, some, _ in parts])
    measured = np.array([us for _, _, us in parts])
    assert np.allclose(rows @ np.exp(learnt.mean), measured, rtol=0.02)
    random = np.random.default_rng(0)
    # draws of the prior three times as wide as it is begin far from all sums
    samples = np.exp([learnt.sample(random, 3.0) for _ in range(200)])
    off = np.abs(samples @ rows.T / measured - 1).max(axis=1)
    # a sum has a deviation of 0.01; a few samples end in a valley of their own
    assert np.quantile(off, 0.95) < 0.05
    assert samples.std(axis=0).max() > 1  # and the samples differ
