"""Version numbers of TensorRT, runtimes and libraries: reads, compares and writes them."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Tuple

#: The known numbers of a version: major, minor, patch and so on.
Version = Tuple[int, ...]

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def parse_version(text: str) -> Version:
    """Returns the numbers that a version begins with, such as "8.6.1.post1"; () without any."""
    found = _NUMBERS.match(text)
    return tuple(int(number) for number in found.group().split(".")) if found else ()


def strip_zeros(version: Version, least: int = 1) -> Version:
    """Returns a version without trailing zeros, but with at least its first ``least`` numbers."""
    end = len(version)
    while end > least and version[end - 1] == 0:
        end -= 1
    return version[:end]


def minor_release(version: Version) -> Version:
    """Returns major and minor: (10, 3) of 10.3.0.30, (10, 0) of 10."""
    return (*version, 0)[:2]


def at_least(version: Version, oldest: Version) -> bool:
    """Returns True if a version is ``oldest`` or newer; 10.3 and 10.3.0 are the same."""
    pairs = list(zip_longest(version, oldest, fillvalue=0))
    return [here for here, _ in pairs] >= [least for _, least in pairs]


def agree(a: Version, b: Version) -> bool:
    """Returns True if two versions are equal in every common part: 10.3 and 10.3.0.30 are."""
    return all(left == right for left, right in zip(a, b))  # noqa: B905 - Python 3.8


def same_version(a: Version, b: Version) -> bool:
    """Returns True if two versions agree and both have major, minor and patch."""
    return min(len(a), len(b)) >= 3 and agree(a, b)


def tensorrt_number(version: Version) -> int:
    """Returns NV_TENSORRT_VERSION: 8.6.2 is 8602 and, since version 10, 10.3 is 100300."""
    major, minor, patch = (*version, 0, 0, 0)[:3]
    # two digits for each part since version 10 (NvInferVersion.h)
    return (
        major * 10000 + minor * 100 + patch if major >= 10 else major * 1000 + minor * 100 + patch
    )


def numbered_release(number: int) -> Version:
    """Returns the release of NV_TENSORRT_VERSION: (8, 5, 2) of 8502, (10, 3, 0) of 100300."""
    high, low = (10000, 100) if number >= 100000 else (1000, 100)
    return number // high, number % high // low, number % low


def show(version: Version) -> str:
    """Returns a version as text; "unknown" without numbers."""
    return ".".join(str(part) for part in version) or "unknown"
