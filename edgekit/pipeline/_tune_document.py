"""What a tuning tells: the ``edgekit.tune/1`` document and the configuration's new lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._tune_values import UNITS, shown, spoken

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning
    from edgekit.pipeline._tune_trials import Trial

__all__ = ["CPU_NOTE", "tune_document"]

SCHEMA = "edgekit.tune/1"
CPU_NOTE = (
    "All times are this CPU's, of the reference backend, which imitates the target's numbers and "
    "not its speed: they say nothing about the board, and no plan for a board can use them."
)
WORST = 8
DIGITS = 4


def tune_document(tuning: Tuning, *, name: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Returns the ``edgekit.tune/1`` document of a tuning that ended.

    Costs stand in the objective's unit ("unit"); ``better`` fractions are of costs, positive where
    the winner is better. Predicted and measured never share a number.
    """
    from edgekit.placement import plan_summary

    objective, winner, first = tuning.wish.objective, tuning.winner, tuning.first
    cpu = tuning.measurer.clock == "cpu-measured"
    origin = tuning.origin_of(tuning.form_of(winner))
    duel = _duel(tuning)
    limit = winner.cost(objective)
    known = tuning.bound is not None and math.isfinite(tuning.bound)
    # 0 is no bound: what is not known of some plan is as much as it costs
    bound = (min(tuning.bound or 0.0, limit) if known else 0.0) or None
    return {
        "schema": SCHEMA,
        "name": name,
        "objective": objective,
        "unit": UNITS[objective],
        "clock": tuning.measurer.clock,
        "note": CPU_NOTE if cpu else "Measured on the board.",
        **{key: origin[key] for key in
           ("board", "power_mode", "precision", "tensorrt", "model", "backend")},
        "network": winner.form or None,
        "networks": [name for name in tuning.forms if name],
        "status": tuning.status,
        "why": tuning.why,
        "seconds": round(tuning.seconds, 3),
        "start": _trial(tuning, first),
        "winner": _trial(tuning, winner),
        "changed": winner is not first,
        "proven": bool(duel and duel["better"]) or winner is first,
        "turns": duel,
        "bound": None if bound is None else {
            "value": _round(shown(bound, objective)),
            "meaning": "no plan that was not tried is likely to be better than this "
            "(two standard deviations of what was learnt)",
        },
        "plan": plan_summary(winner.plan),
        "trials": [_trial(tuning, trial) for trial in tuning.trials],
        "learnt": _learnt(tuning),
        "changes": _changes(tuning),
        "files": dict(files),
        "notes": list(dict.fromkeys(tuning.notes)),
    }  # fmt: skip


def _duel(tuning: Tuning) -> dict[str, Any] | None:
    """Returns how the turns went, the medians in the objective's unit."""
    if tuning.duel is None:
        return None
    found = dict(tuning.duel)
    for key in ("ours", "theirs"):
        if found[key] is not None:
            found[key] = _round(shown(found[key], tuning.wish.objective))
    return found


def _trial(tuning: Tuning, trial: Trial) -> dict[str, Any]:
    objective = tuning.wish.objective
    expected = trial.expected
    from edgekit.placement import plan_value

    layers = trial.plan.layers
    return {
        "number": trial.number,
        "plan": trial.key,
        "network": trial.form or None,
        "origin": trial.origin,
        "why": trial.why,
        "status": "dropped" if trial.dropped else "breaks a bound" if trial.breaks else "measured",
        "reason": trial.dropped or "; ".join(trial.breaks),
        "predicted": _round(plan_value(trial.plan)),
        "expected": None if expected is None else {
            "value": _round(shown(expected[0], objective)),
            "relative_deviation": _round(expected[1] / expected[0] if expected[0] else 0.0),
        },
        "measured": _round(shown(trial.cost(objective), objective)) if trial.runs else None,
        "runs": len(trial.runs),
        "verdicts": [
            verdict.get("status") for run in trial.runs if (verdict := run.get("verdict"))
        ],
        "layers_on_dla": sum(layer.device != "GPU" for layer in layers),
        "loadables": len(trial.plan.loadables),
        "transitions": trial.plan.transitions,
        "plans": len(trial.plan.plans),
    }  # fmt: skip


