"""Pins that tune leaves say a placement again, and in few words."""

from __future__ import annotations

from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.config.schema import PinSection
from edgekit.tuning.document import plan_pins
from tests.tries import tries

_NAMES = st.text("ab[*?/.1", min_size=1, max_size=5)


def plan_of(devices: dict[str, str]) -> Any:
    return SimpleNamespace(
        layers=[SimpleNamespace(name=name, device=device) for name, device in devices.items()]
    )


@settings(max_examples=tries(60))
@given(st.dictionaries(_NAMES, st.sampled_from(["GPU", "DLA0", "DLA1"]), min_size=1, max_size=12))
def test_every_layer_is_where_it_was(devices: dict[str, str]) -> None:
    pins = plan_pins(plan_of(devices))
    found = {name: pin.device for pin in pins for name in devices if fnmatchcase(name, pin.layers)}
    assert found == devices
    assert len(pins) <= len(devices) + 1


def test_what_is_one_device_but_for_a_layer_takes_two_pins() -> None:
    layers = {f"conv{i}": "DLA0" for i in range(16)}
    assert plan_pins(plan_of({**layers, "erf": "GPU"})) == [
        PinSection(layers="*", device="DLA0"),
        PinSection(layers="erf", device="GPU"),
    ]
    assert plan_pins(plan_of(layers)) == [PinSection(layers="*", device="DLA0")]
    stem = {f"/stem/{i}": "GPU" for i in range(5)} | {f"/stages/{i}": "DLA0" for i in range(9)}
    assert len(plan_pins(plan_of(stem))) == 2
