"""The key of a configuration for an error whose origin does not know the configuration."""

from __future__ import annotations

from edgekit.config.loader import Config
from edgekit.errors import EdgekitError

# by the error's code
_PLACES: dict[str, tuple[str, ...]] = {
    "target.mode": ("power_mode",),
    "tensorrt.version": ("tensorrt",),
    "model.unknown_builtin": ("model", "builtin"),
    "model.unknown_output": ("model", "outputs"),
    "model.unknown_input": ("model", "shapes"),
    "model.shape_rank": ("model", "shapes"),
    "model.shape_conflict": ("model", "shapes"),
    "calibration.fp16": ("calibration", "fp16_layers"),
    "plan.pin": ("placement", "pin"),
    "plan.core": ("placement", "dla_cores"),
    "config.no-key": ("deploy", "sign_with"),
}


# keys that a range's error names itself
_SIZES = ("model.shapes", "model.dimensions", "model.buckets", "model.batch", "model.values")


def set_place(error: EdgekitError, config: Config) -> None:
    """Sets ``where`` of an error to its place in the configuration, if there is any."""
    path: tuple[str | int, ...] | None = _PLACES.get(error.code)
    if error.code == "rewrite.unknown":
        path = tuple(error.where.split("."))  # the list that has the name
    if error.where.startswith(_SIZES):
        # a tensor's name may have dots
        keys = error.where.split(".", 2)
        path = tuple(int(key) if key.isdecimal() and "buckets" in keys else key for key in keys)
    if path and str(path[0]) in config.document.value:
        error.where = config.document.where(path)
