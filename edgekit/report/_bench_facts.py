"""What a measurement tells beside its latencies, in words that the page and Markdown share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgekit.report import _text as text

__all__ = ["PERCENTILES", "cost_facts", "few_words", "flat_facts"]

PERCENTILES = {
    "min": "min", "mean": "mean", "median": "p50 (median)", "p90": "p90", "p95": "p95",
    "p99": "p99", "p999": "p99.9", "max": "max",
}  # fmt: skip
_TAILS = {"p90": 10, "p95": 20, "p99": 100, "p999": 1000}
_MEMORY = (("peak_rss_bytes", "Peak memory"), ("gpu_bytes", "Memory of the GPU"))


def few_words(bench: Mapping[str, Any]) -> str:
    """Returns which percentiles have no inference beyond them, and are the maximum; else ""."""
    count = bench.get("iterations")
    latency = bench.get("latency_ms") or {}
    if not isinstance(count, int):
        return ""
    few = [key for key, needed in _TAILS.items() if count < needed and latency.get(key) is not None]
    if not few:
        return ""
    names = " and ".join(PERCENTILES[key] for key in few)
    return f"{names}: of {text.plural(count, 'inference')} none is beyond, so it is the maximum."


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
            baseline = "idle" if bench["energy"].get("baseline") == "idle" else "the lowest"
            yield f"of it over {baseline}", text.energy(total["over_idle_uj"])


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
