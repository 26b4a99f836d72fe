"""The lines of ``edgekit doctor``: each part of a probe, judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from edgekit.pipeline._doctor_check import Check
from edgekit.pipeline._doctor_engines import cuda, dla, tensorrt

__all__ = ["CHECKS"]

_GIB = 1 << 30
_LEAST_DISK, _LEAST_MEMORY = 2 * _GIB, 1 * _GIB
_SETUP = "edgekit doctor --setup prepares it"


def _board(probe: Mapping[str, Any]) -> Iterator[Check]:
    name = " ".join(filter(None, (probe["module"], probe["board_id"] and f"({probe['board_id']})")))
    if probe["l4t"]:
        jetpack = f", JetPack {probe['jetpack']}" if probe["jetpack"] else ""
        yield Check("board.l4t", "Jetson Linux", "ok", f"L4T {probe['l4t']}{jetpack}")
    else:
        yield Check(
            "board.l4t",
            "Jetson Linux",
            "warn",
            "no /etc/nv_tegra_release",
            "this is no Jetson: the reference backend can run here",
        )
    yield Check(
        "board.module", "Module", "ok" if name else "warn", name or "not in the device tree"
    )


def _python(probe: Mapping[str, Any]) -> Iterator[Check]:
    yield Check("python", "Python", "ok", probe["python"])
    if probe["numpy"]:
        yield Check("python.numpy", "NumPy", "ok", probe["numpy"])
    else:
        yield Check(
            "python.numpy",
            "NumPy",
            "missing",
            "not found by the board's Python",
            "sudo apt-get install python3-numpy",
        )
    if probe["ssh_keygen"]:
        yield Check("openssh", "ssh-keygen", "ok", f"OpenSSH {probe['ssh_keygen']}")
    else:
        yield Check(
            "openssh",
            "ssh-keygen",
            "missing",
            "signatures cannot be checked",
            "sudo apt-get install openssh-client",
        )


def _power(probe: Mapping[str, Any]) -> Iterator[Check]:
    if not probe["l4t"]:
        return
    power = probe["power"]
    if power["mode"]:
        yield Check("power.mode", "Power mode", "ok", f"{power['mode']} (id {power['id']})")
    else:
        yield Check("power.mode", "Power mode", "warn", "nvpmodel said nothing", _SETUP)
    clocks = power["clocks"]
    if not clocks:
        yield Check("power.clocks", "Clocks", "warn", "jetson_clocks said nothing", _SETUP)
    elif clocks.get("gpu", {}).get("locked"):
        yield Check("power.clocks", "Clocks", "ok", "held at their highest")
    else:
        yield Check(
            "power.clocks",
            "Clocks",
            "warn",
            "they move with the load",
            "sudo jetson_clocks, for measurements that repeat",
        )
    lacks = sorted({"video", "render"} - set(probe["groups"]))
    if lacks and not probe["user"]["root"]:
        yield Check("groups", "Groups", "warn", f"not in {' and '.join(lacks)}", _SETUP)
    else:
        yield Check("groups", "Groups", "ok", "root" if probe["user"]["root"] else "video, render")


def _room(probe: Mapping[str, Any]) -> Iterator[Check]:
    free = probe["disk_free"]
    low = free < _LEAST_DISK
    yield Check(
        "disk",
        "Free disk",
        "warn" if low else "ok",
        f"{free / _GIB:.1f} GiB",
        "edgekit keeps deploy.keep releases; gc removes the others" if low else "",
    )
    available = probe["memory"]["available"]
    if available is not None:
        low = available < _LEAST_MEMORY
        yield Check(
            "memory",
            "Free memory",
            "warn" if low else "ok",
            f"{available / _GIB:.1f} GiB",
            "a build may run out of memory: stop what else runs there" if low else "",
        )


def _docker(probe: Mapping[str, Any]) -> Iterator[Check]:
    docker = probe["docker"]
    if docker is None:
        return
    if docker["runtimes"] is None:
        yield Check(
            "docker",
            "Docker",
            "warn",
            f"{docker['path']} refuses this account",
            "for `container:` only: sudo usermod -aG docker USER",
        )
    elif "nvidia" not in docker["runtimes"]:
        yield Check(
            "docker",
            "Docker",
            "warn",
            "without the runtime nvidia",
            "for `container:` only: sudo apt-get install nvidia-container-toolkit",
        )
    else:
        yield Check("docker", "Docker", "ok", f"{docker['version']}, runtime nvidia")


CHECKS: tuple[Callable[[Mapping[str, Any]], Iterator[Check]], ...] = (
    _board,
    _python,
    tensorrt,
    cuda,
    dla,
    _power,
    _room,
    _docker,
)
