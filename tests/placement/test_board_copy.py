"""What is known of a board stands in its own file: a copy under another name is the same board."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from edgekit.dla.judge import judge
from edgekit.errors import DataError
from edgekit.knowledge import data_folder
from edgekit.placement.placing import place
from edgekit.placement.plan import Options
from edgekit.targets.board import Target
from edgekit.targets.jetpack import jetpacks
from edgekit.targets.loader import get
from edgekit.tensorrt.releases import release, rules_for
from tests.placement.test_place import chain


def copied(name: str, folder: Path) -> Target:
    shutil.copy(data_folder("targets") / f"{name}.yaml", folder / "another.yaml")
    return get(str(folder / "another.yaml"))


def planned(target: Target, objective: str) -> dict[str, Any]:
    net = chain(["CONVOLUTION", "POOLING", "SOFTMAX", "CONVOLUTION"])
    verdicts = judge(net, target, precision="int8")
    plan = place(net, verdicts, target, precision="int8", options=Options(objective=objective))
    return {**plan.to_json(), "target": ""}


@pytest.mark.parametrize(
    "name",
    [
        "jetson-agx-orin-64gb",
        "jetson-agx-xavier",
        "jetson-orin-nx-8gb",
        "jetson-orin-nano-4gb",
        "drive-orin",
    ],
)
def test_a_copy_of_a_board_has_the_same_numbers(name: str, tmp_path: Path) -> None:
    board, copy = get(name), copied(name, tmp_path)
    assert copy.name == "another"
    for objective in ("latency", "energy"):
        text = str(planned(copy, objective)).replace("another", name)
        assert text == str(planned(board, objective))
    assert jetpacks(copy) == jetpacks(board)
    on = release(board.tensorrt)
    assert rules_for(["VC"], on, copy.platform) == rules_for(["VC"], on, board.platform)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("power: {idle_watts: 7.6,", "power: {", "power: missing: idle_watts"),
        ("platform: jetson, ", "", "module: missing: platform"),
        ("soc: tegra234, ", "", "module: missing: soc"),
        ('generation: "2.0"', 'generation: "3.0"', "dla.generation: '3.0' is not one of"),
        ("cores: 2\n", "\n", "dla: missing: cores"),
        ("sram_kib: 1024", "", "dla: missing: sram_kib"),
        ("dla: 614.4, ", "", "power_modes.15W.dla: one clock"),
        ("gpu: 408, ", "", "power_modes.15W: missing: gpu"),
        (", emc: 2133", "", "power_modes.15W: missing: emc"),
        ("cpu_cores: 4", "cpu_cores: -4", "power_modes.15W.cpu_cores: -4 is not within"),
        ("sms: 16", "sms: 16\n  sm: 16", "gpu: unknown: 'sm'"),
        ("{GPU: VDD_GPU_SOC, DLA", "{XPU: VDD_GPU_SOC, DLA", "rails.devices: 'XPU' is not one of"),
        ("edgekit.target/1", "edgekit.target/1\nmemory: 64", "unknown: 'memory'"),
    ],
)
def test_a_fact_that_a_board_lacks_or_that_is_wrong_is_named(
    old: str, new: str, place: str, tmp_path: Path
) -> None:
    text = (data_folder("targets") / "jetson-agx-orin-64gb.yaml").read_text()
    assert old in text
    path = tmp_path / "another.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        get(str(path))
    assert caught.value.code == "target.invalid"
    assert caught.value.message.startswith(place)


def test_a_factor_of_contention_that_is_none_is_named(tmp_path: Path) -> None:
    text = (data_folder("targets") / "drive-orin.yaml").read_text()
    path = tmp_path / "another.yaml"
    path.write_text(text.replace("{dla_by_dla: 0.028", "{dla_by_dIa: 0.028", 1))
    with pytest.raises(DataError) as caught:
        get(str(path))
    assert caught.value.message.startswith("contention: unknown: 'dla_by_dIa'")
