"""Activation scales: measured on data, or read from TensorRT's calibration cache."""

from edgekit.quantize._cache import (
    CalibrationCache,
    cache_of,
    load_cache,
    tensorrt_number,
    write_cache,
)
from edgekit.quantize._cache_edit import CacheDiff, diff, edit, merge
from edgekit.quantize._cache_scales import CacheReading, read_cache, scales_of
from edgekit.quantize._calibrate import calibrate, scales_from, told_missing
from edgekit.quantize._constraints import groups, tie
from edgekit.quantize._constraints_scales import tied
from edgekit.quantize._constraints_told import (
    Violation,
    change_rows,
    constraint_warnings,
    violations,
)
from edgekit.quantize._data import Samples, load_data, module_file
from edgekit.quantize._data_options import IMAGE_OPTIONS
from edgekit.quantize._feeds import check_feed, input_specs
from edgekit.quantize._follow import without_too
from edgekit.quantize._from_qdq import UNEQUAL, Translated, from_qdq, has_qdq
from edgekit.quantize._measure import measure
from edgekit.quantize._measure_checks import check_weights
from edgekit.quantize._methods import METHODS
from edgekit.quantize._needs import Lack, needs
from edgekit.quantize._scales import is_scale
from edgekit.quantize._to_qdq import to_qdq
from edgekit.quantize._types import Change, Ranges, Scales

__all__ = [
    "IMAGE_OPTIONS",
    "METHODS",
    "UNEQUAL",
    "CacheDiff",
    "CacheReading",
    "CalibrationCache",
    "Change",
    "Lack",
    "Ranges",
    "Samples",
    "Scales",
    "Translated",
    "Violation",
    "cache_of",
    "calibrate",
    "change_rows",
    "check_feed",
    "check_weights",
    "constraint_warnings",
    "diff",
    "edit",
    "from_qdq",
    "groups",
    "has_qdq",
    "input_specs",
    "is_scale",
    "load_cache",
    "load_data",
    "measure",
    "merge",
    "module_file",
    "needs",
    "read_cache",
    "scales_from",
    "scales_of",
    "tensorrt_number",
    "tie",
    "tied",
    "to_qdq",
    "told_missing",
    "violations",
    "without_too",
    "write_cache",
]
