"""The calibration inputs: the user's own, or synthetic ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.network import PYTHON
from edgekit.pipeline._other_weights import Reweighing
from edgekit.pipeline._stored import identity

if TYPE_CHECKING:
    import numpy as np

    from edgekit.quantize import Samples

__all__ = ["Inputs"]

# keys of the configuration's section that do not change the inputs
_OTHERS = frozenset({"method", "cache", "missing", "fp16_layers"})


class Inputs(Reweighing):
    """What the network is calibrated and compared on.

    Attributes:
        read: How many of the user's inputs there were; None before they were read once.
    """

    read: int | None = None

    def inputs(self) -> Iterable[Mapping[str, np.ndarray]]:
        """Returns the calibration inputs: the user's, or synthetic seeded ones."""
        section = self.file.calibration
        if section.data is None:
            from edgekit.network import synthetic_inputs

            return _Repeat(
                section.count, lambda: synthetic_inputs(self.model, section.count, section.seed)
            )
        return self._own(section.count)

    def _own(self, count: int, skip: int = 0) -> Samples:
        from edgekit.quantize import load_data

        section = self.file.calibration
        data = section.data if self._called else self.config.resolve(section.data)
        options = section.model_dump(exclude={*_OTHERS, "seed"})
        return load_data(
            {**options, "data": data, "count": count}, self.model, folders=self._modules, skip=skip
        )

    def inputs_beyond(self, most: int) -> Iterable[Mapping[str, np.ndarray]]:
        """Returns inputs of the same kind that come after those of the calibration.

        There are fewer than ``most``, or none, where the data have no more, or where those that
        are taken would be others then (``pick: spread``).
        """
        section = self.file.calibration
        if section.data is None:
            from edgekit.network import synthetic_inputs

            return synthetic_inputs(self.model, most, section.seed, first=section.count)
        if section.pick == "spread":
            return ()
        # samples are rows of a batch
        rows = self._own(1).batch
        return self._own(section.count + most * rows, skip=section.count)

    @property
    def inputs_text(self) -> str:
        """What the calibration inputs are, for people."""
        section = self.file.calibration
        if section.data is None:
            from edgekit.network import synthetic_description

            return synthetic_description(section.count, section.seed)
        number = f"at most {section.count}" if self.read is None else f"{self.read}"
        return f"{number} input{'' if self.read == 1 else 's'} of {section.data}"

    @cached_property
    def inputs_identity(self) -> list[Any]:
        """What tells one set of calibration inputs from another.

        Of a Python function that is its module's file: what the function reads is not seen.
        """
        section = self.file.calibration
        settings = section.model_dump(exclude=_OTHERS)
        if section.data is None:
            return [settings]
        if not self._called:
            return [settings, identity(self.config.resolve(section.data))]
        from edgekit.quantize import module_file

        self.notes.append(
            f"of {section.data} only the module's file is watched: after a change of anything else "
            "that it reads, --force measures again"
        )
        return [settings, identity(module_file(section.data, self._modules))]

    @property
    def _called(self) -> bool:
        """Whether the inputs come from a function of the user's."""
        return (self.file.calibration.data or "").startswith(PYTHON)

    @property
    def _modules(self) -> list[Path]:
        """Where a module is looked for before Python's path."""
        return list(dict.fromkeys([self.config.folder.absolute(), Path().absolute()]))


class _Repeat:
    """A sized iterable that starts anew each time it is iterated."""

    def __init__(self, count: int, begin: Callable[[], Any]) -> None:
        self._count = count
        self._begin = begin

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Any:
        return iter(self._begin())
