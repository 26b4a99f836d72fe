"""Activation scales: measured on data, or read from TensorRT's calibration cache."""

from edgekit.quantize._cache import read_cache, write_cache
from edgekit.quantize._calibrate import calibrate
from edgekit.quantize._data import Samples, load_data
from edgekit.quantize._feeds import check_feed, input_specs
from edgekit.quantize._methods import METHODS
from edgekit.quantize._types import Scales

__all__ = [
    "METHODS",
    "Samples",
    "Scales",
    "calibrate",
    "check_feed",
    "input_specs",
    "load_data",
    "read_cache",
    "write_cache",
]
