"""A frame's inputs held against what the model takes."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Dict, Mapping, Sequence, Union

from ._check_array import check_array
from ._errors import DeviceError
from ._types import TensorEntry

if TYPE_CHECKING:
    import numpy as np

__all__ = ["check_inputs"]


def check_inputs(
    model: str,
    tensors: Sequence[TensorEntry],
    inputs: Union[Mapping[str, np.ndarray], np.ndarray],
) -> Dict[str, np.ndarray]:
    """Checks names, dtypes and shapes.

    Args:
        model: Its name, for errors.
        tensors: What it takes.
        inputs: An array by name; an array alone where it takes one.

    Returns:
        Contiguous arrays by name.

    Raises:
        DeviceError: "input.unknown", "input.missing", "input.dtype" or "input.shape".
    """
    import numpy as np

    if not isinstance(inputs, Mapping):
        if len(tensors) != 1:
            raise DeviceError(
                "the model has {} inputs, so it needs them by name".format(len(tensors)),
                code="input.missing",
                where=model,
                hint="pass a dict of {}".format(_names(tensors)),
            )
        inputs = {tensors[0].name: inputs}
    known = {tensor.name: tensor for tensor in tensors}
    for name in inputs:
        if name not in known:
            folded = {each.casefold(): each for each in known}
            near = difflib.get_close_matches(str(name).casefold(), list(folded), n=1)
            raise DeviceError(
                "there is no input {!r}".format(str(name)[:80]),
                code="input.unknown",
                where=model,
                hint="did you mean {!r}?".format(folded[near[0]]) if near else _names(tensors),
            )
    missing = [name for name in known if name not in inputs]
    if missing:
        raise DeviceError(
            "missing: {}".format(", ".join(map(repr, missing))),
            code="input.missing",
            where=model,
            hint="the model's inputs are {}".format(_names(tensors)),
        )
    return {name: check_array(np.asarray(inputs[name]), tensor) for name, tensor in known.items()}


def _names(tensors: Sequence[TensorEntry]) -> str:
    return ", ".join(
        "{!r} ({} {})".format(tensor.name, tensor.dtype, list(tensor.shape)) for tensor in tensors
    )
