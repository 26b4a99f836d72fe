"""What this board is now, asked cheaply: no child process while its files stay as they are."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Dict

__all__ = ["fingerprint_now"]


def fingerprint_now(folder: Path, backend: str) -> Dict[str, str]:
    """What a release of ``backend`` depends on here; "" where something is not known.

    Args:
        folder: ROOT.
        backend: The manifest's.
    """
    if backend == "reference":
        import onnxruntime as ort

        return {
            "backend": backend,
            "runtime": "onnxruntime",
            "runtime_version": str(ort.__version__),
            "machine": platform.machine(),
        }
    from ._fingerprint import fingerprint

    return fingerprint(folder)
