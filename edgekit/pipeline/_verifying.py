"""Repeats the proofs of a rewriting that somebody recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import DataError
from edgekit.pipeline._batch import batch_of_one

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.pipeline._progress import Progress
    from edgekit.rewrite import Claim

__all__ = ["verify_rewrites"]

_LARGEST = 256 << 20


def verify_rewrites(
    model: str | Path,
    record: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Repeats a rewriting with its proofs and returns an ``edgekit.verified/1`` document.

    Args:
        model: What was rewritten: an ONNX file, "builtin:NAME" or a YAML configuration.
        record: What says how: the record that ``rewrite`` wrote, the rewritten model, or a bundle.
        shapes: Sizes by input, where the file leaves them open.
        outputs: Tensors to cut the network at.
        progress: Where steps are told; nowhere when None.

    Raises:
        DataError: ``record`` is none, or of another model.
        GateError: "rewrite.not-repeated": a recorded step does not apply any more.
        ModelError: The model cannot be read.
        BundleError: ``record`` is a damaged bundle.
    """
    from edgekit.pipeline._progress import Quiet
    from edgekit.rewrite import verify

    told = progress or Quiet()
    original = _model(str(model), shapes, outputs)
    claim = _claim(Path(record), original)
    document = verify(
        original, claim, progress=lambda done, total: told.update(done, total, "proofs")
    )
    return {**document, "record": str(record)}


def _model(
    name: str, shapes: Mapping[str, Sequence[int]] | None, outputs: Sequence[str] | None
) -> Model:
    from edgekit import network

    if Path(name).suffix.lower() in (".yaml", ".yml") or name.startswith("builtin:"):
        from edgekit.config import open_config
        from edgekit.pipeline._pipeline import Pipeline

        part = {"shapes": shapes, "outputs": outputs}
        # a model needs a board, which decides nothing here
        board = {"target": "jetson-agx-orin-64gb"} if name.startswith("builtin:") else {}
        with Pipeline(open_config(name, model=part, **board)) as pipeline:
            return pipeline.work.source
    given = {key: list(sizes) for key, sizes in (shapes or {}).items()}
    # as for the rewriting
    sizes = given or batch_of_one(Path(name))
    return network.load(Path(name), shapes=sizes or None, outputs=list(outputs or ()) or None)


def _claim(path: Path, original: Model) -> Claim:
    from edgekit import network
    from edgekit.rewrite import claim_of_document, claim_of_model

    if path.suffix.lower() == ".onnx":
        return claim_of_model(network.load(path), original)
    if path.is_dir() or path.suffix.lower() == ".ekb":
        from edgekit.bundle import read, rewrite_record

        document = rewrite_record(read(path))
        if document is None:
            raise DataError(
                "nothing was rewritten in this bundle: it has no record",
                code="rewrite.no-record",
                where=str(path),
            )
        return claim_of_document(document, str(path))
    return claim_of_document(_json(path), str(path))


def _json(path: Path) -> Any:
    hint = "give what edgekit rewrite wrote: a --record file, a model (.onnx) or a bundle (.ekb)"
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("it is too large")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(
            f"the record cannot be read: {error.strerror or error}",
            code="rewrite.record",
            where=str(path),
            hint=hint,
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            "this is no record of rewrites: it is not JSON",
            code="rewrite.record",
            where=str(path),
            hint=hint,
        ) from error
