"""Times of a board that does not exist: what segments of the reference backend wait in addition.

For trying and testing what works on measured times (``edgekit tune``) without a board. The
environment variable EDGEKIT_REFERENCE_DELAYS holds, or names a file with, JSON by device:

    {"GPU": {"Conv": 900, "*": 0}, "DLA": {"Conv": 300, "segment": 200, "together": 500}}

Microseconds for each node of an ONNX operator ("*": each other one), for each run of a segment
("segment"), and for each run of a segment while another device is at work ("together"). "DLA0" and
"DLA1" win over "DLA". Measurements stay "cpu-measured": nothing of this is a board's time.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any, Dict, List, Optional

from ._errors import DeviceError

__all__ = ["VARIABLE", "Delays", "read_delays"]

VARIABLE = "EDGEKIT_REFERENCE_DELAYS"
_SEGMENT, _TOGETHER, _OTHERS = "segment", "together", "*"
_LONGEST_US = 1e7

_lock = threading.Lock()
_working: Dict[str, int] = {}


def read_delays() -> Optional[Dict[str, Dict[str, float]]]:
    """Returns the delays that are asked for, microseconds by device and operator; None: none.

    Raises:
        DeviceError: "reference.delays": the variable holds something else.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        if not text.lstrip().startswith("{"):
            with open(text, encoding="utf-8") as file:
                text = file.read()
        document = json.loads(text)
        return {str(device): _row(row) for device, row in document.items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DeviceError(
            "no delays: {}".format(str(error)[:200]),
            code="reference.delays",
            where=VARIABLE,
            hint='JSON such as {"GPU": {"Conv": 900}, "DLA": {"Conv": 300}}, or a file of it; '
            "unset it for the backend's own times",
        ) from error


def _row(row: Any) -> Dict[str, float]:
    found = {str(kind): float(us) for kind, us in row.items()}
    if not all(0 <= us <= _LONGEST_US for us in found.values()):
        raise ValueError("microseconds are 0 to {:g}".format(_LONGEST_US))
    return found


class Delays:
    """What one engine waits, by the device that it runs for."""

    def __init__(self, delays: Dict[str, Dict[str, float]], ops: List[str]) -> None:
        self._delays = delays
        self._ops = ops

    def us(self, device: str, *, together: bool = False) -> float:
        """Microseconds of one run on a device."""
        row = self._delays.get(device)
        if row is None:
            row = self._delays.get("DLA" if device.startswith("DLA") else device, {})
        names = [_SEGMENT, _TOGETHER] if together else [_SEGMENT]
        others = row.get(_OTHERS, 0.0)
        return sum(row.get(op, others) for op in self._ops) + sum(row.get(n, 0.0) for n in names)

    def spend(self, device: str) -> None:
        """Waits; so long as it does, other devices are not alone."""
        with _lock:
            others = any(count for name, count in _working.items() if name != device)
            _working[device] = _working.get(device, 0) + 1
        try:
            time.sleep(self.us(device, together=others) / 1e6)
        finally:
            with _lock:
                _working[device] -= 1
