"""What of a model is meant, where a command or a caller says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class ModelPart(NamedTuple):
    """Sizes, batch and cut of a model, and the board's plugins for it.

    The attributes are keys of a configuration's "model"; None is not given.

    Attributes:
        shapes: Sizes by tensor, for inputs with open sizes and tensors whose shape depends on a
            plugin or on data.
        batch: The batch where the model leaves it open.
        outputs: Tensors to cut the network at.
        plugins: Operators of the model for which the board has a plugin of the same name.
        inputs: Of a PyTorch network, sizes by input: ``{"x": "1x3x224x224:float32"}``.
        exporter: Of a PyTorch network, "dynamo" or "legacy".
        trust: SHA-256 of a PyTorch file whose pickle may be run.
        leave: Paths (globs) of the modules that are left out of the network.
        cut: "auto": the network is cut where edgekit proposes it first.
    """

    shapes: Mapping[str, Sequence[int]] | None = None
    batch: int | None = None
    outputs: Sequence[str] | None = None
    plugins: Sequence[str] | None = None
    inputs: Mapping[str, str] | None = None
    exporter: str | None = None
    trust: str | None = None
    leave: Sequence[str] | None = None
    cut: str | None = None

    @property
    def given(self) -> bool:
        """Whether anything is given."""
        return any(self)
