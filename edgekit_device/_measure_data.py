"""The frames that a bench runs: what was given, the bundle's samples, or its golden frames.

Several different ones are cycled: one frame alone would stay in caches that a camera's never are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, NamedTuple, Sequence

from ._errors import DeviceError
from ._golden import frame_of, golden_inputs
from ._npz import read_npz
from ._verify import read_checked

if TYPE_CHECKING:
    import numpy as np

    from ._types import TensorEntry
    from ._verify import Checked

__all__ = ["Data", "data_of", "given"]

_MOST_FRAMES = 32
_MOST_BYTES = 256 << 20


class Data(NamedTuple):
    """Frames and where they are from: "given", "samples" or "golden"."""

    source: str
    frames: List[Dict[str, np.ndarray]]
    notes: List[str]


def data_of(checked: Checked, npz: bytes = b"") -> Data:
    """The frames to measure with: of ``npz`` where it holds any, else the bundle's own.

    Raises:
        DeviceError: "npz.invalid", "input.*", or "blob.*" for a sample that is gone.
    """
    import numpy as np

    manifest = checked.manifest
    if npz:
        return _bounded("given", given(read_npz(npz), manifest.inputs))
    if manifest.samples is not None:
        cases = manifest.samples.cases
        size = sum(manifest.sizes()[digest] for digest in cases[0].inputs.values())
        few = cases[: max(1, min(_MOST_FRAMES, _MOST_BYTES // max(size, 1)))]
        frames = [
            {
                tensor.name: np.frombuffer(
                    read_checked(checked, case.inputs[tensor.name]), tensor.dtype
                ).reshape(tensor.shape)
                for tensor in manifest.inputs
            }
            for case in few
        ]
        return Data("samples", frames, _told(len(few), len(cases)))
    cases_of = manifest.golden[:_MOST_FRAMES]
    golden = [golden_inputs(manifest.inputs, case.seed, case.ranges) for case in cases_of]
    return _bounded("golden", golden or [frame_of(manifest)])


def given(
    arrays: Dict[str, np.ndarray], tensors: Sequence[TensorEntry]
) -> List[Dict[str, np.ndarray]]:
    """One frame, or several where every array has one axis more than its input, the first.

    Raises:
        DeviceError: "input.shape" where only some have it, or their numbers of frames differ.
    """
    ranks = {tensor.name: len(tensor.shape) for tensor in tensors}
    known = {name: array for name, array in arrays.items() if name in ranks}
    stacked = [name for name, array in known.items() if array.ndim == ranks[name] + 1]
    if not stacked:
        return [arrays]  # whatever else is wrong with them is told by the check of inputs
    counts = {int(known[name].shape[0]) for name in stacked}
    if len(stacked) != len(arrays) or len(counts) != 1 or min(counts) < 1:
        raise DeviceError(
            "with several frames every input needs the same leading number of them",
            code="input.shape",
            hint="stack the frames with numpy.stack",
        )
    return [{name: array[i] for name, array in arrays.items()} for i in range(min(counts))]


def _bounded(source: str, frames: List[Dict[str, np.ndarray]]) -> Data:
    size = sum(array.nbytes for array in frames[0].values())
    most = max(1, min(_MOST_FRAMES, _MOST_BYTES // max(size, 1)))
    return Data(source, frames[:most], _told(min(most, len(frames)), len(frames)))


def _told(used: int, there: int) -> List[str]:
    return [] if used == there else ["the first {} of {} frames are cycled".format(used, there)]
