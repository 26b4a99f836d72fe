"""A board's requirements for building and running engines: NumPy, cuDLA, DLA cores, the planned
TensorRT and a runtime; and the compatibility of engines between boards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from edgekit.deployment.doctor import INSTALL_RUNTIME, NO_NUMPY, NOTHING_RUNS, has_runtime
from edgekit.errors import BoardError, EnvironmentLack
from edgekit.targets.releases import is_planned_release, supports_dla, trim_to_plan
from edgekit_device.protocol.fields import DEVICES
from edgekit_device.versions import parse_version

if TYPE_CHECKING:
    from edgekit.targets.board import Target
    from edgekit_device.board.probe import Probe
    from edgekit_device.protocol.manifest import EngineEntry


#: Fingerprint entries that two boards must share to run each other's engines.
BOARD_KIND_KEYS = ("module", "l4t", "tensorrt")


def check_runs(board: str, probe: Probe, engines: Mapping[str, EngineEntry]) -> None:
    """Refuses a board that cannot run a bundle's engines, before they are sent.

    Args:
        board: Its name.
        probe: The board's probe.
        engines: The manifest's "engines".

    Raises:
        EnvironmentLack: "board.no-numpy", "board.no-cudla", "board.no-runtime".
    """
    require_numpy(board, probe)
    plans = [engine for engine in engines.values() if engine.kind == "plan"]
    if len(plans) < len(engines):
        require_cudla(board, probe, "the bundle has DLA loadables")
    if plans:
        _require_runtime(board, probe, compatible=all(plan.version_compatible for plan in plans))


def require_numpy(board: str, probe: Probe) -> None:
    """Refuses a board without NumPy: EnvironmentLack "board.no-numpy"."""
    if probe.numpy:
        return
    raise EnvironmentLack(
        f"{NO_NUMPY.what} is {NO_NUMPY.found}",
        code="board.no-numpy",
        where=board,
        hint=NO_NUMPY.fix,
    )


def require_cudla(board: str, probe: Probe, what: str) -> None:
    """Refuses a board that cannot run DLA loadables: EnvironmentLack "board.no-cudla".

    Args:
        board: Its name.
        probe: The board's probe.
        what: The reason for the loadables.
    """
    if not probe.cudla:
        cuda = parse_version(probe.cuda or "")
        # CUDA's packages have the release in their names
        package = f"libcudla-{cuda[0]}-{cuda[1]}" if len(cuda) > 1 else "libcudla"
        raise EnvironmentLack(
            f"{what}, but the board has no libcudla to run them",
            code="board.no-cudla",
            where=board,
            hint=f"install CUDA's package {package}, or use build.mode: hybrid, "
            "which does not need it",
        )


def require_release(board: str, probe: Probe, planned: str) -> None:
    """Refuses a board with another TensorRT than planned: "board.other-tensorrt"."""
    release = tensorrt_release(probe)
    if release and not is_planned_release(release, planned):
        raise BoardError(
            f"the board has TensorRT {release}, but the plan is for {planned}",
            code="board.other-tensorrt",
            where=board,
            hint=f"set tensorrt: {trim_to_plan(release, planned)} in the configuration, "
            "because the DLA rules differ",
        )


def require_cores(board: str, probe: Probe, target: Target, used: Collection[str]) -> None:
    """Refuses a board whose TensorRT lacks DLA cores of a plan: BoardError "board.no-dla".

    Args:
        board: Its name.
        probe: The board's probe.
        target: The plan's target.
        used: The plan's cores, "DLA0" and so on.
    """
    release, cores = tensorrt_release(probe), probe.dla.cores
    if release and not supports_dla(target, release):
        why = f"TensorRT {release} on the board does not support its DLA"
    # DEVICES begins with the GPU
    elif cores is not None and set(used).difference(DEVICES[: cores + 1]):
        why = f"TensorRT has {cores} DLA cores on the board"
    else:
        return
    raise BoardError(
        f"the plan uses {', '.join(sorted(used))}, but {why}",
        code="board.no-dla",
        where=board,
        hint="edgekit doctor shows the reason; placement.dla_cores: [] plans for the GPU alone",
    )


def require_onnxruntime(board: str, probe: Probe) -> None:
    """Refuses a board that cannot run a bundle of the reference backend.

    Raises:
        EnvironmentLack: "board.nothing-runs", or "bundle.no-runtime": other bundles run there.
    """
    if probe.onnxruntime:
        return
    if not has_runtime(probe):
        raise EnvironmentLack(
            f"{NOTHING_RUNS.found}: {NOTHING_RUNS.fix}",
            code="board.nothing-runs",
            where=board,
            hint=f"the board's Python is {probe.python}; `python:` of the board names another",
        )
    raise EnvironmentLack(
        "the bundle needs onnxruntime, which is not on the board",
        code="bundle.no-runtime",
        where=board,
        hint=f"install onnxruntime for Python {probe.python} on the board, or let the board "
        "build with TensorRT (build.backend: auto)",
    )


def _require_runtime(board: str, probe: Probe, *, compatible: bool) -> None:
    """Refuses a board without a runtime; lean and dispatch only run version-compatible plans."""
    there = [name for name, version in vars(probe.tensorrt.python).items() if version]
    if "full" in there or (there and compatible):
        return
    other = f"only the {there[0]} one, which cannot run these plans" if there else "none"
    raise EnvironmentLack(
        f"engines need TensorRT's Python module; the board has {other}",
        code="board.no-runtime",
        where=board,
        hint=f"{INSTALL_RUNTIME}; build.backend: reference does not need it",
    )


def has_module(probe: Probe) -> bool:
    """Returns True if a board has TensorRT's Python module with its builder."""
    return probe.tensorrt.python.full is not None


