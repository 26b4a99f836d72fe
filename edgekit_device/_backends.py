"""What runs engines, by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._errors import DeviceError

if TYPE_CHECKING:
    from ._types import Manifest

__all__ = ["BACKENDS", "import_backend"]

#: Module by the manifest's "backend"; it has ``open_engines(checked, threads, profile)``, which
#: returns an object with ``run(segment, feeds)`` by engine digest and device.
BACKENDS = {
    "reference": "edgekit_device._reference",
    "tensorrt": "edgekit_device._tensorrt",
}


def import_backend(manifest: Manifest) -> Any:
    """The module of the manifest's backend.

    Raises:
        DeviceError: "backend.unknown".
    """
    module = BACKENDS.get(manifest.backend)
    if module is None:
        raise DeviceError(
            "this loader has no backend {!r}".format(manifest.backend[:80]),
            code="backend.unknown",
            where=manifest.name,
            hint="it has: {}".format(", ".join(sorted(BACKENDS))),
        )
    return importlib.import_module(module)
