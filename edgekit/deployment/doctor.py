"""Interprets a board's probe (`edgekit doctor`): available and missing parts, remedies, and a
comparison with the board that a configuration expects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, cast

from edgekit.deployment.board import DescribedBoard
from edgekit.removed import FormerDict
from edgekit.targets.board import Target
from edgekit.targets.releases import is_planned_release, trim_to_plan
from edgekit_device.board.probe import Probe
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    member,
    nullable,
    record,
    records,
    text,
)
from edgekit_device.protocol.failure import Failure

CheckStatus = Literal["ok", "warn", "missing"]
_Visited = TypeVar("_Visited")
_GIB = 1 << 30
# free bytes of a board below which the checks warn
_LEAST_DISK, _LEAST_MEMORY = 2 * _GIB, 1 * _GIB
_SETUP = "set up with: edgekit doctor --setup"
#: The way to install TensorRT's Python module on a board.
INSTALL_RUNTIME = "sudo apt-get install python3-libnvinfer"


@document(frozen=True)
class DoctorCheck:
    """A line of ``edgekit doctor``.

    Attributes:
        id: Stable name.
        what: The checked item.
        status: "ok", "warn" (works with limitations) or "missing" (a feature will not work).
        found: The finding.
        fix: The remedy; empty if none is needed.
    """

    id: str = member(text())
    what: str = member(text())
    status: CheckStatus = member(choice("ok", "warn", "missing"))
    found: str = member(text(most=1 << 18))
    fix: str = member(text(), default="")


@document(frozen=True)
class BoardAbilities:
    """The abilities of a board.

    Attributes:
        backends: The available backends.
        loads: The flavours of TensorRT whose plans it can load.
        dla_cores: Number of DLA cores that TensorRT reports; None if it was not queried.
        standalone: True if it runs DLA loadables.
        power_modes: Names of its power modes.
    """

    backends: tuple[str, ...] = member(array(text()))
    loads: tuple[str, ...] = member(array(text()))
    dla_cores: int | None = member(nullable(fields.count))
    standalone: bool = member(flag)
    power_modes: tuple[str, ...] = member(array(text()))


@document(frozen=True)
class Doctor(FormerDict):
    """``edgekit.doctor/1``: the state of a board, or of this machine, for edgekit.

    Attributes:
        board: The board.
        ok: True if no check has the status "missing".
        checks: The checks; empty if the board was not reached.
        can: The board's abilities.
        probe: The board's probe.
        error: The reason why it was not reached.
        cause: The EdgekitError of ``error``; not in JSON.
    """

    board: DescribedBoard = member(record(DescribedBoard))
    ok: bool = member(flag)
    checks: tuple[DoctorCheck, ...] = member(records(DoctorCheck), absent=())
    can: BoardAbilities | None = member(record(BoardAbilities), absent=None)
    probe: Probe | None = member(record(Probe), absent=None)
    error: Failure | None = member(record(Failure), absent=None)
    schema: str = member(choice("edgekit.doctor/1"), default="edgekit.doctor/1")
    cause: Any = field(default=None, compare=False)


class VisitedBoards(FormerDict, Generic[_Visited]):
    """A document of several boards; a failed board does not hide the others."""

    boards: tuple[_Visited | Doctor, ...]

    @property
    def reached(self) -> tuple[_Visited, ...]:
        """The boards that answered."""
        lost = self.lost
        return cast(
            "tuple[_Visited, ...]", tuple(board for board in self.boards if board not in lost)
        )

    @property
    def lost(self) -> tuple[Doctor, ...]:
        """The boards that failed."""
        return tuple(board for board in self.boards if isinstance(board, Doctor) and board.error)


@document(frozen=True)
class Doctors(VisitedBoards[Doctor]):
    """``edgekit.doctors/1``: the state of several boards for edgekit."""

    boards: tuple[Doctor, ...] = member(records(Doctor))
    schema: str = member(choice("edgekit.doctors/1"), default="edgekit.doctors/1")


def _tensorrt(probe: Probe) -> Iterator[DoctorCheck]:
    """Checks TensorRT's libraries, Python modules and trtexec."""
    trt = probe.tensorrt
    python = trt.python
    jetson = bool(probe.l4t)
    if trt.full:
        yield DoctorCheck("tensorrt", "TensorRT", "ok", trt.full)
    else:
        yield DoctorCheck(
            "tensorrt",
            "TensorRT",
            # a machine other than a Jetson may be there for the reference backend alone
            "missing" if jetson else "warn",
            "libnvinfer not found",
            "sudo apt-get install nvidia-jetpack"
            if jetson
            else "engines cannot be built on this board",
        )
    if python.full:
        yield DoctorCheck("tensorrt.python", "TensorRT for Python", "ok", python.full)
    elif trt.full:
        yield DoctorCheck(
            "tensorrt.python",
            "TensorRT for Python",
            "warn",
            "import tensorrt fails",
            f"{INSTALL_RUNTIME}; without it this board builds no engines",
        )
    for flavour in ("lean", "dispatch"):
        there = getattr(trt, flavour) or getattr(python, flavour)
        if there:
            yield DoctorCheck(f"tensorrt.{flavour}", f"TensorRT {flavour} runtime", "ok", there)
        elif trt.full:
            yield DoctorCheck(
                f"tensorrt.{flavour}",
                f"TensorRT {flavour} runtime",
                "warn",
                "not there",
                "only needed for engines of another TensorRT release",
            )
    if probe.trtexec:
        yield DoctorCheck("trtexec", "trtexec", "ok", probe.trtexec.path)
    elif trt.full:
        yield DoctorCheck(
            "trtexec",
            "trtexec",
            "warn",
            "not found",
            "sudo apt-get install libnvinfer-bin; only edgekit bench --with-trtexec needs it",
        )


