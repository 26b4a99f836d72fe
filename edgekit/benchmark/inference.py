"""The document ``edgekit.infer/1``: an inference on a board."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgekit.benchmark.document import BoardName
from edgekit.documents import Coded, Count, Document, Number
from edgekit_device.release.journal import TakenBack


class InferredOutput(Document):
    """An output: its finite extremes and the index of its largest value.

    Attributes:
        shape: Sizes of the axes.
        min: Smallest finite value.
        max: Largest finite value.
    """

    name: str
    dtype: str
    shape: list[Count]
    min: Number | None
    max: Number | None
    argmax: Count | None = Field(description="of the flattened output")

    @classmethod
    def of(cls, name: str, value: np.ndarray) -> InferredOutput:
        """Returns the entry of an output's values."""
        finite = value[np.isfinite(value)] if value.dtype.kind == "f" else value
        return cls(
            name=name,
            dtype=str(value.dtype),
            shape=list(value.shape),
            min=float(finite.min()) if finite.size else None,
            max=float(finite.max()) if finite.size else None,
            argmax=int(value.reshape(-1).argmax()) if value.size else None,
        )


class Inference(Document):
    """An inference on a board."""

    schema_: Literal["edgekit.infer/1"] = Field(alias="schema")
    board: BoardName
    release: str | None
    backend: str
    bit_equal: bool | None = Field(
        description="whether the unstripped build on this machine gives the same bits; null for "
        "a refitted release, for one that serves instead of one that was taken back, and for one "
        "whose engines only a board can run"
    )
    outputs: list[InferredOutput]
    file: str = Field(description="the .npz with the outputs")
    drawn: list[str] = Field(
        default_factory=list, description="pictures with a detector's objects, if asked for"
    )
    taken_back: Annotated[TakenBack, Coded()] | None
    notes: list[str]
