"""Labelled inputs: how many the build gets right, and files that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.errors import EdgekitError
from edgekit.network.loading.load import load
from edgekit.network.session import session
from tests.pipeline.nets import small_config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return small_config(tmp_path, extra="accuracy: {labelled: shown.npz}\n")


def shown(config: Path, **arrays: Any) -> None:
    np.savez(config.with_name("shown.npz"), **arrays)


def images(config: Path, count: int = 6) -> np.ndarray:
    shape = load(config.with_name("small.onnx")).graph.shape("x")
    return np.random.default_rng(3).standard_normal((count, *shape[1:])).astype(np.float32)


def test_labels_are_counted_as_built_and_in_fp32(config: Path) -> None:
    model, x = load(config.with_name("small.onnx")), images(config)
    run = session(model)
    labels = np.array([run.run(None, {"x": one[None]})[0].argmax() for one in x])
    labels[:2] = (labels[:2] + 1) % 10
    shown(config, x=x, labels=labels)
    built = edgekit.build(config)
    (note,) = (one for one in built.notes if "labels of shown.npz" in one)
    assert note.endswith("right as built, 4 in FP32")
    assert any(note in step.detail for step in built.steps)
    # the same count again, without running anything
    assert note in edgekit.build(config).notes


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (lambda x: {"x": x}, "has no array 'labels'"),
        (lambda x: {"x": x, "labels": np.ones(6)}, "has no array 'labels'"),
        (lambda x: {"y": x, "labels": np.arange(6)}, "has y"),
        (lambda x: {"x": x[:5], "labels": np.arange(6)}, "has 'x' as float32 [5"),
        (lambda x: {"x": x.astype(np.float64), "labels": np.arange(6)}, "has 'x' as float64"),
    ],
)
def test_a_file_that_does_not_fit(
    config: Path, arrays: Callable[[np.ndarray], dict[str, np.ndarray]], words: str
) -> None:
    shown(config, **arrays(images(config)))
    with pytest.raises(EdgekitError) as caught:
        edgekit.build(config)
    assert (caught.value.code, caught.value.exit_code) == ("data.labels", 2)
    assert words in caught.value.message
    assert caught.value.where == str(config.with_name("shown.npz"))
    assert {step["name"] for step in caught.value.extra["steps"]} <= {"check"}


@pytest.mark.parametrize("data", [None, b"", b"no archive"])
def test_a_file_that_cannot_be_read_is_refused_before_anything_is_built(
    config: Path, data: bytes | None
) -> None:
    if data is not None:
        config.with_name("shown.npz").write_bytes(data)
    with pytest.raises(EdgekitError) as caught:
        edgekit.build(config)
    assert caught.value.code == "data.labels"
    assert "steps" in caught.value.extra
    assert not caught.value.extra["steps"]