def _cuda(probe: Probe) -> Iterator[DoctorCheck]:
    """Checks the driver and the GPU."""
    if probe.compute_capability:
        text = f"CUDA {probe.cuda or probe.cuda_driver}, compute capability " + str(
            probe.compute_capability
        )
        yield DoctorCheck("cuda", "CUDA", "ok", text)
    else:
        why = next((n for n in probe.notes if "CUDA driver" in n), "no driver responds")
        yield DoctorCheck(
            "cuda",
            "CUDA",
            "missing" if probe.l4t else "warn",
            why,
            _cuda_fix(why) if probe.l4t else "",
        )


def _cuda_fix(why: str) -> str:
    if "cannot open shared object file" in why:
        return (
            "the driver library is missing: sudo apt-get install nvidia-l4t-cuda; in a "
            "container, start it with --runtime nvidia"
        )
    return "is the account in the groups video and render?"


def _dla(probe: Probe) -> Iterator[DoctorCheck]:
    """Checks the DLA's cores, its compiler and cuDLA."""
    # devices of the device tree; cores for TensorRT, None if its Python module is missing
    seen = probe.dla
    devices, cores = seen.devices, seen.cores
    if not devices:
        if probe.l4t:
            yield DoctorCheck("dla", "DLA", "ok", "none found on this module")
        return
    count = f"{len(devices)} in hardware"
    if cores:
        yield DoctorCheck("dla", "DLA", "ok", f"{count}, {cores} for TensorRT")
    elif cores == 0:
        fix = "this TensorRT release does not support the DLA: edgekit targets lists those that do"
        if seen.compiler is None:
            fix = (
                "libnvdla_compiler.so is missing: sudo apt-get install nvidia-l4t-dla-compiler "
                "(JetPack 6; JetPack 7.2 has none)"
            )
        yield DoctorCheck("dla", "DLA", "missing", f"{count}, none for TensorRT", fix)
    else:
        yield DoctorCheck(
            "dla",
            "DLA",
            "warn",
            f"{count}; TensorRT was not queried",
            "this needs TensorRT's Python module",
        )
    if probe.cudla:
        yield DoctorCheck("dla.cudla", "cuDLA", "ok", probe.cudla)
    else:
        yield DoctorCheck(
            "dla.cudla",
            "cuDLA",
            "warn",
            "libcudla not found",
            "standalone loadables need it; it comes with CUDA's package libcudla",
        )


def _board(probe: Probe) -> Iterator[DoctorCheck]:
    name = " ".join(filter(None, (probe.module, probe.board_id and f"({probe.board_id})")))
    if probe.l4t:
        jetpack = f", JetPack {probe.jetpack}" if probe.jetpack else ""
        yield DoctorCheck("board.l4t", "Jetson Linux", "ok", f"L4T {probe.l4t}{jetpack}")
    else:
        yield DoctorCheck(
            "board.l4t",
            "Jetson Linux",
            "warn",
            "no /etc/nv_tegra_release",
            "this is not a Jetson: only the reference backend can run here",
        )
    yield DoctorCheck(
        "board.module", "Module", "ok" if name else "warn", name or "not in the device tree"
    )


