"""Fills the store with a bundle's weights from an ONNX file that lies on the board already.

Whatever file is given, only values with the digests of the (signed) manifest are taken: an engine
built with REFIT_IDENTICAL can never get others, and a bundle for other weights is a bundle of its
own.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import List

from ._errors import DeviceError, map_os_errors
from ._files import workspace
from ._refit_rules import named_weights
from ._root import Root
from ._store import map_file, sha256
from ._types import Manifest, WeightEntry

__all__ = ["fill_from_onnx"]

_SHOWN = 10
_BY_NODE = ("batch-norm-", "constant-of-shape:")


def fill_from_onnx(root: Root, manifest: Manifest, path: Path) -> int:
    """Takes the weights that the store lacks from an ONNX file, by their refit names.

    Returns:
        How many were taken.

    Raises:
        DeviceError: "model.not-found", "refit.mismatch" for weights that the file lacks,
            "refit.other-weights" for values that are not the manifest's, or as ``named_weights``.
    """
    lacking = {
        name: weight
        for name, weight in manifest.weights.items()
        if root.store.missing([weight.digest])
    }
    if not lacking:
        return 0
    if not path.is_file():
        raise DeviceError(
            "there is no ONNX file here",
            code="model.not-found",
            where=str(path),
            hint="the path is one on the board",
        )
    with map_os_errors(str(path)):
        model = map_file(path)
    named = {name: _in_file(name, weight) for name, weight in lacking.items()}
    found = named_weights(model, path.resolve().parent, named.values())
    arrays = {name: found[key] for name, key in named.items() if key in found}
    missing = [name for name in lacking if name not in arrays]
    if missing:
        raise _refused("lacks weights of the bundle", "refit.mismatch", path, missing)
    # the manifest's blobs are little-endian and dense, as the arrays are on every Jetson
    values = {name: array.tobytes() for name, array in arrays.items()}
    other = [name for name, data in values.items() if sha256(data) != lacking[name].digest]
    if other:
        raise _refused("has other weights than the bundle", "refit.other-weights", path, other)
    with root.lock(shared=True), workspace(root.folder) as work:
        for name, data in values.items():
            root.store.receive(lacking[name].digest, len(data), io.BytesIO(data), work)
    return len(values)


def _in_file(name: str, weight: WeightEntry) -> str:
    """What a weight is called in the user's file.

    Names that an importer counts ("tmp_batch_norm_weight") count another engine's nodes, or those
    of a part of the file: there the node says which one is meant.
    """
    if weight.transform in ("", "none"):
        return weight.source or name
    return weight.transform if weight.transform.startswith(_BY_NODE) else name


def _refused(what: str, code: str, path: Path, names: List[str]) -> DeviceError:
    more = len(names) - _SHOWN
    return DeviceError(
        "the ONNX file {}: {}{}".format(
            what,
            ", ".join(repr(name[:80]) for name in names[:_SHOWN]),
            " and {} more".format(more) if more > 0 else "",
        ),
        code=code,
        where=str(path),
        hint="give the file that the bundle was built from, or deploy the weights",
    )
