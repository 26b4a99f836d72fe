"""Models in the cache: the graph as JSON-referenced bytes, the weights as shared blobs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._cache import Cache

if TYPE_CHECKING:
    from edgekit.network import Model

__all__ = ["file_identity", "load_model", "store_model"]


def store_model(cache: Cache, model: Model) -> dict[str, Any]:
    """Stores a model and returns the record that :func:`load_model` takes."""
    from edgekit.network import weight_digests

    proto = model.proto.SerializeToString(deterministic=True)
    graph = hashlib.sha256(proto).hexdigest()
    cache.put_blob(graph, proto)
    weights = {}
    for name, digest in weight_digests(model).items():
        value = model.weights[name]
        cache.put_blob(digest, value)
        weights[name] = [digest, value.dtype.name, list(value.shape)]
    return {"digest": model.digest, "source": model.source, "graph": graph, "weights": weights}


def load_model(cache: Cache, record: dict[str, Any]) -> Model | None:
    """Returns the model of ``record`` with its weights as memory maps; None when blobs are gone."""
    import onnx

    from edgekit.network import Model

    needed = [record["graph"], *(w[0] for w in record["weights"].values())]
    if not cache.has_blobs(needed):
        return None
    proto = onnx.load_model_from_string(cache.blob_path(record["graph"]).read_bytes())
    weights = {
        name: cache.array(digest, dtype, tuple(shape))
        for name, (digest, dtype, shape) in record["weights"].items()
    }
    return Model(proto, weights, record["digest"], record["source"])


def file_identity(path: Path) -> list[Any]:
    """Returns what identifies a file's content: its SHA-256; for a folder its files' stamps."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        return [[p.relative_to(path).as_posix(), p.stat().st_size, p.stat().st_mtime_ns]
                for p in files]  # fmt: skip
    with path.open("rb") as file:
        return [hashlib.file_digest(file, "sha256").hexdigest()]