#: The line of a board without NumPy.
NO_NUMPY = DoctorCheck(
    "python.numpy",
    "NumPy",
    "missing",
    "not found by the board's Python",
    "sudo apt-get install python3-numpy",
)


def _python(probe: Probe) -> Iterator[DoctorCheck]:
    yield DoctorCheck("python", "Python", "ok", probe.python)
    if probe.numpy:
        yield DoctorCheck("python.numpy", "NumPy", "ok", probe.numpy)
    else:
        yield NO_NUMPY
    if probe.ssh_keygen:
        yield DoctorCheck("openssh", "ssh-keygen", "ok", f"OpenSSH {probe.ssh_keygen}")
    else:
        yield DoctorCheck(
            "openssh",
            "ssh-keygen",
            "missing",
            "signatures cannot be checked",
            "sudo apt-get install openssh-client",
        )


def _power(probe: Probe) -> Iterator[DoctorCheck]:
    if not probe.l4t:
        return
    power = probe.power
    if power.mode:
        yield DoctorCheck("power.mode", "Power mode", "ok", f"{power.mode} (id {power.id})")
    else:
        yield DoctorCheck("power.mode", "Power mode", "warn", "nvpmodel gave no answer", _SETUP)
    clocks = power.clocks
    if not clocks:
        yield DoctorCheck("power.clocks", "Clocks", "warn", "jetson_clocks gave no answer", _SETUP)
    elif "gpu" in clocks and clocks["gpu"].locked:
        yield DoctorCheck("power.clocks", "Clocks", "ok", "locked at their maximum")
    else:
        yield DoctorCheck(
            "power.clocks",
            "Clocks",
            "warn",
            "they change with the load",
            "for repeatable measurements: sudo jetson_clocks",
        )
    lacks = sorted({"video", "render"} - set(probe.groups))
    if lacks and not probe.user.root:
        yield DoctorCheck("groups", "Groups", "warn", f"not in {' and '.join(lacks)}", _SETUP)
    else:
        yield DoctorCheck("groups", "Groups", "ok", "root" if probe.user.root else "video, render")


def _free_space(probe: Probe) -> Iterator[DoctorCheck]:
    free = probe.disk_free
    low = free < _LEAST_DISK
    yield DoctorCheck(
        "disk",
        "Free disk",
        "warn" if low else "ok",
        f"{free / _GIB:.1f} GiB",
        "edgekit keeps deploy.keep releases; gc removes the others" if low else "",
    )
    available = probe.memory.available
    if available is not None:
        low = available < _LEAST_MEMORY
        yield DoctorCheck(
            "memory",
            "Free memory",
            "warn" if low else "ok",
            f"{available / _GIB:.1f} GiB",
            "a build may run out of memory: stop other programs on the board" if low else "",
        )


def _docker(probe: Probe) -> Iterator[DoctorCheck]:
    docker = probe.docker
    if docker is None:
        return
    if docker.runtimes is None:
        yield DoctorCheck(
            "docker",
            "Docker",
            "warn",
            f"{docker.path} refuses this account",
            "for `container:` only: sudo usermod -aG docker USER",
        )
    elif "nvidia" not in docker.runtimes:
        yield DoctorCheck(
            "docker",
            "Docker",
            "warn",
            "without the runtime nvidia",
            "for `container:` only: sudo apt-get install nvidia-container-toolkit",
        )
    else:
        yield DoctorCheck("docker", "Docker", "ok", f"{docker.version}, runtime nvidia")


#: The line of a board that runs no bundle of any backend.
NOTHING_RUNS = DoctorCheck(
    "runtime",
    "A runtime of bundles",
    "missing",
    "no backend can run here",
    "install onnxruntime (this bundle) or JetPack's TensorRT",
)


def has_runtime(probe: Probe) -> bool:
    """Returns True if a board has a runtime for bundles: ONNX Runtime, TensorRT for Python, or
    cuDLA.
    """
    modules = probe.tensorrt.python
    return bool(probe.onnxruntime or any(vars(modules).values()) or _standalone(probe))


def _standalone(probe: Probe) -> bool:
    return bool(probe.cudla and probe.dla.devices)


def _runtimes(probe: Probe) -> Iterator[DoctorCheck]:
    if not has_runtime(probe):
        yield NOTHING_RUNS


