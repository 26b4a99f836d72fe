"""What surrounds a bench's figures: memory, and how the runtime was really set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ._measure_ways import cuda_of

if TYPE_CHECKING:
    from ._model import Model

__all__ = ["memory_of", "runtime_of"]

_STATUS = Path("/proc/self/status")
_ENGINE = ("runtime", "library", "host_code", "dla_core", "threads")


def memory_of(model: Model, before: Optional[Tuple[int, int]]) -> Dict[str, Optional[int]]:
    """This process's memory and the device's, in bytes.

    Args:
        model: The model.
        before: The device's free and total memory before the model was opened; None where nobody
            asked. What others took meanwhile is in the difference, too.

    Returns:
        "rss_bytes", "peak_rss_bytes", and "gpu_bytes" (what opening and running took),
        "gpu_free_bytes" and "gpu_total_bytes": None without a GPU. On a board both are one memory.
    """
    status = _status()
    cuda = cuda_of(model)
    free, total = (None, None) if cuda is None else cuda.memory()
    taken = None if before is None or free is None else max(before[0] - free, 0)
    return {
        "rss_bytes": status.get("VmRSS"),
        "peak_rss_bytes": status.get("VmHWM"),
        "gpu_bytes": taken,
        "gpu_free_bytes": free,
        "gpu_total_bytes": total,
    }


def runtime_of(
    model: Model, *, graph: bool, spin: Optional[bool], transfers: bool, streams: int, threads: int
) -> Dict[str, Any]:
    """What ran the model and how: what was asked for, as far as it holds here.

    Returns:
        "library", "version", "flags" and "notes": docs/architecture.md. A flag that differs between
        engines is a list of what it is.
    """
    cuda = cuda_of(model)
    notes = list(model.notes)
    flags: Dict[str, Any] = {"streams": streams, "threads": threads}
    if cuda is None:
        asked = {"graph": graph, "spin": spin is not None, "no transfers": not transfers}
        left = [name for name, wish in asked.items() if wish]
        if left:
            notes.append(
                "left out, since the reference backend has no GPU: {}".format(", ".join(left))
            )
        flags.update(graph=False, spin=None, wait=None, transfers=None, buffers=None)
        return dict(_onnxruntime(), flags=flags, notes=notes)
    from ._cuda_wait import wait_of

    wait = wait_of(cuda)
    if spin is not None and wait != ("spin" if spin else "blocking"):
        notes.append("CUDA waits as it did ({}), whatever was asked for".format(wait))
    facts = [getattr(engine, "facts", {"runtime": "cudla"}) for engine in model.engines.values()]
    flags.update({name: _one([fact.get(name) for fact in facts]) for name in _ENGINE})
    flags.update(
        graph=graph,
        spin={"spin": True, "blocking": False}.get(wait),
        wait=wait,
        transfers=transfers,
        buffers="fixed" if graph or not transfers else "pooled",
    )
    versions = [fact["version"] for fact in facts if fact.get("version")]
    return {
        "library": "tensorrt" if versions else "cudla",
        "version": _one(versions) if versions else None,
        "flags": flags,
        "notes": notes,
    }


def _one(values: List[Any]) -> Any:
    different: List[Any] = []
    for value in values:
        if value not in different:
            different.append(value)
    return different[0] if len(different) == 1 else different


def _onnxruntime() -> Dict[str, Any]:
    try:
        import onnxruntime
    except Exception:  # it ran the model; what it is called is not worth an error
        return {"library": "onnxruntime", "version": None}
    return {"library": "onnxruntime", "version": str(onnxruntime.__version__)}


def _status() -> Dict[str, int]:
    """Sizes of /proc/self/status in bytes."""
    found = {}
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    for line in lines:
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if unit == "kB" and number.isdigit():
            found[name] = int(number) << 10
    return found
