"""Whether a board can build a plan and run it, told before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.errors import BoardError, EnvironmentLack
from edgekit.pipeline._board_request import release_of

if TYPE_CHECKING:
    from edgekit.deploy import BoardClient
    from edgekit.pipeline._work import Work

__all__ = ["check_board", "check_runs", "is_planned"]


def check_board(
    work: Work, client: BoardClient, probe: Mapping[str, Any], *, deploys: bool
) -> None:
    """Refuses a board that the plan is not for, or that lacks what the engines need.

    Args:
        work: The configuration's work.
        client: The board.
        probe: What it is.
        deploys: Whether the board is to run what it builds, not only to build it.

    Raises:
        BoardError: "board.other-tensorrt": another release than was planned for; "board.no-dla":
            the plan uses DLA cores that its TensorRT does not drive.
        EnvironmentLack: "board.no-numpy", "board.no-cudla", "board.no-runtime".
    """
    _numpy(client, probe)
    _release(work, client, probe)
    dla = {x.device for share in work.plan.plans for x in share.layers} - {"GPU"}
    if dla:
        _cores(work, client, probe, dla)
    build = work.file.build
    if dla and build.mode != "hybrid":
        _cudla(client, probe, f"build.mode: {build.mode} makes DLA loadables")
    if deploys and build.mode != "standalone":
        _runtime(client, probe, compatible=build.version_compatible is not False)


def check_runs(client: BoardClient, probe: Mapping[str, Any], engines: Mapping[str, Any]) -> None:
    """Refuses a board that cannot run a bundle's engines, before they are sent.

    Args:
        client: The board.
        probe: What it is.
        engines: The manifest's "engines".

    Raises:
        EnvironmentLack: "board.no-numpy", "board.no-cudla", "board.no-runtime".
    """
    _numpy(client, probe)
    plans = [one for one in engines.values() if one["kind"] == "plan"]
    if len(plans) < len(engines):
        _cudla(client, probe, "the bundle has DLA loadables")
    if plans:
        _runtime(client, probe, compatible=all(one["version_compatible"] for one in plans))


def is_planned(release: str, planned: str) -> bool:
    """Whether a board's TensorRT is what a plan is for, as far as both are told.

    A planned patch ("11.4.1") is the oldest that will do: what a DLA can run is told of it.
    """
    here, wanted = ([int(x) for x in text.split(".") if x.isdigit()] for text in (release, planned))
    known = min(len(here), len(wanted))
    return here[:2] == wanted[:2] and here[2:known] >= wanted[2:known]


def _numpy(client: BoardClient, probe: Mapping[str, Any]) -> None:
    if probe["numpy"]:
        return
    from edgekit.pipeline._doctor import examine

    (check,) = (one for one in examine(probe)["checks"] if one["id"] == "python.numpy")
    raise EnvironmentLack(
        f"{check['what']} is {check['found']}",
        code="board.no-numpy",
        where=client.name,
        hint=check["fix"],
    )


def _release(work: Work, client: BoardClient, probe: Mapping[str, Any]) -> None:
    release, planned = release_of(probe), work.tensorrt
    if release and not is_planned(release, planned):
        parts = max(2, len(planned.split(".")))
        raise BoardError(
            f"the board has TensorRT {release}, and the plan is for {planned}",
            code="board.other-tensorrt",
            where=client.name,
            hint=f"write tensorrt: {'.'.join(release.split('.')[:parts])} into the configuration, "
            "for the rules of what a DLA can run differ",
        )


def _cores(work: Work, client: BoardClient, probe: Mapping[str, Any], used: set[str]) -> None:
    from edgekit.dla import drives_dla

    release, cores = release_of(probe), probe["dla"]["cores"]
    if release and not drives_dla(work.target, release):
        why = f"TensorRT {release} there does not drive its DLA"
    elif cores is not None and any(int(device[3:]) >= cores for device in used):
        why = f"TensorRT has {cores} DLA cores there"
    else:
        return
    raise BoardError(
        f"the plan uses {', '.join(sorted(used))}, and {why}",
        code="board.no-dla",
        where=client.name,
        hint="edgekit doctor says why; placement.dla_cores: [] plans for the GPU alone",
    )


def _cudla(client: BoardClient, probe: Mapping[str, Any], what: str) -> None:
    if not probe["cudla"]:
        raise EnvironmentLack(
            f"{what}, and the board has no libcudla to run them",
            code="board.no-cudla",
            where=client.name,
            hint=f"it comes with CUDA's package {_cudla_package(probe)}; build.mode: hybrid does "
            "without",
        )


def _runtime(client: BoardClient, probe: Mapping[str, Any], *, compatible: bool) -> None:
    """The lean and dispatch runtimes run version compatible plans alone."""
    there = [name for name, version in probe["tensorrt"]["python"].items() if version]
    if "full" in there or (there and compatible):
        return
    other = f"only the {there[0]} one, which runs no such plans" if there else "none"
    raise EnvironmentLack(
        f"engines run through TensorRT's Python module, and of its kinds the board has {other}",
        code="board.no-runtime",
        where=client.name,
        hint="sudo apt-get install python3-libnvinfer; edgekit build alone does without, with "
        "trtexec, and build.backend: reference altogether",
    )


def _cudla_package(probe: Mapping[str, Any]) -> str:
    cuda = str(probe.get("cuda") or "").split(".")
    return f"libcudla-{cuda[0]}-{cuda[1]}" if len(cuda) > 1 else "libcudla"
