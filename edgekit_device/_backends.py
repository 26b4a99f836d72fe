"""What runs engines, by name."""

from __future__ import annotations

__all__ = ["BACKENDS"]

#: Module by the manifest's "backend"; it has ``open_engines(checked, threads, profile)``, which
#: returns an object with ``run(segment, feeds)`` by engine digest and device.
BACKENDS = {
    "reference": "edgekit_device._reference",
    "tensorrt": "edgekit_device._tensorrt",
}
