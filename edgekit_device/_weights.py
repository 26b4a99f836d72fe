"""The bundle's weights as arrays over the blobs' memory: nothing is copied or read ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._errors import DeviceError
from ._types import WeightEntry

if TYPE_CHECKING:
    import numpy as np

    from ._verify import Checked

__all__ = ["BITS", "weight_array"]

#: Types that NumPy lacks, and what holds their bits.
BITS = {"bfloat16": "uint16"}


def weight_array(checked: Checked, weight: WeightEntry) -> np.ndarray:
    """A weight's values; bfloat16 as uint16 bit patterns.

    Raises:
        DeviceError: "blob.missing", or "blob.digest-mismatch" for a blob of another size.
    """
    import numpy as np

    view = checked.files.blob(weight.digest)
    if len(view) != weight.bytes:
        raise DeviceError(
            "the blob has {} bytes instead of {}".format(len(view), weight.bytes),
            code="blob.digest-mismatch",
            where=weight.digest,
            hint="the file was changed or the storage is failing; deploy the bundle again",
        )
    dtype = BITS.get(weight.dtype, weight.dtype)
    if not weight.bytes:
        return np.empty(weight.shape, dtype=dtype)
    array = np.frombuffer(view, dtype=dtype).reshape(weight.shape)
    # a bundle file of another maker may not align its entries
    return array if array.flags.aligned else array.copy()
