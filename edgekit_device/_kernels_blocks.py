"""The blocks of the pack kernels' threads: what was fastest of up to 45 shapes for each pair.

Measured on an NVIDIA H200 (docs/kernels.md), not on a Jetson; any shape gives the same bytes.
Rows: (CW, PX, LANES, UNROLL, BLOCKS) as ``_kernels_source`` names them.
"""

from __future__ import annotations

from typing import Dict, Tuple

from ._kernels_layout import LAST, PLANES, VECTORS

__all__ = ["BLOCKS", "FEW", "FRAMES", "LOOSE", "MOVED", "WINDOWS"]

Block = Tuple[int, int, int, int, int]

#: By kinds and element sizes of both sides.
BLOCKS: Dict[Tuple[int, int, int, int], Block] = {
    (PLANES, PLANES, 1, 1): (1, 16, 1, 1, 6),
    (PLANES, PLANES, 1, 2): (1, 16, 1, 1, 6),
    (PLANES, PLANES, 1, 4): (1, 4, 1, 4, 6),
    (PLANES, PLANES, 2, 1): (1, 16, 1, 1, 6),
    (PLANES, PLANES, 2, 2): (1, 4, 1, 8, 4),
    (PLANES, PLANES, 2, 4): (1, 4, 1, 8, 4),
    (PLANES, PLANES, 4, 1): (1, 8, 1, 2, 6),
    (PLANES, PLANES, 4, 2): (1, 4, 1, 8, 4),
    (PLANES, LAST, 1, 1): (8, 8, 4, 1, 3),
    (PLANES, LAST, 1, 2): (4, 8, 8, 1, 4),
    (PLANES, LAST, 1, 4): (4, 4, 8, 1, 5),
    (PLANES, LAST, 2, 1): (8, 8, 4, 1, 3),
    (PLANES, LAST, 2, 2): (8, 8, 4, 1, 2),
    (PLANES, LAST, 2, 4): (4, 16, 8, 1, 2),
    (PLANES, VECTORS, 1, 1): (8, 8, 4, 1, 3),
    (PLANES, VECTORS, 1, 2): (4, 8, 8, 1, 3),
    (PLANES, VECTORS, 2, 1): (16, 4, 2, 1, 3),
    (PLANES, VECTORS, 2, 2): (4, 16, 8, 1, 2),
    (PLANES, VECTORS, 4, 1): (16, 4, 2, 1, 2),
    (PLANES, VECTORS, 4, 2): (8, 4, 4, 1, 3),
    (LAST, PLANES, 1, 1): (8, 8, 4, 1, 3),
    (LAST, PLANES, 1, 2): (4, 8, 8, 1, 4),
    (LAST, PLANES, 2, 1): (8, 8, 8, 1, 3),
    (LAST, PLANES, 2, 2): (16, 8, 2, 1, 1),
    (LAST, PLANES, 4, 1): (8, 4, 4, 1, 3),
    (LAST, PLANES, 4, 2): (8, 16, 4, 1, 1),
    (LAST, VECTORS, 1, 1): (16, 1, 2, 1, 6),
    (LAST, VECTORS, 1, 2): (16, 1, 2, 1, 6),
    (LAST, VECTORS, 2, 1): (16, 1, 2, 1, 6),
    (LAST, VECTORS, 2, 2): (8, 1, 4, 2, 5),
    (LAST, VECTORS, 4, 1): (8, 1, 4, 2, 6),
    (LAST, VECTORS, 4, 2): (8, 1, 4, 2, 5),
    (VECTORS, PLANES, 1, 1): (8, 8, 4, 1, 3),
    (VECTORS, PLANES, 1, 2): (16, 8, 2, 1, 1),
    (VECTORS, PLANES, 1, 4): (16, 4, 2, 1, 2),
    (VECTORS, PLANES, 2, 1): (4, 16, 8, 1, 3),
    (VECTORS, PLANES, 2, 2): (2, 8, 8, 2, 4),
    (VECTORS, PLANES, 2, 4): (16, 4, 2, 1, 2),
    (VECTORS, LAST, 1, 1): (16, 1, 2, 1, 6),
    (VECTORS, LAST, 1, 2): (8, 1, 4, 2, 6),
    (VECTORS, LAST, 1, 4): (4, 1, 8, 4, 5),
    (VECTORS, LAST, 2, 1): (16, 1, 2, 1, 6),
    (VECTORS, LAST, 2, 2): (8, 1, 4, 2, 6),
    (VECTORS, LAST, 2, 4): (4, 1, 8, 4, 5),
}

#: The same where a pixel has few channels, all in one thread: PX, UNROLL, BLOCKS.
FEW: Dict[Tuple[int, int, int, int], Tuple[int, int, int]] = {
    (PLANES, LAST, 1, 1): (8, 1, 6),
    (PLANES, LAST, 1, 2): (4, 1, 6),
    (PLANES, LAST, 2, 1): (4, 1, 6),
    (PLANES, LAST, 2, 2): (4, 2, 4),
    (PLANES, LAST, 4, 1): (4, 1, 6),
    (PLANES, LAST, 4, 2): (4, 1, 6),
    (LAST, PLANES, 1, 1): (16, 1, 4),
    (LAST, PLANES, 1, 2): (8, 1, 6),
    (LAST, PLANES, 2, 1): (8, 1, 6),
    (LAST, PLANES, 2, 2): (4, 2, 6),
    (LAST, PLANES, 4, 1): (4, 2, 6),
    (LAST, PLANES, 4, 2): (4, 2, 6),
    (LAST, LAST, 1, 1): (8, 1, 6),
    (LAST, LAST, 1, 2): (4, 2, 4),
    (LAST, LAST, 2, 1): (8, 1, 5),
    (LAST, LAST, 2, 2): (4, 2, 5),
    (LAST, LAST, 4, 1): (4, 1, 6),
    (LAST, LAST, 4, 2): (4, 1, 6),
}

