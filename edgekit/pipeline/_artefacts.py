"""Built engines in the cache."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._cache import Cache

if TYPE_CHECKING:
    from edgekit.build import Artefacts

__all__ = ["load_artefacts", "store_artefacts"]


def store_artefacts(cache: Cache, artefacts: Artefacts) -> dict[str, Any]:
    """Stores engines and weights as blobs and returns the record of the rest."""
    for digest, engine in artefacts.engines.items():
        cache.put_blob(digest, engine)
    for digest, value in artefacts.values.items():
        cache.put_blob(digest, value)
    return {
        "backend": artefacts.backend,
        "lanes": [[share, [asdict(s) for s in segments]] for share, segments in artefacts.lanes],
        "engines": sorted(artefacts.engines),
        "weights": [asdict(weight) for weight in artefacts.weights.values()],
        "fingerprint": dict(artefacts.fingerprint),
        "inputs": list(artefacts.inputs),
        "outputs": list(artefacts.outputs),
        "notes": list(artefacts.notes),
    }


def load_artefacts(cache: Cache, record: dict[str, Any]) -> Artefacts | None:
    """Returns the artefacts of ``record``, weights as memory maps; None when blobs are gone."""
    from edgekit.build import Artefacts, Segment, Weight

    weights = {w["name"]: Weight(**{**w, "shape": tuple(w["shape"])}) for w in record["weights"]}
    try:
        engines = {digest: cache.blob(digest) for digest in record["engines"]}
        values = {w.digest: cache.array(w.digest, w.dtype, w.shape) for w in weights.values()}
    except LookupError:
        return None
    lanes = tuple(
        (
            share,
            tuple(
                Segment(**{
                    **s, "layers": tuple(s["layers"]), "inputs": tuple(s["inputs"]),
                    "outputs": tuple(s["outputs"]),
                })
                for s in segments
            ),
        )
        for share, segments in record["lanes"]
    )  # fmt: skip
    return Artefacts(
        backend=record["backend"],
        lanes=lanes,
        engines=engines,
        weights=weights,
        values=values,
        fingerprint=record["fingerprint"],
        inputs=tuple(record["inputs"]),
        outputs=tuple(record["outputs"]),
        notes=tuple(record["notes"]),
    )
