"""The part of a model that a command or a caller selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from edgekit.network.ranges import GivenShape


class ModelPart(NamedTuple):
    """Sizes, batch and cut of a model, and the board's plugins for it.

    The attributes are keys of a configuration's "model"; None if not given.

    Attributes:
        shapes: Sizes by tensor, for inputs with dynamic sizes and tensors with plugin- or
            data-dependent shapes. Sizes of inputs may be ranges: "1x3x320..640x224".
        batch: The size of a dynamic batch.
        outputs: Tensors to cut the network at.
        plugins: Operators of the model for which the board has a plugin of the same name.
        inputs: For a PyTorch network, sizes by input: ``{"x": "1x3x224x224:float32"}``.
        exporter: For a PyTorch network, "dynamo" or "legacy".
        trust: SHA-256 of a PyTorch file whose pickle may be run.
        leave: Paths (globs) of the modules that are left out of the network.
        cut: "auto": cuts the network at edgekit's first proposal.
        head: "auto": cuts the network at the raw maps of its recognised detection head; or the
            path of the head's document.
    """

    shapes: Mapping[str, GivenShape] | None = None
    batch: int | None = None
    outputs: Sequence[str] | None = None
    plugins: Sequence[str] | None = None
    inputs: Mapping[str, str] | None = None
    exporter: str | None = None
    trust: str | None = None
    leave: Sequence[str] | None = None
    cut: str | None = None
    head: str | None = None

    @property
    def static_shapes(self) -> dict[str, list[int]] | None:
        """Returns the shapes, which must be static.

        Raises:
            UsageError: A shape is a range.
        """
        from edgekit.errors import UsageError
        from edgekit.network.ranges import parse_shape

        if self.shapes is None:
            return None
        found: dict[str, list[int]] = {}
        for name, given in self.shapes.items():
            axes = parse_shape(given) if isinstance(given, str) else given
            found[name] = [size for size in axes if isinstance(size, int)]
            if isinstance(axes, Mapping) or len(found[name]) < len(axes):
                raise UsageError(
                    f"the shape of {name!r} is a range, and one shape is needed",
                    where="model.shapes",
                    hint=f"give one: --shape {name}:1x3x224x224",
                )
        return found

    @property
    def given(self) -> bool:
        """True if any attribute is given."""
        return any(self)
