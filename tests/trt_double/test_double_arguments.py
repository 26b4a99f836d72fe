"""The double refuses what the bindings refuse, and what they would take by mistake."""

from typing import Any

import pytest

from tests.trt_double import double
from tests.trt_double.double_toys import setup


@pytest.fixture
def trt() -> Any:
    return double.module("10.3.0")


def test_unknown_attributes_are_no_attributes(trt: Any) -> None:
    logger = trt.Logger()
    with pytest.raises(AttributeError):
        logger.severity  # noqa: B018
    with pytest.raises(AttributeError):
        logger.severity = 1
    with pytest.raises(AttributeError):
        trt.BuilderFlag.NOTHING  # noqa: B018


def test_a_read_only_property_refuses(trt: Any) -> None:
    with pytest.raises(AttributeError):
        trt.Builder(trt.Logger()).num_DLA_cores = 1


def test_a_tensors_type_is_fixed_from_11_on() -> None:
    old, new = (setup(version) for version in ("10.3.0", "11.4.0"))
    old.network.get_input(0).dtype = old.trt.float16
    with pytest.raises(AttributeError):
        new.network.get_input(0).dtype = new.trt.float16


@pytest.mark.parametrize(
    ("arguments", "named", "why"),
    [
        ((), {}, "misses logger"),
        (("logger",), {}, "logger is a ILogger"),
        ((), {"log": None}, "misses logger"),
        ((None, None), {}, "takes 1 arguments, got 2"),
    ],
)
def test_arguments_fit_the_signature(trt: Any, arguments: Any, named: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        trt.Builder(*arguments, **named)


def test_keywords_are_the_releases_own() -> None:
    for version, fits in (("8.6.1", False), ("10.3.0", True)):
        on = setup(version, "REFIT")
        engine = on.runtime().deserialize_cuda_engine(on.plan())
        if fits:
            assert engine.create_execution_context(
                strategy=on.trt.ExecutionContextAllocationStrategy.STATIC
            )
        else:
            with pytest.raises(TypeError, match="has no parameter strategy"):
                engine.create_execution_context(strategy=0)


def test_a_nameless_parameter_takes_no_keyword() -> None:
    on = setup("10.3.0")
    engine = on.runtime().deserialize_cuda_engine(on.plan())
    config = engine.create_serialization_config()
    assert engine.serialize_with_config(config) is not None
    with pytest.raises(TypeError, match="misses arg0"):
        engine.serialize_with_config(arg0=config)


def test_enums_of_another_class_do_not_fit() -> None:
    on = setup("10.3.0")
    with pytest.raises(TypeError, match="flag is a BuilderFlag"):
        on.config.set_flag(on.trt.DeviceType.DLA)
    with pytest.raises(TypeError, match="DLA_core is a int"):
        on.config.DLA_core = "0"
    with pytest.raises(TypeError, match="DeviceType"):
        on.config.default_device_type = 1


def test_a_format_is_no_mask_of_formats() -> None:
    on = setup("10.3.0")
    with pytest.raises(TypeError, match="allowed_formats is a int"):
        on.network.get_input(0).allowed_formats = on.trt.TensorFormat.CHW16
    with pytest.raises(TypeError):
        1 << on.trt.TensorFormat.CHW16


def test_members_equal_their_own_kind_alone(trt: Any) -> None:
    assert trt.DeviceType.DLA != trt.DataType.HALF
    assert int(trt.DeviceType.DLA) == int(trt.DataType.HALF)
    assert trt.DeviceType.DLA != 1
    assert trt.DeviceType(1) == trt.DeviceType.DLA
    with pytest.raises(TypeError):
        trt.DeviceType("DLA")
    with pytest.raises(AttributeError):
        trt.DeviceType.DLA.name = "x"


def test_a_derived_class_calls_its_bases_constructor(trt: Any) -> None:
    class Forgot(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            pass

    class Retained(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            self.lines.append(msg)

    with pytest.raises(TypeError, match="must be called"):
        Forgot()
    retained = Retained()
    assert trt.Builder(retained).create_network(0).num_layers == 0
    with pytest.raises(TypeError, match="No constructor"):
        trt.INetworkDefinition()


def test_memory_is_a_buffer_and_no_sequence() -> None:
    plan = setup("10.3.0").plan()
    assert bytes(plan)[:4] == b"ftrt"
    assert memoryview(plan).nbytes == plan.nbytes
    for wrong in (len, iter, lambda memory: memory[0], lambda memory: memory + b""):
        with pytest.raises(TypeError):
            wrong(plan)
    with pytest.raises(AttributeError):
        plan.hex()


def test_what_is_not_played_says_so(trt: Any) -> None:
    with pytest.raises(double.NotPlayed):
        trt.get_builder_plugin_registry(trt.EngineCapability.STANDARD)
