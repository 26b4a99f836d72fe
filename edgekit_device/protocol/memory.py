"""The memory that a bundle's engines need on a board, computed before they are loaded."""

from __future__ import annotations

from typing import Dict, Iterable, Mapping, Optional, Tuple

from edgekit_device.protocol.codec import document, mapping, member, nullable, text
from edgekit_device.protocol.fields import count
from edgekit_device.protocol.manifest import EngineEntry, Manifest

# cudaMalloc's own alignment, which TensorRT wants of a context's memory: it "must be aligned with
# CUDA memory alignment property" (NvInferRuntime.h, IExecutionContext::setDeviceMemoryV2)
ALIGNED = 256


def align(nbytes: int) -> int:
    """Returns ``nbytes`` rounded up to the alignment of blocks."""
    return -(-nbytes // ALIGNED) * ALIGNED


@document(frozen=True)
class MemoryNeed:
    """Bytes of memory that a bundle's engines need, from its manifest.

    Attributes:
        engines: Bytes of weights and engines in the bundle.
        contexts: Bytes that the contexts of one frame need while they run, by device; without a
            device if the size of any of its plans is unknown.
        device_memory: The sum of ``contexts`` in bytes, for ``load(..., device_memory=...)``.
        total: Bytes in all.
        available: Bytes that the board has available; None if unknown.
    """

    engines: int = member(count)
    contexts: Mapping[str, int] = member(mapping(count, text()))
    device_memory: int = member(count)
    total: int = member(count)
    available: Optional[int] = member(nullable(count), absent=None, as_given=True)


def context_bytes(
    segments: Iterable[Tuple[str, str]], entries: Mapping[str, EngineEntry], *, shared: bool = True
) -> Dict[str, int]:
    """Returns the device memory in bytes that one frame's contexts need while they run, by device.

    Args:
        segments: Engine and device of each segment of a bundle.
        entries: Its engines.
        shared: True if engines of a device take turns in one block.

    Returns:
        Bytes by device, without devices with a plan of unknown size; loadables need none.
    """
    needs: Dict[str, Dict[str, Optional[int]]] = {}
    for engine, device in segments:
        entry = entries.get(engine)
        if entry is not None and entry.kind == "plan":
            # by engine: lanes may use the same engine, which needs its memory once
            needs.setdefault(device, {})[engine] = entry.device_bytes
    found = {}
    for device, sizes in needs.items():
        known_sizes = [align(nbytes) for nbytes in sizes.values() if nbytes is not None]
        # one unknown size makes the device's sum unknown
        if len(known_sizes) == len(sizes):
            found[device] = max(known_sizes) if shared else sum(known_sizes)
    return found


def memory_need(manifest: Manifest) -> MemoryNeed:
    """Returns the memory that a bundle's engines need, before any engine is loaded."""
    segments = manifest.segments()
    sizes = {weight.digest: weight.bytes for weight in manifest.weights.values()}
    # by digest: weights and engines that several parts use are stored once
    sizes.update({segment.engine: manifest.blobs[segment.engine].bytes for segment in segments})
    runs = [(segment.engine, segment.device) for segment in segments]
    contexts = context_bytes(runs, manifest.engines, shared=manifest.memory.shared)
    engines, device_memory = sum(sizes.values()), sum(contexts.values())
    return MemoryNeed(engines, contexts, device_memory, engines + device_memory)