#: Frames by whether they are NV12, and the target's kind and element size: PX, UNROLL, BLOCKS.
FRAMES: Dict[Tuple[bool, int, int], Tuple[int, int, int]] = {
    (False, PLANES, 1): (16, 1, 4),
    (False, PLANES, 2): (8, 1, 5),
    (False, LAST, 1): (8, 1, 6),
    (False, LAST, 2): (4, 2, 4),
    (True, PLANES, 1): (16, 1, 4),
    (True, PLANES, 2): (8, 1, 5),
    (True, LAST, 1): (8, 1, 4),
    (True, LAST, 2): (4, 1, 6),
}

#: As ``BLOCKS``, where the dense side's lines begin at any byte.
LOOSE: Dict[Tuple[int, int, int, int], Block] = {
    (PLANES, PLANES, 1, 1): (1, 32, 1, 1, 6),
    (PLANES, PLANES, 1, 2): (1, 16, 1, 1, 6),
    (PLANES, PLANES, 1, 4): (1, 8, 1, 1, 3),
    (PLANES, PLANES, 2, 1): (1, 16, 1, 1, 6),
    (PLANES, PLANES, 2, 2): (1, 16, 1, 1, 6),
    (PLANES, PLANES, 2, 4): (1, 8, 1, 2, 6),
    (PLANES, PLANES, 4, 1): (1, 16, 1, 1, 8),
    (PLANES, PLANES, 4, 2): (1, 16, 1, 1, 3),
    (PLANES, VECTORS, 1, 1): (4, 16, 8, 1, 4),
    (PLANES, VECTORS, 1, 2): (4, 8, 4, 1, 4),
    (PLANES, VECTORS, 2, 1): (4, 8, 8, 1, 4),
    (PLANES, VECTORS, 2, 2): (4, 16, 4, 1, 2),
    (PLANES, VECTORS, 4, 1): (16, 1, 2, 1, 4),
    (PLANES, VECTORS, 4, 2): (4, 8, 4, 1, 2),
    (LAST, PLANES, 1, 1): (16, 8, 4, 1, 3),
    (LAST, PLANES, 1, 2): (8, 4, 4, 1, 3),
    (LAST, PLANES, 2, 1): (8, 8, 8, 1, 3),
    (LAST, PLANES, 2, 2): (8, 8, 8, 1, 2),
    (LAST, PLANES, 4, 1): (8, 8, 8, 1, 2),
    (LAST, PLANES, 4, 2): (8, 4, 8, 1, 2),
    (LAST, VECTORS, 1, 1): (32, 1, 2, 1, 8),
    (LAST, VECTORS, 1, 2): (16, 1, 4, 1, 6),
    (LAST, VECTORS, 2, 1): (32, 1, 2, 1, 4),
    (LAST, VECTORS, 2, 2): (16, 1, 4, 1, 6),
    (LAST, VECTORS, 4, 1): (16, 1, 4, 1, 4),
    (LAST, VECTORS, 4, 2): (16, 1, 4, 1, 4),
    (VECTORS, PLANES, 1, 1): (8, 16, 4, 1, 3),
    (VECTORS, PLANES, 1, 2): (8, 16, 4, 1, 2),
    (VECTORS, PLANES, 1, 4): (8, 16, 4, 1, 2),
    (VECTORS, PLANES, 2, 1): (4, 16, 4, 1, 2),
    (VECTORS, PLANES, 2, 2): (4, 8, 4, 1, 4),
    (VECTORS, PLANES, 2, 4): (4, 16, 4, 1, 2),
}

#: The same for bytes that are only moved.
MOVED: Dict[Tuple[int, int, int, int], Block] = {
    (PLANES, PLANES, 1, 1): (1, 32, 1, 1, 6),
    (PLANES, VECTORS, 1, 1): (8, 16, 4, 1, 1),
    (LAST, PLANES, 1, 1): (16, 8, 4, 1, 2),
    (LAST, VECTORS, 1, 1): (32, 1, 2, 1, 6),
    (VECTORS, PLANES, 1, 1): (8, 8, 4, 1, 4),
}

#: The same where channels last are written: by the source's kind and both element sizes.
WINDOWS: Dict[Tuple[int, int, int], Block] = {
    (PLANES, 1, 1): (16, 8, 4, 1, 4),
    (PLANES, 1, 2): (8, 16, 8, 1, 2),
    (PLANES, 1, 4): (4, 8, 16, 1, 2),
    (PLANES, 2, 1): (16, 4, 4, 1, 3),
    (PLANES, 2, 2): (8, 8, 8, 1, 3),
    (PLANES, 2, 4): (4, 8, 16, 1, 3),
    (VECTORS, 1, 1): (16, 1, 1, 1, 8),
    (VECTORS, 1, 2): (16, 1, 1, 1, 8),
    (VECTORS, 1, 4): (8, 1, 1, 1, 6),
    (VECTORS, 2, 1): (8, 1, 1, 2, 3),
    (VECTORS, 2, 2): (8, 1, 1, 2, 3),
    (VECTORS, 2, 4): (8, 1, 1, 1, 6),
}
