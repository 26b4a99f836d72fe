"""What trtexec prints of a build and a run as a whole: sizes, times, throughput, whether it
passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edgekit.buildlog.lines import strip

_NUMBER = r"(-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf))"
_ONE = {
    "throughput_qps": re.compile(rf"^Throughput: {_NUMBER} qps$"),
    "walltime_s": re.compile(rf"^Total Host Walltime: {_NUMBER} s$"),
    "gpu_time_s": re.compile(rf"^Total GPU Compute Time: {_NUMBER} s$"),
    "build_s": re.compile(rf"^Engine built in {_NUMBER} sec\.$"),
    "load_s": re.compile(rf"^Engine deserialized in {_NUMBER} sec\.$"),
    "engine_mib": re.compile(rf"^Created engine with size: {_NUMBER} MiB$"),
}
_SPREAD = re.compile(
    r"^(Latency|Enqueue Time|H2D Latency|GPU Compute Time|D2H Latency): (min = .+)$"
)
_PART = re.compile(rf"(min|max|mean|median|percentile\((\d+(?:\.\d+)?)%\)) = {_NUMBER} ms")
_NAMES = {"Latency": "latency", "Enqueue Time": "enqueue", "H2D Latency": "h2d",
          "GPU Compute Time": "compute", "D2H Latency": "d2h"}  # fmt: skip
_PLAN = re.compile(r"^Plan was created with TensorRT version (\d+(?:\.\d+){1,3})$")
_VERDICT = re.compile(r"^&&&& (RUNNING|PASSED|FAILED|WAIVED) TensorRT\.\w+")
_BOUND = "* Throughput may be bound by "
_NOISY = "* GPU compute time is unstable"


@dataclass(frozen=True, slots=True)
class Summary:
    """A trtexec session; None and empty if nothing was said.

    Attributes:
        passed: Whether it ended well; None if its end is missing (it was killed, or is running).
        plan_version: The TensorRT that wrote the plan that was loaded.
        build_s: Seconds of the build.
        load_s: Seconds of deserialising.
        engine_mib: The engine, in MiB.
        throughput_qps: Inferences a second.
        walltime_s: Seconds measured, on the host.
        gpu_time_s: Seconds of GPU compute therein.
        times_ms: Milliseconds by what ("latency", "enqueue", "h2d", "compute", "d2h") and
            statistic ("min", "max", "mean", "median", "p90", ...).
        warnings: What trtexec says against its own numbers.
        errors: Lines of severity E or F, in order.
    """

    passed: bool | None = None
    plan_version: str = ""
    build_s: float | None = None
    load_s: float | None = None
    engine_mib: float | None = None
    throughput_qps: float | None = None
    walltime_s: float | None = None
    gpu_time_s: float | None = None
    times_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()


def parse_summary(lines: Iterable[str]) -> Summary:
    """Reads a session's console; what is no number (nan, inf) is left out, as if not said."""
    one: dict[str, float] = {}
    times: dict[str, dict[str, float]] = {}
    warnings: list[str] = []
    errors: list[str] = []
    passed: bool | None = None
    plan = ""
    for line in lines:
        severity, text, _ = strip(line)
        if verdict := _VERDICT.match(text):
            passed = {"PASSED": True, "FAILED": False}.get(verdict[1])
        elif severity in ("E", "F"):
            errors.append(text)
        elif text.startswith((_BOUND, _NOISY)):
            warnings.append(text.removeprefix("* "))
        elif spread := _SPREAD.match(text):
            times[_NAMES[spread[1]]] = {
                f"p{part[2]}" if part[2] else part[1]: value
                for part in _PART.finditer(spread[2])
                if (value := _finite(part[3])) is not None
            }
        elif found := _PLAN.match(text):
            plan = found[1]
        else:
            for name, pattern in _ONE.items():
                if (match := pattern.match(text)) and (number := _finite(match[1])) is not None:
                    one[name] = number
    return Summary(
        passed, plan, times_ms=times, warnings=tuple(warnings), errors=tuple(errors), **one
    )


def _finite(text: str) -> float | None:
    number = float(text)
    return number if abs(number) < float("inf") else None
