"""trtexec's --exportTimes: one object for each measured iteration.

Written by trtexec's own code (``samples/common/sampleReporting.cpp``), not by a JSON library, with
six significant digits; a number can be nan. With several streams their iterations are mixed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from edgekit._files import regular
from edgekit.errors import DataError

__all__ = ["Iteration", "parse_times", "read_times"]

_LARGEST = 256 << 20
_OBJECT = re.compile(r"\{([^{}]*)\}")
_FIELD = re.compile(r'"(\w{1,40})"\s*:\s*([^\s,{}]{1,40})')
_NEEDED = ("h2dMs", "computeMs", "d2hMs", "startComputeMs", "startEnqMs", "endEnqMs")


@dataclass(frozen=True, slots=True)
class Iteration:
    """One inference, in milliseconds from the start of the measurement.

    Attributes:
        start_ms: When its computing began on the device.
        enqueue_ms: How long the host was busy handing it over.
        h2d_ms: Copy to the device.
        compute_ms: Computing.
        d2h_ms: Copy back.
        enqueued_ms: When the host began to hand it over.
    """

    start_ms: float
    enqueue_ms: float
    h2d_ms: float
    compute_ms: float
    d2h_ms: float
    enqueued_ms: float = 0.0

    @property
    def latency_ms(self) -> float:
        """Copies and computing; waiting for another stream is not in it."""
        return self.h2d_ms + self.compute_ms + self.d2h_ms


def read_times(path: str | Path) -> tuple[Iteration, ...]:
    """Reads the file of --exportTimes.

    Raises:
        DataError: It is missing or unreadable ("times.unreadable"), no such file, cut off, or too
            large ("times.form"), or has a time that is none ("times.value").
    """
    path = Path(path)
    try:
        if regular(path).stat().st_size > _LARGEST:
            raise _no(path, "larger than any that trtexec writes")
        text = path.read_text("utf-8")
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", code="times.unreadable", where=str(path)
        ) from None
    except UnicodeDecodeError:
        raise _no(path, "not UTF-8 text") from None
    return parse_times(text, path)


def parse_times(text: str, path: Path = Path("--exportTimes")) -> tuple[Iteration, ...]:
    """Reads what --exportTimes wrote.

    Raises:
        DataError: As ``read_times``.
    """
    body = text.strip()
    if not (body.startswith("[") and body.endswith("]")):
        raise _no(path, "cut off, or not what --exportTimes writes")
    found = tuple(
        _iteration(number, dict(_FIELD.findall(item)), path)
        for number, item in enumerate(_OBJECT.findall(body))
    )
    if not found:
        raise _no(path, "it has no iterations")
    return found


def _iteration(number: int, fields: dict[str, str], path: Path) -> Iteration:
    missing = [name for name in _NEEDED if name not in fields]
    if missing:
        raise _no(path, f"iteration {number} has no {missing[0]}")
    values = {}
    for name in _NEEDED:
        try:
            values[name] = float(fields[name])
        except ValueError:
            values[name] = math.nan
        if not math.isfinite(values[name]):
            raise DataError(
                f"iteration {number}: {name} is {fields[name]}, which is no time",
                code="times.value", where=str(path), hint="measure again",
            )  # fmt: skip
    return Iteration(
        values["startComputeMs"], values["endEnqMs"] - values["startEnqMs"],
        values["h2dMs"], values["computeMs"], values["d2hMs"], values["startEnqMs"],
    )  # fmt: skip


def _no(path: Path, why: str) -> DataError:
    return DataError(
        f"not trtexec's times: {why}", code="times.form", where=str(path),
        hint="give the file that trtexec --exportTimes wrote",
    )  # fmt: skip
