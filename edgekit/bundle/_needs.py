"""What a manifest says a board must have, hold and be judged by: requires and samples."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from edgekit.bundle._types import Blob, Samples, blob_view
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.build import Artefacts

__all__ = ["Blobs", "check_valid_until", "issued_entry", "requires_of", "samples_entry"]

#: Schema of the ``hello`` of the loader that reads such manifests.
_LOADER = "edgekit.device/1"
_BOARD = ("module", "l4t", "tensorrt")
_FORM = "%Y-%m-%dT%H:%M:%SZ"
_DIGITS = 11  # of seconds since 1970, up to the year 5138


def issued_entry(counter: int | None, valid_until: str | None) -> dict[str, Any] | None:
    """Returns the manifest's "issued" of a bundle that is signed now; None for neither.

    Without it a bundle's bytes depend on no clock; SOURCE_DATE_EPOCH gives a fixed time here, too.
    """
    if counter is None and valid_until is None:
        return None
    entry: dict[str, Any] = {"at": _now().strftime(_FORM)}
    if counter is not None:
        entry["counter"] = counter
    if valid_until is not None:
        entry["valid_until"] = _end(valid_until)
    return entry


def check_valid_until(day: str) -> None:
    """Refuses an end of validity that is past when the bundle is signed.

    Raises:
        UsageError: "bundle.expired".
    """
    if _end(day) < _now().strftime(_FORM):
        raise UsageError(
            f"valid until {day} is past: no board would install the bundle unattended",
            code="bundle.expired",
            where="deploy.release.valid_until",
            hint="give a later day or time, in UTC (--valid-until)",
        )


def _now() -> datetime:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if epoch.isdecimal() and len(epoch) <= _DIGITS:
        return datetime.fromtimestamp(int(epoch), UTC)
    return datetime.now(UTC)


def _end(valid_until: str) -> str:
    return valid_until + ("" if "T" in valid_until else "T23:59:59Z")


class Blobs:
    """A bundle's blobs by digest, and what each is: the first that it was named as."""

    def __init__(self) -> None:
        self.values: dict[str, Blob] = {}
        self._kinds: dict[str, str] = {}

    def add(self, blob: Blob, kind: str, digest: str | None = None) -> str:
        """Takes a blob in and returns its digest."""
        if digest is None:
            digest = hashlib.sha256(blob_view(blob)).hexdigest()
        self.values.setdefault(digest, blob)
        self._kinds.setdefault(digest, kind)
        return digest

    def sizes(self) -> dict[str, int]:
        """Returns bytes by digest."""
        return {digest: len(blob_view(blob)) for digest, blob in self.values.items()}

    def entries(self) -> dict[str, dict[str, Any]]:
        """Returns the manifest's "blobs"."""
        sizes = self.sizes()
        return {digest: {"bytes": sizes[digest], "kind": self._kinds[digest]} for digest in sizes}


def samples_entry(samples: Samples, blobs: Blobs) -> dict[str, Any]:
    """Returns the manifest's "samples"; its arrays become blobs."""
    labels = samples.labels
    return {
        "metric": samples.metric,
        "source": samples.source,
        "synthetic": samples.synthetic,
        "min": None if samples.least is None else float(samples.least),
        "cases": [
            {
                **{
                    which: {name: blobs.add(array, "sample") for name, array in arrays.items()}
                    for which, arrays in (("inputs", inputs), ("outputs", outputs))
                },
                **({} if labels is None else {"labels": list(labels[number])}),
            }
            for number, (inputs, outputs) in enumerate(samples.cases)
        ],
    }


def requires_of(
    artefacts: Artefacts, sizes: Mapping[str, int], weight_bytes: int
) -> dict[str, Any]:
    """Returns the manifest's "requires".

    Args:
        artefacts: Engines, segments and the fingerprint of where they were built.
        sizes: Bytes of the bundle's blobs by digest, without weights.
        weight_bytes: Bytes of the weights.
    """
    facts = artefacts.engine_facts or {}
    segments = [segment for _, lane in artefacts.lanes for segment in lane]
    loaded = weight_bytes + sum(sizes[digest] for digest in artefacts.engines)
    # a refit keeps the whole plans beside the stripped ones
    kept = loaded if any(entry["stripped"] for entry in facts.values()) else 0
    emulated = artefacts.backend == "reference"
    cores = {int(s.device[3:]) for s in segments if s.device.startswith("DLA")}
    board = {name: str(artefacts.fingerprint.get(name) or "") for name in _BOARD}
    return {
        "backend": artefacts.backend,
        "loader": _LOADER,
        "runtime": _runtime(artefacts.fingerprint),
        "boards": [] if emulated or not any(board.values()) else [board],
        "portable": bool(facts)
        and all(e["version_compatible"] and e["dla_core"] is None for e in facts.values()),
        "dla_cores": [] if emulated else sorted(cores),
        "cudla": any(entry["kind"] == "loadable" for entry in facts.values()),
        "disk_bytes": weight_bytes + sum(sizes.values()) + kept,
        "memory_bytes": loaded,
    }


def _runtime(fingerprint: Mapping[str, str]) -> dict[str, str] | None:
    name = fingerprint.get("runtime")
    if not name:
        return None
    known = _runtimes().get(name, {})
    return {"name": name, "from": known.get("from", ""), "below": known.get("below", "")}


@cache
def _runtimes() -> dict[str, dict[str, str]]:
    from edgekit._data import data_folder
    from edgekit._knowledge import read_knowledge

    found: dict[str, dict[str, str]] = read_knowledge(data_folder("targets") / "_runtimes.yaml")[
        "runtimes"
    ]
    return found
