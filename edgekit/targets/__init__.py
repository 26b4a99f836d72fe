"""The targets floor: boards as ``targets/NAME.yaml`` describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.targets._jetpack import JetPack, jetpack_of_l4t, jetpacks, tensorrt_of_jetpack
    from edgekit.targets._load import alike, get, names
    from edgekit.targets._modes import find_mode
    from edgekit.targets._types import Dla, Dram, Gpu, PowerMode, Rails, Target

__all__ = [
    "Dla",
    "Dram",
    "Gpu",
    "JetPack",
    "PowerMode",
    "Rails",
    "Target",
    "alike",
    "find_mode",
    "get",
    "jetpack_of_l4t",
    "jetpacks",
    "names",
    "tensorrt_of_jetpack",
]

__getattr__ = lazy(
    __name__,
    {
        "_jetpack": "JetPack jetpack_of_l4t jetpacks tensorrt_of_jetpack",
        "_load": "alike get names",
        "_modes": "find_mode",
        "_types": "Dla Dram Gpu PowerMode Rails Target",
    },
)
