"""Documents inside a bundle: their bytes, and the record of rewrites."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgekit.bundle._types import Bundle, blob_view
from edgekit.errors import BundleError

__all__ = ["canonical", "rewrite_record"]


def canonical(document: Mapping[str, Any]) -> bytes:
    """Returns a document as canonical JSON: keys sorted, no spaces, one newline at the end."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8") + b"\n"


def rewrite_record(bundle: Bundle) -> Any:
    """Returns the ``edgekit.rewrites/1`` document of a bundle; None when it has none.

    Raises:
        BundleError: "bundle.invalid"; the blob is not JSON.
    """
    digest = bundle.manifest.get("rewrites")
    if digest is None:
        return None
    try:
        return json.loads(bytes(blob_view(bundle.blobs[digest])))
    except (ValueError, RecursionError) as error:
        raise BundleError(
            "the record of rewrites is not JSON", code="bundle.invalid", where=bundle.name
        ) from error
