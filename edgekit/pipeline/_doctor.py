"""What a board's probe means: what is there, what is missing, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._board_checks import is_planned
from edgekit.pipeline._doctor_check import Check
from edgekit.pipeline._doctor_checks import CHECKS

if TYPE_CHECKING:
    from edgekit.config import Config
    from edgekit.config._schema import ConfigFile
    from edgekit.targets import Target

__all__ = ["examine"]


def examine(probe: Mapping[str, Any], config: Config | None = None) -> dict[str, Any]:
    """Returns the part of ``edgekit.doctor/1`` that is about the board's software and hardware.

    Args:
        probe: ``edgekit.probe/1``.
        config: A configuration that the board should serve.

    Returns:
        "ok" (nothing is missing), "checks" and "can": its backends, the plans that it loads, DLA
        cores, standalone loadables, power modes.
    """
    checks = [check for part in CHECKS for check in part(probe)]
    if config is not None:
        checks += _fits(probe, config)
    return {
        "ok": all(check.status != "missing" for check in checks),
        "checks": [asdict(check) for check in checks],
        "can": _can(probe),
    }


def _can(probe: Mapping[str, Any]) -> dict[str, Any]:
    trt = probe["tensorrt"]
    modes = probe["power"]["modes"] or []
    backends = {
        "reference": bool(probe["onnxruntime"] and probe["numpy"]),
        "tensorrt": bool(trt["python"]["full"] and probe["numpy"]),
        "trtexec": bool(probe["trtexec"]),
    }
    return {
        "backends": [name for name, there in backends.items() if there],
        "loads": [name for name in ("full", "lean", "dispatch") if trt["python"][name]],
        "dla_cores": probe["dla"]["cores"],
        "standalone": bool(probe["cudla"] and probe["dla"]["devices"]),
        "power_modes": [mode["name"] for mode in modes],
    }


def _fits(probe: Mapping[str, Any], config: Config) -> Iterator[Check]:
    """Whether the board is what the configuration is for."""
    from edgekit.targets import get

    file = config.file
    module = get(file.target).facts.get("module")
    numbers = module.get("numbers", []) if isinstance(module, Mapping) else []
    own = probe["board_id"]
    if not own:
        yield Check(
            "fits.target",
            "The config's target",
            "warn",
            f"{file.target}; the board's module is not known",
        )
    elif any(own.startswith(number) for number in numbers):
        yield Check("fits.target", "The config's target", "ok", file.target)
    else:
        yield Check(
            "fits.target",
            "The config's target",
            "missing",
            f"{file.target} is {' or '.join(numbers)}, this is {own}",
            "write the right `target:` (edgekit targets)",
        )
    yield from _mode(probe, get(file.target), file)
    yield from _dla(probe, get(file.target), file)
    installed = probe["tensorrt"]["full"] or probe["tensorrt"]["python"]["full"]
    planned = config.tensorrt if hasattr(config, "tensorrt") else file.tensorrt
    if planned and installed:
        parts = max(2, len(planned.split(".")))
        same = is_planned(installed, planned)
        yield Check(
            "fits.tensorrt",
            "The config's TensorRT",
            "ok" if same else "missing",
            f"planned for {planned}, the board has {installed}",
            "" if same else f"tensorrt: {'.'.join(installed.split('.')[:parts])}",
        )


def _mode(probe: Mapping[str, Any], target: Target, file: ConfigFile) -> Iterator[Check]:
    """Whether the board is in the power mode that the configuration plans for."""
    now, planned = probe["power"]["mode"], target.mode(file.power_mode).name
    if not now:
        return
    measured = file.bench.power_mode
    same = str(now).upper().removeprefix("MODE_") == planned.upper()
    yield Check(
        "fits.power-mode",
        "The config's power mode",
        "ok" if same else "warn",
        planned if same else f"planned for {planned}, the board is in {now}",
        ""
        if same
        else f"sudo nvpmodel -m, or power_mode: {str(now).removeprefix('MODE_')}; a bench sets "
        f"{f'{measured} itself' if measured else f'it with --power-mode {planned}'}",
    )


def _dla(probe: Mapping[str, Any], target: Target, file: ConfigFile) -> Iterator[Check]:
    """A plan for DLA cores needs a board that shows some."""
    if probe["dla"]["devices"] or not target.dla.cores or file.placement.dla_cores == []:
        return
    yield Check(
        "fits.dla",
        "The config's DLA cores",
        "warn",
        f"{file.target} has {target.dla.cores}, this board's device tree shows none",
        "placement.dla_cores: [] plans without; in a container, look on the board itself",
    )
