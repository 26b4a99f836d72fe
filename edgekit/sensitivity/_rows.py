"""A tensor's values in the FP32 network and in those of its variants that differ there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """One tensor: row 0 is FP32's, row 1 + i that of variant ``ids[i]``.

    Variants that are not listed have row 0 here: nothing upstream of this tensor is in INT8 there.
    """

    ids: tuple[int, ...]
    array: np.ndarray

    @classmethod
    def of(cls, value: np.ndarray) -> Rows:
        """A tensor that no variant changes."""
        return cls((), value[None])

    @property
    def base(self) -> np.ndarray:
        """The tensor in the FP32 network."""
        value: np.ndarray = self.array[0]
        return value

    def row(self, variant: int) -> np.ndarray:
        """The tensor in a variant."""
        value: np.ndarray = self.array[self.ids.index(variant) + 1 if variant in self.ids else 0]
        return value

    def gather(self, ids: Sequence[int]) -> np.ndarray:
        """Returns row 0 and the rows of ``ids``; no copy where these are the tensor's own."""
        if tuple(ids) == self.ids:
            return self.array
        at = {variant: number for number, variant in enumerate(self.ids, 1)}
        rows: np.ndarray = self.array[[0, *(at.get(variant, 0) for variant in ids)]]
        return rows
