"""How fast tensors go into the DLA's formats and back, against a copy of the same memory.

    python benchmarks/formats.py [N,C,H,W]

Prints, for every format that can hold the tensor (1,64,544,960 unless given), data type and
direction, the milliseconds and the ratio to the machine's copy rate: the time of ``np.copyto``
between two buffers of the tensor's size over the time of the conversion, so both count the
tensor's bytes. Best of several, copy and conversion in turn; no memory is allocated in the measured
calls. Exit status 1 when a ratio is below its bound, 0.10 for INT8 and 0.20 for FP16.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from edgekit.dla.formats import FORMATS, border_refusal, pack, stored_shape, unpack

_SHAPE = (1, 64, 544, 960)
_LEAST = {"int8": 0.10, "float16": 0.20}
_ROUNDS = 40


def main() -> int:
    """Measures and prints."""
    words = sys.argv[1].split(",") if sys.argv[1:] else _SHAPE
    shape = tuple(int(word) for word in words)
    missed = 0
    print(f"tensor {'x'.join(map(str, shape))}, best of {_ROUNDS}")
    print(f"{'type':<9}{'format':<12}{'direction':<10}{'copy ms':>9}{'ms':>9}{'ratio':>7}  bound")
    for dtype, least in _LEAST.items():
        for form in FORMATS:
            roles = ("input", "output")
            if all(border_refusal(form, dtype, role, channels=shape[1]) for role in roles):
                continue
            for direction, (copy, seconds) in _measure(shape, dtype, form).items():
                ratio = copy / seconds
                verdict = "" if ratio >= least else "  BELOW"
                missed += ratio < least
                times = f"{copy * 1e3:9.2f}{seconds * 1e3:9.2f}{ratio:7.2f}"
                print(f"{dtype:<9}{form:<12}{direction:<10}{times}  {least:.2f}{verdict}")
    return 1 if missed else 0


def _measure(shape: tuple[int, ...], dtype: str, form: str) -> dict[str, tuple[float, float]]:
    """Best seconds of (copy, conversion) by direction."""
    random = np.random.default_rng(0)
    tensor = random.integers(0, 100, shape, np.uint8).astype(dtype)
    other = np.empty_like(tensor)
    stored = np.zeros(stored_shape(shape, dtype, form), dtype)
    jobs: dict[str, Callable[[], object]] = {
        "pack": lambda: pack(tensor, form, out=stored),
        "unpack": lambda: unpack(stored, shape, dtype, form, out=other),
    }
    found = {}
    for direction, job in jobs.items():
        copies, conversions = [], []
        for _ in range(_ROUNDS):
            copies.append(_seconds(lambda: np.copyto(other, tensor)))
            conversions.append(_seconds(job))
        found[direction] = (min(copies), min(conversions))
    return found


def _seconds(job: Callable[[], object]) -> float:
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
