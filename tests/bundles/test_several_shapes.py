"""Builds of several shapes share the weights of one value, and those of another keep apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.bundles.several import in_one_bundle, together
from edgekit.network.loading.open_axes import load_open
from edgekit.network.ranges import Range
from edgekit.reference.artefacts import Artefacts
from edgekit.reference.open_axes import build_open, golden_shapes
from edgekit.reference.run import Runner
from tests.pipeline.nets import open_net

PROFILE = {"x": Range((1, 3, 16, 16), (1, 3, 32, 32), (1, 3, 64, 64))}


def build(folder: Path, seed: int) -> Artefacts:
    open_net(folder / f"{seed}.onnx", seed=seed)
    return build_open(load_open(folder / f"{seed}.onnx", [PROFILE]), ["conv1"])


def test_weights_of_one_value_are_there_once(tmp_path):
    first, second = in_one_bundle([build(tmp_path, 0), build(tmp_path, 0)])
    assert second.engines == first.engines
    both = together([first, second])
    assert sorted(both.weights) == sorted(first.weights)
    assert len(both.lanes) == 2


def test_another_value_gets_another_name_and_the_engines_answer_as_before(tmp_path):
    builds = [build(tmp_path, 0), build(tmp_path, 1)]
    first, second = in_one_bundle(builds)
    assert sorted(second.weights) == sorted(f"1/{name}" for name in builds[1].weights)
    both = together([first, second])
    assert len(both.weights) == len(first.weights) + len(second.weights)
    x = {"x": np.random.default_rng(0).standard_normal((1, 3, 24, 40)).astype(np.float32)}
    for lane, alone in enumerate(builds):
        expected = Runner(alone).run(x)["y"]
        assert expected.shape == (1, 8, 12, 20)
        assert Runner(both, lane=lane).run(x)["y"].tobytes() == expected.tobytes()


def test_a_range_is_tested_at_its_ends_and_its_best_sizes():
    own = {"x": (1, 3, 32, 32)}
    assert golden_shapes([PROFILE], own) == [
        {},
        {"x": (1, 3, 16, 16)},
        {"x": (1, 3, 64, 64)},
    ]
    assert golden_shapes([], own) == [{}]
