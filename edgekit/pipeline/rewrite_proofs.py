"""Repeats the proofs of a recorded rewriting (`edgekit rewrite --verify`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from edgekit.bundles.files import read
from edgekit.bundles.manifest import rewrite_record
from edgekit.bundles.sign import known_signers
from edgekit.config.loader import open_config
from edgekit.documents import load_json
from edgekit.errors import BundleError, DataError
from edgekit.network.loading.load import load
from edgekit.network.model import Model
from edgekit.network.source import is_builtin, is_config_file
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.progress import Progress, SilentProgress
from edgekit.pipeline.steps.load import source
from edgekit.placement.translation import find_model_by_digest
from edgekit.rewriting.provenance.verification import (
    Claim,
    Verified,
    claim_of_document,
    claim_of_model,
    verify,
)

# bytes of a record
_LARGEST = 256 << 20


def verify_rewrites(
    model: str | Path,
    record: str | Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    outputs: Sequence[str] | None = None,
    trust_unsigned: bool = False,
    progress: Progress | None = None,
) -> Verified:
    """Repeats a rewriting with its proofs and returns an ``edgekit.verified/1``.

    Args:
        model: The rewritten model: an ONNX file, "builtin:NAME" or a YAML configuration.
        record: The record that ``rewrite`` wrote, the rewritten model, or a bundle.
        shapes: Sizes by input, if the file leaves them open.
        batch: The batch, if only the batch is open; 1 if None.
        outputs: Tensors to cut the network at.
        trust_unsigned: Accepts a bundle without a signature, or signed by an unknown key. Known
            are the key of the configuration, edgekit's own, and those that ``edgekit_device``
            trusts here.
        progress: Called with the steps' progress; not used if None.

    Raises:
        DataError: ``record`` is not a record, or is a record of another model.
        GateError: "rewrite.not-repeated": a recorded step no longer applies.
        ModelError: The model cannot be read.
        BundleError: ``record`` is a damaged bundle, or its signature is not accepted.
    """
    reporter = progress or SilentProgress()
    original = _load_model(str(model), shapes, batch, outputs)
    claim = _read_claim(Path(record), original, str(model), trust_unsigned)
    # the record may be of the translation of a Q/DQ model
    original = find_model_by_digest(original, claim.original)
    verified = verify(
        original, claim, progress=lambda done, total: reporter.update(done, total, "proofs")
    )
    return replace(verified, record=str(record))


def _load_model(
    name: str,
    shapes: Mapping[str, Sequence[int]] | None,
    batch: int | None,
    outputs: Sequence[str] | None,
) -> Model:
    if is_config_file(name) or is_builtin(name):
        part = {"shapes": shapes, "batch": batch, "outputs": outputs}
        # a model needs a board, which has no effect here
        board = {"target": "jetson-agx-orin-64gb"} if is_builtin(name) else {}
        with Pipeline(open_config(name, model=part, **board)) as pipeline:
            return source(pipeline.context)
    return load(Path(name), shapes=shapes, batch=batch, outputs=list(outputs or ()) or None)


def _read_claim(path: Path, original: Model, model: str, trust_unsigned: bool) -> Claim:
    if path.suffix.lower() == ".onnx":
        return claim_of_model(load(path), original)
    if path.is_dir() or path.suffix.lower() == ".ekb":
        try:
            bundle = read(path, signers=_accepted_signers(model), trust_unsigned=trust_unsigned)
        except BundleError as error:
            if error.code in ("bundle.unsigned", "bundle.unknown-signer"):
                error.hint = (
                    "give the configuration it was built from instead of the model, or "
                    "--trust-unsigned (trust_unsigned=True) for your own bundle"
                )
            raise
        document = rewrite_record(bundle)
        if document is None:
            raise DataError(
                "this bundle has no record: its network was not rewritten",
                code="rewrite.no-record",
                where=str(path),
            )
        return claim_of_document(document, str(path))
    document = load_json(
        path,
        _LARGEST,
        unreadable="rewrite.record",
        invalid="rewrite.record",
        hint="give a --record file, a model (.onnx) or a bundle (.ekb) from edgekit rewrite",
    )
    return claim_of_document(document, str(path))


def _accepted_signers(model: str) -> list[str]:
    """The keys that may have signed a bundle: this machine's, and the configuration's."""
    if not is_config_file(model):
        return known_signers()
    config = open_config(model)
    chosen = config.file.deploy.sign_with
    return known_signers([config.resolve(chosen)] if chosen else [])