CHECKS: tuple[Callable[[Probe], Iterator[DoctorCheck]], ...] = (
    _board,
    _python,
    _tensorrt,
    _cuda,
    _dla,
    _power,
    _free_space,
    _docker,
    _runtimes,
)


@dataclass(frozen=True)
class PlannedBoard:
    """The board that a configuration expects.

    Attributes:
        target: Its target.
        mode: The power mode of its plan.
        bench_mode: The power mode that a bench sets, or None.
        uses_dla: True if plans may use DLA cores.
        tensorrt: The configured TensorRT release, or None.
    """

    target: Target
    mode: str
    bench_mode: str | None
    uses_dla: bool
    tensorrt: str | None


def examine(board: DescribedBoard, probe: Probe, planned: PlannedBoard | None = None) -> Doctor:
    """Returns the checks and abilities from a board's probe.

    Args:
        board: The board's description.
        probe: The board's probe.
        planned: The board that a configuration expects, for a comparison; None: no comparison.
    """
    checks = [check for part in CHECKS for check in part(probe)]
    if planned is not None:
        checks += _target_checks(probe, planned)
    ok = all(check.status != "missing" for check in checks)
    return Doctor(board, ok, tuple(checks), _abilities(probe), probe)


def _abilities(probe: Probe) -> BoardAbilities:
    flavours = vars(probe.tensorrt.python)
    backends = {
        "reference": bool(probe.onnxruntime and probe.numpy),
        "tensorrt": bool(flavours["full"] and probe.numpy),
    }
    return BoardAbilities(
        backends=tuple(name for name, there in backends.items() if there),
        loads=tuple(name for name in ("full", "lean", "dispatch") if flavours[name]),
        dla_cores=probe.dla.cores,
        standalone=_standalone(probe),
        power_modes=tuple(mode.name for mode in probe.power.modes or ()),
    )


def _target_checks(probe: Probe, planned: PlannedBoard) -> Iterator[DoctorCheck]:
    """Checks that the board is the configuration's target."""
    name, module = planned.target.name, planned.target.file.module
    own = probe.board_id
    if not own:
        yield DoctorCheck(
            "fits.target", "The config's target", "warn", f"{name}; the board's module is not known"
        )
    elif module.has(own):
        yield DoctorCheck("fits.target", "The config's target", "ok", name)
    else:
        yield DoctorCheck(
            "fits.target",
            "The config's target",
            "missing",
            f"{name} is {' or '.join(module.numbers) or 'a module without known numbers'}, "
            f"but this board is {own}",
            "set the right `target:` (edgekit targets lists them)",
        )
    yield from _mode_checks(probe, planned)
    yield from _dla_checks(probe, planned)
    installed = probe.tensorrt.full or probe.tensorrt.python.full
    if planned.tensorrt and installed:
        same = is_planned_release(installed, planned.tensorrt)
        yield DoctorCheck(
            "fits.tensorrt",
            "The config's TensorRT",
            "ok" if same else "missing",
            f"planned for {planned.tensorrt}, the board has {installed}",
            "" if same else f"tensorrt: {trim_to_plan(installed, planned.tensorrt)}",
        )


def _mode_checks(probe: Probe, planned: PlannedBoard) -> Iterator[DoctorCheck]:
    """Checks that the board is in the planned power mode."""
    now, mode, measured = probe.power.mode, planned.mode, planned.bench_mode
    if not now:
        return
    # nvpmodel names some modes MODE_30W, targets name them 30W
    same = str(now).upper().removeprefix("MODE_") == mode.upper()
    yield DoctorCheck(
        "fits.power-mode",
        "The config's power mode",
        "ok" if same else "warn",
        mode if same else f"planned for {mode}, the board is in {now}",
        ""
        if same
        else f"sudo nvpmodel -m, or power_mode: {str(now).removeprefix('MODE_')}; a bench sets "
        f"{f'{measured} itself' if measured else f'it with --power-mode {mode}'}",
    )


def _dla_checks(probe: Probe, planned: PlannedBoard) -> Iterator[DoctorCheck]:
    """Checks that a board for a plan with DLA has DLA cores."""
    cores = planned.target.dla.cores
    if probe.dla.devices or not cores or not planned.uses_dla:
        return
    yield DoctorCheck(
        "fits.dla",
        "The config's DLA cores",
        "warn",
        f"{planned.target.name} has {cores}, but this board's device tree shows none",
        "plan without them (placement.dla_cores: []); in a container, run doctor on "
        "the board itself",
    )
