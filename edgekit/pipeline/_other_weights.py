"""The rewritten network with the weights of another file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.pipeline._sources import Sources

if TYPE_CHECKING:
    from edgekit.network import Model

__all__ = ["Reweighing"]


class Reweighing(Sources):
    """From another file of the model's to the rewritten network with its weights."""

    def other_weights(self, path: Path) -> Model:
        """Returns the rewritten model with the weights of another file of the original's names.

        The file may be the original with other values also where the configuration's model is
        what ``edgekit rewrite`` wrote; and it may be one that was rewritten likewise.

        Raises:
            DataError: "refit.mismatch": its weights differ in name, shape or type, or something
                differs that is no weight.
        """
        from edgekit import network
        from edgekit.pipeline._translated import translated_alike
        from edgekit.rewrite import check_file, check_network, record_of, reweigh

        if self.translated is None:
            check_file(path, self.model)
        section = self.file.model
        # cut points of a rewritten file may be no tensors of the original's
        outputs = section.outputs or None if record_of(self.source) is None else None
        other = network.load(path, shapes=self._shapes_of(path) or None, outputs=outputs)
        if self.translated is not None:
            other = translated_alike(self.translated, other, path)
        if record_of(self.model) is not None:
            return reweigh(self.model, other)
        check_network(self.model, other)
        return other

    def _shapes_of(self, path: Path) -> dict[str, list[int]]:
        """The sizes for another file's inputs: those of the configuration, or else of the model."""
        from edgekit import network

        own = {
            value.name: value.type.tensor_type.shape.dim for value in self.model.proto.graph.input
        }
        left_open = [name for name in network.open_inputs(path) if name in own]
        sizes = {name: [dim.dim_value for dim in own[name]] for name in left_open}
        return {**sizes, **self.file.model.shapes}
