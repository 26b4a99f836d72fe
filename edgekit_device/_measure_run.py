"""``bench``: a release measured on this board, with what the board did meanwhile beside it.

In order: power mode and clocks are set where asked for, the release is opened (cold), its first
frame runs, the board is watched idle, it warms up, and it is measured. Whatever ends the command
ends the watching and takes power mode and clocks back.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Dict, Optional, Tuple

from ._errors import DeviceError
from ._refit_release import need_numpy
from ._release import check_release, need_ready
from ._root import Root

if TYPE_CHECKING:
    from pathlib import Path

    from ._measure import Settings
    from ._model import Model
    from ._verify import Checked

__all__ = ["do_bench"]


def do_bench(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> Dict[str, Any]:
    """Measures a release on this machine's clock: ``edgekit.device.bench/1``."""
    need_numpy()
    from ._measure import Settings
    from ._measure_watch import teller
    from ._power import held_power
    from ._trtexec_check import cross_check, parse_wish

    wish = None if arguments.trtexec is None else parse_wish(arguments.trtexec)
    settings = Settings(
        arguments.warmup_ms,
        arguments.duration_s,
        arguments.iterations,
        streams=arguments.streams,
        graph=arguments.graph,
        transfers=not arguments.no_transfers,
        sleep_ms=arguments.sleep_ms,
    )
    tell = teller(arguments) if arguments.progress else _nobody
    npz = stdin.read() if arguments.inputs else b""
    folder = root.app(arguments.app).release(arguments.release)
    mode, lock = arguments.power_mode, arguments.lock_clocks
    with held_power(root.folder, mode, lock) as power:
        found = _measured(root, folder, arguments, settings, npz, tell)
        told = None
        if wish is not None:
            tell("trtexec")
            told = cross_check(root, folder, check_release(root, folder), wish)
    return dict(found, power=power.document(), trtexec=told)


def _nobody(stage: str) -> None:
    """Where no host asked how far it is."""


def _measured(
    root: Root,
    folder: Path,
    arguments: argparse.Namespace,
    settings: Settings,
    npz: bytes,
    tell: Callable[[str], None],
) -> Dict[str, Any]:
    from ._measure import bench
    from ._measure_data import data_of
    from ._measure_facts import memory_of, runtime_of
    from ._measure_watch import Watch

    tell("open")
    spin = True if arguments.spin else False if arguments.blocking else None
    checked, model, open_ms, before = _open(root, folder, arguments, spin)
    data = data_of(checked, npz)
    first = model.check(data.frames[0])
    began = time.perf_counter()
    model.run_lane(0, first)
    first_ms = (time.perf_counter() - began) * 1e3
    with Watch(root.folder, arguments.monitor_ms, tell) as watch:
        watch.idle(arguments.idle_ms)
        found = bench(model, data.frames, settings, watch.stage)
        memory = memory_of(model, before)
    runtime = runtime_of(
        model,
        graph=settings.graph,
        spin=spin,
        transfers=settings.transfers,
        streams=settings.streams,
        threads=arguments.threads,
    )
    runtime["notes"] += data.notes
    found.update(
        release=folder.name,
        settings=_settings(arguments, settings, spin, data.source, model),
        cold={"open_ms": open_ms, "first_ms": first_ms},
        memory=memory,
        runtime=runtime,
        monitor=watch.document,
        nodes=None,
    )
    if arguments.profile:
        from ._measure_nodes import profile

        tell("layers")
        found["nodes"] = profile(checked, first, arguments.threads, arguments.iterations)
    return found


def _open(
    root: Root, folder: Path, arguments: argparse.Namespace, spin: Optional[bool]
) -> Tuple[Checked, Model, float, Optional[Tuple[int, int]]]:
    """Opens the release: milliseconds until it is ready, and the device's memory before."""
    from ._model import open_model

    began = time.perf_counter()
    checked = check_release(root, folder)
    need_ready(arguments.app, folder)
    before = None if checked.manifest.backend == "reference" else _device(spin)
    model = open_model(checked, arguments.threads)
    return checked, model, (time.perf_counter() - began) * 1e3, before


def _device(spin: Optional[bool]) -> Optional[Tuple[int, int]]:
    from ._cuda import open_cuda
    from ._cuda_wait import choose_wait

    try:
        if spin is not None:
            choose_wait(spin)
        return open_cuda().memory()
    except DeviceError:
        return None  # opening the engines says what is wrong; how it waits is read back


def _settings(
    arguments: argparse.Namespace,
    settings: Settings,
    spin: Optional[bool],
    data: str,
    model: Model,
) -> Dict[str, Any]:
    """What was asked for; "runtime" says what of it holds."""
    shape = model.inputs[0].shape
    return {
        "warmup_ms": settings.warmup_ms,
        "duration_s": settings.duration_s,
        "iterations": settings.iterations,
        "streams": settings.streams,
        "graph": settings.graph,
        "spin": spin,
        "transfers": settings.transfers,
        "sleep_ms": settings.sleep_ms,
        "idle_ms": arguments.idle_ms,
        "monitor_ms": arguments.monitor_ms,
        "threads": arguments.threads,
        "batch": shape[0] if shape else 1,
        "data": data,
    }
