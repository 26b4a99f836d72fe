"""What a board must have for engines to run there: NumPy, cuDLA and a runtime of TensorRT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgekit.deployment.doctor import INSTALL_RUNTIME, NO_NUMPY
from edgekit.errors import EnvironmentLack
from edgekit_device.versions import parse_version

if TYPE_CHECKING:
    from edgekit_device.board.probe import Probe
    from edgekit_device.protocol.manifest import EngineEntry


def check_runs(board: str, probe: Probe, engines: Mapping[str, EngineEntry]) -> None:
    """Refuses a board that cannot run a bundle's engines, before they are sent.

    Args:
        board: Its name.
        probe: What the board reports.
        engines: The manifest's "engines".

    Raises:
        EnvironmentLack: "board.no-numpy", "board.no-cudla", "board.no-runtime".
    """
    require_numpy(board, probe)
    plans = [one for one in engines.values() if one.kind == "plan"]
    if len(plans) < len(engines):
        require_cudla(board, probe, "the bundle has DLA loadables")
    if plans:
        _require_runtime(board, probe, compatible=all(one.version_compatible for one in plans))


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
        probe: What the board reports.
        what: Why the loadables are needed.
    """
    if not probe.cudla:
        raise EnvironmentLack(
            f"{what}, but the board has no libcudla to run them",
            code="board.no-cudla",
            where=board,
            hint=f"install CUDA's package {_cudla_package(probe)}, or use build.mode: hybrid, "
            "which does not need it",
        )


def _require_runtime(board: str, probe: Probe, *, compatible: bool) -> None:
    """The lean and dispatch runtimes run version compatible plans alone."""
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


def _cudla_package(probe: Probe) -> str:
    cuda = parse_version(probe.cuda or "")
    return f"libcudla-{cuda[0]}-{cuda[1]}" if len(cuda) > 1 else "libcudla"
