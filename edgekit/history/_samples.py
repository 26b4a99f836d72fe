"""Documents and samples as the history keeps them: small, and exactly what they were."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.errors import DataError

__all__ = ["damaged", "pack_document", "pack_samples", "unpack_document", "unpack_samples"]


def pack_samples(samples: Sequence[float]) -> bytes:
    """Returns float64 samples, deflated.

    The first bytes of all numbers come first, then the second ones: exponents of times that are
    alike are alike.
    """
    import numpy as np

    values = np.asarray(samples, "<f8")
    planes = values.view(np.uint8).reshape(-1, 8).T
    return zlib.compress(planes.tobytes())


def unpack_samples(data: bytes) -> tuple[float, ...]:
    """Returns what :func:`pack_samples` took.

    Raises:
        DataError: The bytes are damaged.
    """
    import numpy as np

    try:
        planes = np.frombuffer(zlib.decompress(data), np.uint8).reshape(8, -1)
    except (zlib.error, ValueError, TypeError) as error:
        raise damaged(error) from error
    return tuple(np.ascontiguousarray(planes.T).view("<f8").reshape(-1).tolist())


def pack_document(document: Mapping[str, Any]) -> bytes:
    """Returns a document as deflated canonical JSON.

    Raises:
        DataError: It is not JSON.
    """
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the measurement cannot be kept as JSON: {error}", code="history.not-json"
        ) from error
    return zlib.compress(text.encode())


def unpack_document(data: bytes) -> dict[str, Any]:
    """Returns what :func:`pack_document` took.

    Raises:
        DataError: The bytes are damaged.
    """
    try:
        document = json.loads(zlib.decompress(data))
    except (zlib.error, ValueError, TypeError, RecursionError) as error:
        raise damaged(error) from error
    if not isinstance(document, dict):
        raise damaged("no JSON object")
    return document


def damaged(why: object) -> DataError:
    """Returns the error of a result that cannot be read."""
    return DataError(
        f"a result of the history is damaged: {why}", code="history.damaged",
        hint="edgekit history --repair keeps what can be read",
    )  # fmt: skip
