"""trtexec's summary of a run: times, throughput, warnings, errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgekit.buildlog.lines import strip

_NUMBER = r"(-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf))"
_THROUGHPUT = re.compile(rf"^Throughput: {_NUMBER} qps$")
_SPREAD = re.compile(
    r"^(Latency|Enqueue Time|H2D Latency|GPU Compute Time|D2H Latency): (min = .+)$"
)
_PART = re.compile(rf"(min|max|mean|median|percentile\((\d+(?:\.\d+)?)%\)) = {_NUMBER} ms")
_NAMES = {
    "Latency": "latency",
    "Enqueue Time": "enqueue",
    "H2D Latency": "h2d",
    "GPU Compute Time": "compute",
    "D2H Latency": "d2h",
}
_BOUND = "* Throughput may be bound by "
_NOISY = "* GPU compute time is unstable"


@dataclass(frozen=True, slots=True)
class Summary:
    """A trtexec session; absent values are None or empty.

    Attributes:
        throughput_qps: Inferences a second.
        times_ms: Milliseconds by quantity ("latency", "enqueue", "h2d", "compute", "d2h") and
            statistic ("min", "max", "mean", "median", "p90", ...).
        warnings: trtexec's warnings about its own numbers.
        errors: Lines of severity E or F, in order.
    """

    throughput_qps: float | None = None
    times_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def is_summary(line: str) -> bool:
    """Returns True if :func:`parse_summary` may read times from a line."""
    return "min = " in line or "Throughput" in line or _NOISY in line


def parse_summary(lines: Iterable[str]) -> Summary:
    """Reads a session's console output; non-numbers (nan, inf) are ignored."""
    throughput: float | None = None
    times: dict[str, dict[str, float]] = {}
    warnings: list[str] = []
    errors: list[str] = []
    for line in lines:
        severity, text, _ = strip(line)
        if severity in ("E", "F"):
            errors.append(text)
        elif text.startswith((_BOUND, _NOISY)):
            warnings.append(text.removeprefix("* "))
        elif spread := _SPREAD.match(text):
            times[_NAMES[spread[1]]] = {
                f"p{part[2]}" if part[2] else part[1]: value
                for part in _PART.finditer(spread[2])
                if (value := _finite(part[3])) is not None
            }
        elif (found := _THROUGHPUT.match(text)) and (number := _finite(found[1])) is not None:
            throughput = number
    return Summary(throughput, times, tuple(warnings), tuple(errors))


def _finite(text: str) -> float | None:
    number = float(text)
    return number if abs(number) < float("inf") else None
