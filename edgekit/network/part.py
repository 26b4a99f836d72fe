"""What of a model is meant, where a command or a caller says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ModelPart:
    """Sizes, batch and cut of a model, and the board's plugins for it.

    The attributes are keys of a configuration's "model"; None is not given.

    Attributes:
        shapes: Sizes by tensor, for inputs with open sizes and tensors whose shape depends on a
            plugin or on data.
        batch: The batch where the model leaves it open.
        outputs: Tensors to cut the network at.
        plugins: Operators of the model for which the board has a plugin of the same name.
    """

    shapes: Mapping[str, Sequence[int]] | None = None
    batch: int | None = None
    outputs: Sequence[str] | None = None
    plugins: Sequence[str] | None = None

    @property
    def given(self) -> bool:
        """Whether anything is given."""
        return any((self.shapes, self.batch, self.outputs, self.plugins))
