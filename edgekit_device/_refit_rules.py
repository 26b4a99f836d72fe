"""Weights by the names that a refit asks for, read from an ONNX file without TensorRT's parser.

The rules are those of onnx-tensorrt's ModelRefitter.cpp and WeightsContext.cpp (Apache-2.0,
release 10.1 GA, https://github.com/onnx/onnx-tensorrt): initializers of the graph and of bodies of
If, Loop and Scan by their own names; Constant nodes by their output; folded batch normalisations as
"tmp_batch_norm_weight", "tmp_batch_norm_weight_0", "..._1": scale and then bias of each node, in
topological order. The lean runtime has no OnnxParserRefitter, hence this.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Dict, Iterable, Optional

if TYPE_CHECKING:
    import numpy as np

__all__ = ["named_weights"]


def named_weights(
    model: bytes, folder: Optional[Path], wanted: Iterable[str]
) -> Dict[str, np.ndarray]:
    """Reads the weights called ``wanted``.

    Args:
        model: An ONNX file's bytes.
        folder: Where its external data lies; None: it has none, or refuses it.
        wanted: Names as ``Refitter.get_all_weights`` gives them.

    Returns:
        Arrays by name, only those found; bfloat16 as uint16 bit patterns.

    Raises:
        DeviceError: "model.invalid", "model.external-data".
    """
    raise NotImplementedError