def tensorrt_release(probe: Probe) -> str:
    """Returns the TensorRT release that builds on a board, "10.3.0.30"; empty if unknown."""
    return probe.fingerprint.get("tensorrt") or ""


def board_kind(fingerprint: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the values that must be equal on boards that share engines; empty if unknown."""
    found = tuple(str(fingerprint.get(key, "")) for key in BOARD_KIND_KEYS)
    return found if all(found) else ()


def choose_backend(requested: str, probe: Probe, where: str) -> str:
    """Returns the build backend for a board of a fleet, independent of the other boards.

    Args:
        requested: ``build.backend`` of the configuration.
        probe: The board's probe.
        where: The board's name.

    Raises:
        EnvironmentLack: "build.no-tensorrt".
    """
    if requested != "reference" and has_module(probe):
        return "tensorrt"
    if requested == "tensorrt":
        raise no_module(where)
    return "reference"


def no_module(where: str) -> EnvironmentLack:
    """Returns the error of a board that cannot build: "build.no-tensorrt"."""
    return EnvironmentLack(
        "the board lacks TensorRT's Python module with its builder",
        code="build.no-tensorrt",
        where=where,
        hint="edgekit doctor shows the installed software; or use build.backend: reference",
    )


def require_kind(board: str, probe: Probe, built: Mapping[str, str]) -> None:
    """Refuses a board of another kind than the engines' build board: BoardError
    "deploy.other-board".

    Args:
        board: Its name.
        probe: The board's probe.
        built: The fingerprint of the board that built the engines.
    """
    here = probe.fingerprint
    wrong = [
        f"{key} {built.get(key) or 'unknown'}, this board {here.get(key) or 'unknown'}"
        for key in BOARD_KIND_KEYS
        if built.get(key) != here.get(key)
    ]
    if wrong:
        raise BoardError(
            f"the bundle's engines were built for another kind of board: {'; '.join(wrong)}",
            code="deploy.other-board",
            where=board,
            hint="engines are not portable: deploy the configuration, which builds for this board",
        )
