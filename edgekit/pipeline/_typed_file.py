"""The Q/DQ model that a board with a strongly typed TensorRT builds from, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.pipeline._stamps import file_stamps

if TYPE_CHECKING:
    from edgekit.pipeline._work import Work

__all__ = ["TYPED_NAME", "write_typed"]

#: What it is called in a run's folder.
TYPED_NAME = "qdq.onnx"


def write_typed(work: Work, path: Path) -> Path | None:
    """Writes the Q/DQ model unless it is there; returns None where a release needs none.

    Raises:
        ModelError: It cannot be written.
    """
    if not work.lowers or work.scales is None:
        return None
    from edgekit.network import save

    key = work.cache.key("qdq", *work.typed_identity, str(path.absolute()))
    stamps = work.cache.get("qdq", key)
    if work.force or stamps is None or stamps != file_stamps([path]):
        work.fresh.add("bundle")
        save(work.typed, path)
        work.cache.put("qdq", key, file_stamps([path]))
    return path
