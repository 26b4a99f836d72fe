"""What doctor makes of a probe, and which boards a user means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.config.loader import Config, open_config
from edgekit.deployment.board import DescribedBoard
from edgekit.deployment.doctor import BoardAbilities, Doctor, examine
from edgekit.errors import UsageError
from edgekit.pipeline.boards.addresses import host_board, resolve_boards
from edgekit.pipeline.boards.checkup import planned_board
from edgekit_device.board.probe import Probe
from edgekit_device.protocol.codec import read
from tests.security.board_answers import SAMPLES


def probe(**changes: Any) -> Probe:
    """An AGX Orin with JetPack 6.2 where all is well, but for the fields of ``changes``."""
    return read(Probe, probe_json(**changes))


def probe_json(**changes: Any) -> dict[str, Any]:
    """An AGX Orin with JetPack 6.2 where all is well."""
    versions = {"full": "10.3.0.30", "lean": "10.3.0.30", "dispatch": "10.3.0.30"}
    found: dict[str, Any] = {
        "module": "NVIDIA Jetson AGX Orin Developer Kit",
        "board_id": "p3701-0005",
        "l4t": "36.4.3",
        "jetpack": "6.1 to 6.2.3",
        "cuda": "12.6",
        "cuda_driver": "12.6",
        "compute_capability": "8.7",
        "python": "3.10.12",
        "numpy": "1.26.4",
        "onnxruntime": None,
        "tensorrt": {**versions, "python": dict(versions), "libraries": {}},
        "trtexec": {"path": "/usr/src/tensorrt/bin/trtexec", "version": "10.3.0"},
        "dla": {"cores": 2, "devices": ["a", "b"], "compiler": "x", "compiler_version": "1"},
        "cudla": "/usr/lib/libcudla.so.1",
        "disk_free": 10 << 30,
        "docker": None,
        "power": {
            "mode": "MAXN",
            "id": 0,
            "modes": [{"id": 0, "name": "MAXN"}],
            "clocks": {"gpu": {"locked": True}},
        },
        "memory": {"total": 60 << 30, "available": 50 << 30},
        "user": {"uid": 1000, "root": False},
        "groups": ["video", "render"],
        "ssh_keygen": "8.9p1",
        "notes": [],
    }
    return {**SAMPLES["probe"], **found, **changes}


def look(found: Probe, config: Config | None = None) -> Doctor:
    planned = None if config is None else planned_board(config)
    return examine(DescribedBoard("lab", "remote", ""), found, planned)


def status(document: Doctor) -> dict[str, str]:
    return {check.id: check.status for check in document.checks}


def test_a_good_board_has_no_complaints() -> None:
    document = look(probe())
    assert document.ok
    assert set(status(document).values()) == {"ok"}
    assert document.can == BoardAbilities(
        ("tensorrt",), ("full", "lean", "dispatch"), 2, True, ("MAXN",)
    )


@pytest.mark.parametrize(
    ("changes", "id", "expected", "says"),
    [
        ({"numpy": None}, "python.numpy", "missing", "python3-numpy"),
        ({"ssh_keygen": None}, "openssh", "missing", "openssh-client"),
        ({"compute_capability": None}, "cuda", "missing", "render"),
        (
            {
                "compute_capability": None,
                "notes": ["the CUDA driver: libcuda.so.1: cannot open shared object file"],
            },
            "cuda",
            "missing",
            "l4t-cuda",
        ),
        ({"groups": ["ada", "video"]}, "groups", "warn", "--setup"),
        ({"disk_free": 1 << 20}, "disk", "warn", "gc"),
        ({"cudla": None}, "dla.cudla", "warn", "standalone"),
        ({"docker": {"path": "d", "version": None, "runtimes": None}}, "docker", "warn", "docker"),
    ],
)
def test_each_lack_is_reported_with_its_remedy(
    changes: dict[str, Any], id: str, expected: str, says: str
) -> None:
    document = look(probe(**changes))
    check = next(one for one in document.checks if one.id == id)
    assert check.status == expected
    assert says in check.fix
    assert document.ok is (expected != "missing")


def test_a_dla_without_its_compiler_is_missing() -> None:
    dla = {"cores": 0, "devices": ["nvdla0"], "compiler": None, "compiler_version": None}
    document = look(probe(dla=dla))
    assert status(document)["dla"] == "missing"


def test_a_machine_that_is_no_jetson_only_warns() -> None:
    none = {"full": None, "lean": None, "dispatch": None}
    document = look(
        probe(
            l4t=None,
            module=None,
            board_id=None,
            compute_capability=None,
            onnxruntime="1.20",
            tensorrt={**none, "python": none, "libraries": {}},
            trtexec=None,
            dla={"cores": None, "devices": [], "compiler": None, "compiler_version": None},
        )
    )
    assert document.ok
    assert document.can is not None
    assert document.can.backends == ("reference",)


def config(tmp_path: Path, target: str, tensorrt: str) -> Path:
    path = tmp_path / "net.yaml"
    path.write_text(
        f"version: 1\nname: net\nmodel: {{builtin: light_resnet18}}\ntarget: {target}\n"
        f"tensorrt: '{tensorrt}'\ndeploy:\n  boards:\n"
        "    - {name: lab, host: 10.0.0.7, container: {image: toy, options: [--ipc, host]}}\n"
    )
    return path


def test_a_board_is_held_against_the_configuration(tmp_path: Path) -> None:
    right = open_config(str(config(tmp_path, "jetson-agx-orin-64gb", "10.3")))
    assert look(probe(), right).ok
    assert status(look(probe(), right))["fits.power-mode"] == "ok"
    power = {**probe_json()["power"], "mode": "MODE_50W", "id": 3}
    dla = {**probe_json()["dla"], "devices": [], "cores": None}
    found = look(probe(power=power, dla=dla), right)
    reported = {one.id: one for one in found.checks if one.id.startswith("fits.")}
    assert {reported[name].status for name in ("fits.power-mode", "fits.dla")} == {"warn"}
    assert reported["fits.power-mode"].found == "planned for MAXN, the board is in MODE_50W"
    wrong = open_config(str(config(tmp_path, "jetson-orin-nx-16gb", "8.6")))
    fits = status(look(probe(), wrong))
    assert (fits["fits.target"], fits["fits.tensorrt"]) == ("missing", "missing")


def test_who_is_meant(tmp_path: Path) -> None:
    path = str(config(tmp_path, "jetson-agx-orin-64gb", "10.3"))
    (board,) = resolve_boards(path)
    assert board.container is not None
    assert (board.name, board.container.options) == ("lab", ("--ipc", "host"))
    assert resolve_boards("lab", open_config(path)) == [board]
    other = host_board("ada@10.0.0.8:2222")
    assert (other.user, other.host, other.port) == ("ada", "10.0.0.8", 2222)
    assert host_board("orin").port is None
    assert host_board("[fe80::1]:22").host == "fe80::1"
    for text in ("", "a b", "host:port", "@host"):
        with pytest.raises(UsageError):
            host_board(text)
