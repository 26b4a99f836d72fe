"""Stripped engines of the double hold no weights until they are refitted, by name or by ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.edgekit_device.tensorrt.toys import network, random_input, weights_of
from tests.trt_double.double_toys import Setup, setup, toy
from tests.trt_double.test_double_runtime import run

STRIPPING = ("10.3.0", "10.7.0", "10.16.1", "11.4.0")


def weights(version: str = "10.3.0") -> dict[str, np.ndarray]:
    return weights_of(network(), version)


def stripped(version: str, *flags: str) -> tuple[Setup, Any]:
    on = setup(version, "STRIP_PLAN", *flags)
    return on, on.runtime().deserialize_cuda_engine(on.plan())


@pytest.mark.parametrize("version", STRIPPING)
def test_a_stripped_engine_gives_the_full_ones_bits_after_refitting(version: str) -> None:
    full = setup(version)
    wanted = run(full.runtime().deserialize_cuda_engine(full.plan()), random_input())
    on, engine = stripped(version)
    assert engine.refittable
    wrong = run(engine, random_input())
    assert not np.array_equal(wrong, wanted)
    assert on.violations == ["a stripped engine ran before it was refitted"]
    refitter = on.trt.Refitter(engine, on.logger)
    made = "tmp_batch_norm_weight" if version in ("10.3.0", "10.7.0") else "tmp_refittable_weight"
    names = ["conv_w", "fc_b", "fc_w", made, f"{made}_0"]
    assert refitter.get_all_weights() == refitter.get_missing_weights() == names
    for name, value in weights(version).items():
        assert refitter.get_weights_prototype(name).size == value.size
        assert refitter.set_named_weights(name, on.trt.Weights(value))
    assert refitter.get_missing_weights() == []
    assert refitter.refit_cuda_engine()
    np.testing.assert_array_equal(run(engine, random_input()), wanted)


def test_identical_means_the_same_weights() -> None:
    for flags, offends in (((), True), (("REFIT",), False)):
        on, engine = stripped("10.3.0", *flags)
        refitter = on.trt.Refitter(engine, on.logger)
        for name, value in weights().items():
            refitter.set_named_weights(name, on.trt.Weights(value + 1))
        assert refitter.refit_cuda_engine()
        assert bool(on.violations) is offends


def test_memory_is_read_when_the_engine_is_refitted() -> None:
    on, engine = stripped("10.3.0", "REFIT")
    refitter = on.trt.Refitter(engine, on.logger)
    retained = {name: value.copy() for name, value in weights().items()}
    for name, value in retained.items():
        refitter.set_named_weights(name, on.trt.Weights(value))
    for value in retained.values():
        value[:] = 0  # a caller that frees or reuses the memory too early
    refitter.refit_cuda_engine()
    assert not run(engine, random_input()).any()


@pytest.mark.parametrize(("version", "stays"), [("10.3.0", False), ("10.16.1", True)])
def test_a_full_plan_is_retained_and_refittable_where_the_release_can(
    version: str, stays: bool
) -> None:
    on, engine = stripped(version)
    refitter = on.trt.Refitter(engine, on.logger)
    assert on.trt.OnnxParserRefitter(refitter, on.logger).refit_from_bytes(toy())
    assert refitter.refit_cuda_engine()
    config = engine.create_serialization_config()
    flags = on.trt.SerializationFlag
    assert config.get_flag(flags.EXCLUDE_WEIGHTS)
    config.clear_flag(flags.EXCLUDE_WEIGHTS)
    if stays:
        config.set_flag(flags.INCLUDE_REFIT)
    again = on.runtime().deserialize_cuda_engine(engine.serialize_with_config(config))
    assert again.refittable is stays
    np.testing.assert_array_equal(run(again, random_input()), run(engine, random_input()))
    bare = on.runtime().deserialize_cuda_engine(engine.serialize())
    assert on.violations == []
    run(bare, random_input())
    assert on.violations == ["a stripped engine ran before it was refitted"]


def test_weights_are_not_saved_before_they_are_there() -> None:
    on, engine = stripped("10.3.0")
    config = engine.create_serialization_config()
    config.clear_flag(on.trt.SerializationFlag.EXCLUDE_WEIGHTS)
    engine.serialize_with_config(config)
    assert on.violations == ["weights were serialised before the stripped engine was refitted"]


def test_an_engine_without_refit_has_no_refitter() -> None:
    on = setup("8.6.1")
    engine = on.runtime().deserialize_cuda_engine(on.plan())
    assert not engine.refittable
    with pytest.raises(TypeError, match="nullptr"):
        on.trt.Refitter(engine, on.logger)
    assert "condition: e.isRefittable()" in on.logged[-1]
