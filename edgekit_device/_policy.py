"""How a release is judged before and after it serves: the configuration's ``deploy.health``."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from . import _checks as check
from ._errors import DeviceError

__all__ = ["read_policy"]

_DAY_S = 86400.0
# field: its value when absent, the least and the most that it may be
_NUMBERS: Dict[str, Tuple[Optional[float], float, float]] = {
    "latency_ms": (None, 1e-6, 1e9),
    "accuracy_min": (None, -1e9, 1e9),
    "measure_s": (0.5, 0.0, 600.0),
    "soak_s": (0.0, 0.0, _DAY_S),
    "soak_every_s": (1.0, 0.01, _DAY_S),
}
_TIMEOUTS = {"download_s": 3600.0, "refit_s": 600.0, "test_s": 300.0}
_KEEP = 3


def read_policy(value: object) -> Dict[str, Any]:
    """Checks a policy as a request brings it and fills in what it leaves out.

    Returns:
        "latency_ms" and "accuracy_min" (None: no gate), "measure_s", "soak_s", "soak_every_s",
        "keep" and "timeouts" ("download_s", "refit_s", "test_s").

    Raises:
        DeviceError: "policy.invalid", about the first field that is wrong.
    """
    try:
        return _policy({} if value is None else value)
    except DeviceError as error:
        raise DeviceError(
            error.message,
            code="policy.invalid",
            where=error.where,
            hint=error.hint or "docs/health.md has every field",
        ) from error


def _policy(value: object) -> Dict[str, Any]:
    given = _known(value, "policy", [*_NUMBERS, "keep", "timeouts"])
    found: Dict[str, Any] = {}
    for name, (default, low, high) in _NUMBERS.items():
        said = given.get(name)
        found[name] = default if said is None else check.number(said, "policy." + name, low, high)
    keep = given.get("keep")
    found["keep"] = _KEEP if keep is None else check.integer(keep, "policy.keep", 1, 1 << 20)
    limits = _known(given.get("timeouts") or {}, "policy.timeouts", list(_TIMEOUTS))
    found["timeouts"] = {
        name: default
        if limits.get(name) is None
        else check.number(limits[name], "policy.timeouts." + name, 1e-3, _DAY_S)
        for name, default in _TIMEOUTS.items()
    }
    return found


def _known(value: object, where: str, fields: "list[str]") -> Dict[str, Any]:
    return check.record(value, where, [name for name in fields if _has(value, name)])


def _has(value: object, name: str) -> bool:
    return isinstance(value, dict) and name in value
