"""The targets floor: boards as ``targets/NAME.yaml`` describes them."""

from edgekit.targets._jetpack import JetPack, jetpacks, tensorrt_of_jetpack
from edgekit.targets._load import get, names
from edgekit.targets._modes import find_mode
from edgekit.targets._types import Dla, Dram, Gpu, PowerMode, Target

__all__ = [
    "Dla",
    "Dram",
    "Gpu",
    "JetPack",
    "PowerMode",
    "Target",
    "find_mode",
    "get",
    "jetpacks",
    "names",
    "tensorrt_of_jetpack",
]
