"""Several networks on one board: the answer of an ``edgekit.plans/1`` and its rows as text."""

from __future__ import annotations

from edgekit.reports import text
from edgekit.schedule.plans import Plans
from edgekit.text import ABSENT, counted, percent

GOALS = {
    "latency": "largest share of a deadline",
    "makespan": "time until the last network ends",
    "period": "period",
    "energy": "energy per cycle",
    "gpu_time": "GPU time per cycle",
}


def value_text(document: Plans, value: float) -> str:
    """Returns a value of the objective in its unit."""
    if document.unit == "deadline":
        return percent(value)
    return text.energy(value) if document.unit == "uj" else text.microseconds(value)


def plans_headline(document: Plans) -> str:
    """Returns the answer in one sentence."""
    networks = document.networks
    cycle = text.microseconds(document.cycle_us)
    shares = {
        network.name: network.latency_us.upper / network.deadline_us
        for network in networks
        if network.deadline_us is not None
    }
    if len(shares) == len(networks):
        tightest = max(shares, key=lambda name: shares[name])
        return (
            f"All {counted(len(networks), 'network')} meet their deadlines, even with memory "
            f"contention; {tightest} is the tightest, using {percent(shares[tightest])} of its "
            "deadline."
        )
    if document.objective == "period":
        return f"All {counted(len(networks), 'network')} process a frame every {cycle}."
    return f"All {counted(len(networks), 'network')} are done after {cycle}."


def plans_rows(document: Plans) -> list[dict[str, str]]:
    """Returns a row for each network, as text."""
    rows = []
    for network in document.networks:
        low, high = network.latency_us.lower, network.latency_us.upper
        devices = dict.fromkeys(layer.device for layer in network.plan.layers)
        deadline = network.deadline_us
        rows.append(
            {
                "name": text.clean(network.name),
                "rate": ABSENT if network.rate_hz is None else f"{network.rate_hz:g} Hz",
                "deadline": text.microseconds(deadline),
                "lower": text.microseconds(low),
                "upper": text.microseconds(high),
                "share": ABSENT if deadline is None else percent(high / deadline),
                "devices": ", ".join(sorted(devices, key=lambda d: (d != "GPU", d))),
                "loadables": text.count(len(network.plan.loadables)),
                "alone": text.microseconds(network.plan.predicted.latency_us),
                "precision": network.plan.precision.upper(),
            }
        )
    return rows
