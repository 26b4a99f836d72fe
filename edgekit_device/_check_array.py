"""One input of a model: its type and shape are those that the network was built for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import DeviceError
from ._types import TensorEntry

if TYPE_CHECKING:
    import numpy as np

__all__ = ["check_array"]


def check_array(array: np.ndarray, tensor: TensorEntry) -> np.ndarray:
    """Returns the array, contiguous.

    Raises:
        DeviceError: "input.dtype" or "input.shape".
    """
    import numpy as np

    if array.dtype != np.dtype(tensor.dtype):
        raise DeviceError(
            "{!r} is {}, the model wants {}".format(tensor.name, array.dtype, tensor.dtype),
            code="input.dtype",
            where=tensor.name,
            hint="convert it with .astype({!r})".format(tensor.dtype),
        )
    if array.shape != tensor.shape:
        raise DeviceError(
            "{!r} has the shape {}, the model wants {}".format(
                tensor.name, list(array.shape), list(tensor.shape)
            ),
            code="input.shape",
            where=tensor.name,
            hint="the network was built for this one shape; resize or reshape the array",
        )
    return np.ascontiguousarray(array).reshape(tensor.shape)
