"""Models in the cache: the graph as bytes, the weights as shared blobs or as another model's."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._cache import Cache

if TYPE_CHECKING:
    from edgekit.network import Model

__all__ = ["load_model", "store_model"]


def store_model(cache: Cache, model: Model, base: Model | None = None) -> dict[str, Any]:
    """Stores a model and returns the record that :func:`load_model` takes.

    Weights that ``base`` holds under the same name are referred to and not stored again.
    """
    from edgekit.network import weight_digests

    proto = model.proto.SerializeToString(deterministic=True)
    graph = hashlib.sha256(proto).hexdigest()
    cache.put_blob(graph, proto)
    known = weight_digests(base) if base is not None else {}
    weights: dict[str, list[Any] | None] = {}
    for name, digest in weight_digests(model).items():
        if known.get(name) == digest:
            weights[name] = None
            continue
        value = model.weights[name]
        cache.put_blob(digest, value)
        weights[name] = [digest, value.dtype.name, list(value.shape)]
    folded = {
        name: [gone.reason, gone.inputs, gone.outputs, gone.after]
        for name, gone in model.folded.items()
    }
    return {
        "digest": model.digest,
        "source": model.source,
        "graph": graph,
        "weights": weights,
        "folded": folded,
    }


def load_model(cache: Cache, record: dict[str, Any], base: Model | None = None) -> Model | None:
    """Returns the model of ``record`` with its weights as memory maps; None when blobs are gone."""
    import onnx

    from edgekit.network import Folded, Model, joined_weights

    weights = {}
    shared = []
    try:
        for name, entry in record["weights"].items():
            if entry is not None:
                weights[name] = cache.array(entry[0], entry[1], tuple(entry[2]))
            elif base is not None:
                shared.append(name)
        data = cache.blob(record["graph"])
        known = joined_weights(weights, base.weights if base is not None else {}, shared)
    except LookupError:
        return None
    proto = onnx.load_model_from_string(data)
    folded = {
        name: Folded(reason, tuple(inputs), tuple(outputs), after)
        for name, (reason, inputs, outputs, after) in record.get("folded", {}).items()
    }
    return Model(proto, known, record["digest"], record["source"], folded)
