"""What a tuning tells: the ``edgekit.tune/1`` document and the configuration's new lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._tune_learnt import learnt_document
from edgekit.pipeline._tune_values import UNITS, rounded, shown, spoken

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning
    from edgekit.pipeline._tune_trials import Trial

__all__ = ["CPU_NOTE", "tune_document"]

SCHEMA = "edgekit.tune/1"
CPU_NOTE = (
    "All times are this CPU's, of the reference backend, which imitates the target's numbers and "
    "not its speed: they say nothing about the board, and no plan for a board can use them."
)


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
        "proven": None if winner is first else bool(duel and duel["better"]),
        "turns": duel,
        "bound": None if bound is None else {
            "value": rounded(shown(bound, objective)),
            "meaning": "no plan that was not tried is likely to be better than this "
            "(two standard deviations of what was learnt)",
        },
        "plan": plan_summary(winner.plan),
        "trials": [_trial(tuning, trial) for trial in tuning.trials],
        "learnt": learnt_document(tuning),
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
            found[key] = rounded(shown(found[key], tuning.wish.objective))
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
        "predicted": rounded(plan_value(trial.plan)),
        "expected": None if expected is None else {
            "value": rounded(shown(expected[0], objective)),
            "relative_deviation": rounded(expected[1] / expected[0] if expected[0] else 0.0),
        },
        "measured": rounded(shown(trial.cost(objective), objective)) if trial.runs else None,
        "runs": len(trial.runs),
        "verdicts": [
            verdict.get("status") for run in trial.runs if (verdict := run.get("verdict"))
        ],
        "layers_on_dla": sum(layer.device != "GPU" for layer in layers),
        "loadables": len(trial.plan.loadables),
        "transitions": trial.plan.transitions,
        "plans": len(trial.plan.plans),
    }  # fmt: skip


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
        one["us"] = {key: rounded(value) for key, value in one["us"].items()}
        one["predicted_us"] = {key: rounded(v) for key, v in one["predicted_us"].items()}
        own, other = one["us"]["to"], one["us"]["from"]
        saving = "they are faster there" if own < other else "it saves borders, or frees the other"
        was = one["predicted_us"]
        one["why"] = (
            f"predicted {spoken(was['from'])} on {one['from']} and {spoken(was['to'])} on "
            f"{one['to']}; learnt {spoken(other)} and {spoken(own)}: {saving}"
        )
    return found
