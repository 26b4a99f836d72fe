"""What became known of a measurement later, written into its result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.history._record import digest_of_run, samples_of
from edgekit.history._samples import pack_document
from edgekit.history._store import Store, history_path
from edgekit.history._types import Result

__all__ = ["amend"]


def amend(document: Mapping[str, Any], *, path: Path | None = None) -> int | None:
    """Gives the result of a measurement its energy, monitor and verdict as the document has them.

    Args:
        document: An ``edgekit.bench/1`` whose times are those that were recorded.
        path: The history's file; $EDGEKIT_HISTORY or the cache folder's without it.

    Returns:
        The result's id; None where the history has none of this measurement.

    Raises:
        EnvironmentLack: The history cannot be written.
    """
    kept = {key: value for key, value in document.items() if key != "samples_ms"}
    result, samples = Result(document=kept), samples_of(document)
    if not (path or history_path()).exists():
        return None
    with Store(path, write=True) as store:
        for bundle in store.bundles(result.name):
            # of which bundle it is the document does not tell
            digest = digest_of_run(kept, samples, bundle)
            found = store.amend(digest, {
                "verdict": result.verdict, "energy_uj": result.energy_uj,
                "document": pack_document(kept),
            })  # fmt: skip
            if found is not None:
                return found
    return None
