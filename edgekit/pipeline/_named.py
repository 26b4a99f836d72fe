"""The model as the user named it, and its translation where it is a Q/DQ model."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from edgekit.pipeline._kept import Kept
from edgekit.pipeline._models import load_model, store_model

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.quantize import Translated

__all__ = ["Named"]


class Named(Kept):
    """From the model's name to the network that everything else starts from."""

    @cached_property
    def source(self) -> Model:
        """The model as the user named it, or what a Q/DQ model was translated to."""
        return self.named if self.translated is None else self.translated.model

    @cached_property
    def translated(self) -> Translated | None:
        """What a Q/DQ model was translated to.

        Where TensorRT reads Q/DQ nodes on the DLA it is what the plan and the reference build go
        by; the board builds from the Q/DQ model itself.
        """
        from edgekit.pipeline._translated import translation
        from edgekit.pipeline._typed import is_typed, typed_translation

        if is_typed(self.target, self.tensorrt, self.file.precision):
            found, note = typed_translation(self.named)
        else:
            found, note = translation(self.named, self.target, self.tensorrt, self.file.precision)
        self.notes += [note] if note else []
        return found

    @cached_property
    def lowers(self) -> bool:
        """Whether the network gets Q/DQ nodes before it is built: strongly typed INT8."""
        from edgekit.pipeline._typed import is_typed, typed_note
        from edgekit.quantize import has_qdq

        if not is_typed(self.target, self.tensorrt, self.file.precision) or has_qdq(self.source):
            return False
        if self.translated is None:
            self.notes.append(typed_note(self.tensorrt))
        return True

    @cached_property
    def named(self) -> Model:
        """The model as the user named it."""
        from edgekit import network

        section = self.file.model
        if section.onnx is not None:
            path = self.config.resolve(section.onnx)
            loaded = network.load(
                path, shapes=section.shapes, batch=section.batch, outputs=section.outputs or None
            )
            self.notes += loaded.notes
            return loaded
        key = self.cache.key("builtin", section.builtin, section.seed, section.outputs)
        record = None if self.force else self.cache.get("builtin", key)
        model = load_model(self.cache, record) if record else None
        if model is None:
            self.update(0, 0, "filling the built-in network")
            model = network.builtin(section.builtin, section.seed)
            if section.outputs:
                model = network.canonical(
                    model.proto, None, outputs=section.outputs, source=model.source,
                    weights=model.weights,
                )  # fmt: skip
            record = store_model(self.cache, model)
            self.cache.put("builtin", key, record)
            # from here on the weights are memory maps of the cache, not memory
            model = load_model(self.cache, record) or model
        # its sizes are fixed: others, or an input that it lacks, are told as for a file
        network.input_shapes(model.proto.graph.input, section.shapes, section.batch)
        return model
