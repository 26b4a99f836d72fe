"""What a report says first: does the network fit, how fast is it, is it accurate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit._listed import all_of
from edgekit.report import _text as text
from edgekit.report._bench_facts import serving_words

if TYPE_CHECKING:
    from edgekit.report._types import RunFacts

__all__ = ["answers"]


def answers(
    facts: RunFacts, placement: Mapping[str, Any], verdict: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the answers, a sentence each: {"question", "words", "ok", "clock"}.

    ``question`` is "fit", "speed" or "accuracy", and "release" where another
    release was measured than the plan's; ``ok`` is None where nothing was asked for or
    nothing is known; ``clock`` says where a figure comes from, "" for none.

    Args:
        facts: The run.
        placement: The report's.
        verdict: The report's: the measurement's verdict and the gates.
    """
    gates = {gate["gate"]: gate for gate in verdict["gates"]}
    found = [_fit(facts, placement, gates), _speed(facts, verdict), _accuracy(facts, gates)]
    if other := serving_words(facts.bench):
        words = f"What is measured here is of {other}. The plan and its predictions are not of it."
        found.append({"question": "release", "words": words, "ok": False,
                      "clock": verdict["clock"]})  # fmt: skip
    return found


def _fit(
    facts: RunFacts, placement: Mapping[str, Any], gates: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    failed = [step["name"] for step in facts.steps if step.get("status") == "failed"]
    memory = gates.get("memory", {})
    where, ok = _placed(facts, placement), True
    if failed:
        words, ok = f"It does not run: {failed[0]} failed. {where}", False
    elif memory.get("passed") is False:
        pool = text.POOLS.get(str(memory["pool"]), str(memory["pool"]))
        need, limit = text.size(memory["found"]), text.size(memory["limit"])
        words, ok = f"It does not fit: a loadable needs {need} of {limit} {pool}. {where}", False
    elif facts.built:
        boards = ", ".join(str(one["board"]) for one in facts.built)
        words = f"It fits, built on {boards}: {_inside(where)}"
    else:
        words = f"It should fit: {_inside(where)}"
    return {"question": "fit", "words": words, "ok": ok, "clock": ""}


def _inside(sentence: str) -> str:
    return sentence.replace("All ", "all ", 1) if sentence.startswith("All ") else sentence


def _placed(facts: RunFacts, placement: Mapping[str, Any]) -> str:
    """Returns where the layers run."""
    layers, on_dla = placement["layers"], placement["dla_layers"]
    every = text.counted(layers, "layer")
    on_gpu = f"{all_of(layers, 'layer')} {'runs' if layers == 1 else 'run'} on the GPU"
    if facts.target.dla.cores == 0:
        return f"{facts.target.title} has no DLA: {on_gpu}."
    if on_dla == 0:
        capable = text.count(placement["dla_capable_layers"])
        return (
            f"{on_gpu[0].upper()}{on_gpu[1:]}; {capable} could run on a DLA, "
            f"but for the objective {facts.plan.objective} the GPU alone was chosen."
        )
    share = ""
    if placement["macs"]:
        share = f" and {text.percent(placement['dla_macs_fraction'])} of the MACs"
    plans = len(placement["shares"])
    if plans > 1:
        shares = [text.percent(one) for one in placement["shares"]]
        which = "one of the most frequent" if shares[1] == shares[0] else "the most frequent one"
        return (
            f"{plans} plans share the frames; {which} has {text.count(on_dla)} of {every}{share} "
            "on a DLA core."
        )
    loadables = text.counted(len(placement["loadables"]), "loadable")
    return f"{text.count(on_dla)} of {every}{share} run on the DLA, in {loadables}."


def _speed(facts: RunFacts, verdict: Mapping[str, Any]) -> dict[str, Any]:
    bench = facts.bench or {}
    median = (bench.get("latency_ms") or {}).get("median")
    if verdict["clock"] == "board-measured" and median is not None:
        words = (
            f"An inference takes {text.measured(median)} in the median, "
            f"{text.significant(bench.get('throughput_qps'))} per second, measured on the board"
        )
        if bench.get("taken_back"):
            words += ", of another release"
        ok = {"VALID": True, "INVALID": False}.get(verdict["status"])
        if ok is False:
            reasons = verdict["reasons"]
            more = f" and {len(reasons) - 1} more" if reasons[1:] else ""
            why = f": {reasons[0]['message']}{more}" if reasons else ""
            words += f", INVALID{why}"
        return {"question": "speed", "words": f"{words}.", "ok": ok, "clock": verdict["clock"]}
    from edgekit.placement import source_of

    plan = facts.plan
    own, alone = plan.predicted, plan.baselines.get("gpu_only")
    band = plan.bands.get("latency_us")
    source = source_of(plan.measured)
    if source == "predicted":
        words = f"An inference is predicted to take {text.microseconds(own.latency_us)}"
    else:
        words = f"An inference takes {text.microseconds(own.latency_us)}, {source}"
    if band and band[0] < band[1]:
        words += f" ({text.microseconds(band[0])} to {text.microseconds(band[1])})"
    words += f", {text.significant(own.throughput_qps)} per second"
    if plan.unknown_cost:
        words += f", without {text.counted(len(plan.unknown_cost), 'layer')} of unknown cost"
    if alone is not None and alone != own:
        words += (
            f"; the GPU alone {text.microseconds(alone.latency_us)}, "
            f"{text.significant(alone.throughput_qps)} per second"
        )
    return {"question": "speed", "words": f"{words}.", "ok": None, "clock": "predicted"}


def _accuracy(facts: RunFacts, gates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    from edgekit.report._results import compared_on, measure_words, warning_words

    found: dict[str, Any] = {"question": "accuracy", "ok": None, "clock": ""}
    accuracy = facts.accuracy
    if not accuracy:
        return found | {"words": "Its accuracy was not compared."}
    if warnings := warning_words(accuracy):
        more = f" and {len(warnings) - 1} more" if warnings[1:] else ""
        told = f"Its accuracy is not known: {warnings[0]}{more}."
        return found | {"words": told}
    gate = gates.get("accuracy")
    figures = [
        f"{name} {measure_words(accuracy, key)}"
        for key, name in (("cosine", "cosine"), ("snr_db", "SNR"), ("top1_agreement", "top-1"))
        if measure_words(accuracy, key) != text.ABSENT
    ]
    told = ", ".join(figures)
    found["ok"] = None if gate is None else gate.get("passed")
    lead = {True: "It is accurate enough", False: "It is not accurate enough"}.get(
        found["ok"], "Compared with FP32"
    )
    wanted = f", at least {gate['limit']:g} {gate['metric']} asked" if gate else ""
    where = compared_on(accuracy)
    words = f"{lead}: {told}{wanted}" + (f" ({where})" if where else "")
    if gate is None:
        words += "; no limit was set (accuracy.min)"
    return found | {"words": f"{words}."}
