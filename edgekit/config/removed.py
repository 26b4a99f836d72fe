"""Keys and values that earlier versions had, and what to do instead: the hint of their error."""

from __future__ import annotations

REMOVED_VALUES = {
    ("build.backend", "trtexec"): "write tensorrt: TensorRT's Python API is on every JetPack "
    "(python3-libnvinfer)",
}
"""By the key and the value."""

REMOVED_KEYS = {
    "deploy.health.download_s": "remove it: boards download nothing, deployments send the bundle",
    "deploy.mirror": "remove it: edgekit deploy sends the bundle over SSH; for large fleets see "
    "edgekit fleet export ansible",
}
"""By the key as it is written, its sections in front."""