def _learnt(tuning: Tuning) -> dict[str, Any]:
    """Returns predicted against measured by kind and device, and the worst sums."""
    import numpy as np

    form = tuning.form_of(tuning.winner)
    knowledge = tuning.knowledge(form)
    learnt, network = knowledge.learnt, knowledge.space.network
    times = learnt.times()
    table = tuning.table(form)
    measured = {(row["device"], name) for row in table["rows"] for name in row["layers"]}
    kinds: dict[tuple[str, str], list[float]] = {}
    for name, prior in learnt.prior_us.items():
        for i, layer in enumerate(network.layers):
            if (name, layer.name) in measured and np.isfinite(prior[i]) and prior[i] > 0:
                sums = kinds.setdefault((name, layer.kind), [0.0, 0.0, 0])
                sums[0] += float(prior[i])
                sums[1] += float(times[name][i])
                sums[2] += 1
    by_kind = [
        {"device": device, "kind": kind, "layers": int(count), "predicted_us": _round(predicted),
         "measured_us": _round(us), "factor": _round(us / predicted)}
        for (device, kind), (predicted, us, count) in sorted(kinds.items())
    ]  # fmt: skip
    rows = []
    for row in table["rows"]:
        if not all(name in knowledge.space.index for name in row["layers"]):
            continue  # of a table that somebody wrote
        indices = [knowledge.space.index[name] for name in row["layers"]]
        predicted = float(np.nansum(learnt.prior_us[row["device"]][indices]))
        if predicted > 0 and row["us"] > 0:
            rows.append({
                "device": row["device"], "layers": row["layers"],
                "predicted_us": _round(predicted), "measured_us": _round(row["us"]),
                "factor": _round(row["us"] / predicted),
            })  # fmt: skip
    from edgekit.placement._trial_learn import EXTRA

    # off from what the device is off by as a whole
    scale = learnt.scale

    def off(row: Mapping[str, Any]) -> float:
        return abs(math.log(row["factor"] / scale[row["device"]])) if row["factor"] else 0.0

    extra = dict(zip(EXTRA, map(float, times["extra"]), strict=True))
    return {
        "devices": {name: _round(value) for name, value in scale.items()},
        "by_kind": by_kind,
        "worst": sorted(rows, key=off, reverse=True)[:WORST],
        "frame_us": _round(extra["frame"]),
        "transition_us": _round(extra["transition"]),
        "transfer_factor": _round(extra["transfer"]),
        "launch_factor": _round(extra["launch"]),
        "together_factor": _round(knowledge.together),
        "contradictions": table["contradictions"],
        "rows": len(table["rows"]),
    }


def _changes(tuning: Tuning) -> list[dict[str, Any]]:
    """Returns the layers that moved, in runs, with their times on both devices.

    Of a winner of the other network those that both have.
    """
    if tuning.winner is tuning.first:
        return []
    from edgekit.placement._trial_pieces import class_of

    form = tuning.form_of(tuning.winner)
    learnt = tuning.knowledge(form).learnt
    times, index = learnt.times(), form.space.index
    before = {layer.name: layer.device for layer in tuning.first.plan.layers}
    found: list[dict[str, Any]] = []
    for layer in tuning.winner.plan.layers:
        old = before.get(layer.name)
        # a layer of the other network only has not moved
        if old is None or old == layer.device:
            continue
        last = found[-1] if found else None
        if last is None or (last["from"], last["to"]) != (old, layer.device):
            last = {"layers": [], "from": old, "to": layer.device,
                    "us": {"from": 0.0, "to": 0.0},
                    "predicted_us": {"from": 0.0, "to": 0.0}}  # fmt: skip
            found.append(last)
        last["layers"].append(layer.name)
        i = index[layer.name]
        for side, device in (("from", old), ("to", layer.device)):
            name = class_of(device)
            last["us"][side] += float(times[name][i])
            prior = float(learnt.prior_us[name][i])
            last["predicted_us"][side] += prior if math.isfinite(prior) else 0.0
    for one in found:
        one["us"] = {key: _round(value) for key, value in one["us"].items()}
        one["predicted_us"] = {key: _round(v) for key, v in one["predicted_us"].items()}
        own, other = one["us"]["to"], one["us"]["from"]
        saving = "they are faster there" if own < other else "it saves borders, or frees the other"
        was = one["predicted_us"]
        one["why"] = (
            f"predicted {spoken(was['from'])} on {one['from']} and {spoken(was['to'])} on "
            f"{one['to']}; learnt {spoken(other)} and {spoken(own)}: {saving}"
        )
    return found


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS + 2}g}")
