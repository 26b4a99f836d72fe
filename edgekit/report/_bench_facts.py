"""What a measurement tells beside its latencies, in words that the page and Markdown share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgekit.bench import tails
from edgekit.report import _text as text

__all__ = [
    "PERCENTILES",
    "baseline_word",
    "cost_facts",
    "few_words",
    "flat_facts",
    "latency_shown",
    "serving_words",
]

PERCENTILES = {
    "min": "min", "mean": "mean", "median": "p50 (median)", "p90": "p90", "p95": "p95",
    "p99": "p99", "p999": "p99.9", "max": "max",
}  # fmt: skip
_BASELINES = {"idle": "idle", "floor": "its lowest"}  # what energy is told over
_MEMORY = (("peak_rss_bytes", "Peak memory"), ("gpu_bytes", "Memory of the GPU"))


def latency_shown(bench: Mapping[str, Any]) -> dict[str, str]:
    """Returns the statistics worth showing by key, with their names.

    A percentile that no frame is beyond is left out, for it is the maximum; one that few are beyond
    has a "*", which :func:`few_words` explains.
    """
    latency, count = bench.get("latency_ms") or {}, bench.get("iterations")
    empty, few, _ = tails(count) if isinstance(count, int) else ((), (), 0)
    return {
        key: name + "*" * (key in few)
        for key, name in PERCENTILES.items()
        if latency.get(key) is not None and key not in empty
    }


def few_words(bench: Mapping[str, Any]) -> str:
    """Returns what the "*" at a percentile means and which are left out; "" where there is none."""
    count = bench.get("iterations")
    if not isinstance(count, int):
        return ""
    latency = bench.get("latency_ms") or {}
    empty, few, least = tails(count)
    told, frames = [], text.counted(count, "inference")
    if any(latency.get(key) is not None for key in few):
        told.append(
            f"* fewer than {least} of the {frames} are slower: another run will have another value."
        )
    if absent := [PERCENTILES[key] for key in empty if latency.get(key) is not None]:
        names = f"{', '.join(absent[:-1])} and {absent[-1]}" if absent[1:] else absent[0]
        told.append(f"{frames} are too few for {names}.")
    return " ".join(told)


def baseline_word(energy: Mapping[str, Any]) -> str:
    """Returns over what the energy's second figure is: the board at rest, or the run's lowest."""
    return _BASELINES.get(str(energy.get("baseline")), "its baseline")


def serving_words(bench: Mapping[str, Any] | None) -> str:
    """Returns which release was measured where it is not the plan's; "" where it is.

    What was taken back on a board is not measured: the release that serves there is.
    """
    back = (bench or {}).get("taken_back")
    if not bench or not back:
        return ""
    release = (bench.get("environment") or {}).get("release") or "another one"
    return text.clean(
        f"release {release}, which serves: this configuration's own, {back['release']}, was taken "
        f"back at {back['at']}: {back['reason']}"
    )


def cost_facts(bench: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yields what it takes to start and to run: cold start, memory, energy where it was read."""
    cold = bench.get("cold") or {}
    if cold.get("open_ms") is not None:
        yield "Cold: to open", text.microseconds(1000 * cold["open_ms"])
    if cold.get("first_ms") is not None:
        yield "Cold: first inference", text.microseconds(1000 * cold["first_ms"])
    memory = bench.get("memory") or {}
    for key, name in _MEMORY:
        if memory.get(key) is not None:
            yield name, text.size(memory[key])
    total = (bench.get("energy") or {}).get("total")
    if isinstance(total, Mapping) and total.get("uj_per_inference") is not None:
        yield "Energy of an inference", text.energy(total["uj_per_inference"])
        if total.get("over_idle_uj") is not None:
            yield f"of it over {baseline_word(bench['energy'])}", text.energy(total["over_idle_uj"])


def flat_facts(facts: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yields the leaves of settings or flags by their path, as people write values."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}", inner) for name, inner in flat_facts(value))
        elif value is not None and value not in ("", []):
            yield key, _word(value)


def _word(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
