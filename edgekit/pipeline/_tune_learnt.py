"""What a tuning learnt of layers' times: predicted, learnt with its doubt, and measured if it was.

What is learnt is the posterior's: most layers are measured in sums with others only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.pipeline._tune_values import rounded

if TYPE_CHECKING:
    from edgekit.pipeline._tune import Tuning
    from edgekit.placement._trial_learn import Learnt

__all__ = ["learnt_document"]

WORST = 8


def learnt_document(tuning: Tuning) -> dict[str, Any]:
    """Returns predicted, learnt and measured by kind and device, and the sums most off."""
    from edgekit.placement._trial_learn import EXTRA

    form = tuning.form_of(tuning.winner)
    knowledge = tuning.knowledge(form)
    learnt, table = knowledge.learnt, tuning.table(form)
    # off from what the device is off by as a whole
    scale = learnt.scale

    def off(row: Mapping[str, Any]) -> float:
        return abs(math.log(row["factor"] / scale[row["device"]])) if row["factor"] else 0.0

    rows = _rows(learnt, table, knowledge.space.index)
    extra = dict(zip(EXTRA, map(float, learnt.times()["extra"]), strict=True))
    return {
        "devices": {name: rounded(value) for name, value in scale.items()},
        "by_kind": _kinds(learnt, table),
        "worst": sorted(rows, key=off, reverse=True)[:WORST],
        "frame_us": rounded(extra["frame"]),
        "transition_us": rounded(extra["transition"]),
        "transfer_factor": rounded(extra["transfer"]),
        "launch_factor": rounded(extra["launch"]),
        "together_factor": rounded(knowledge.together),
        "contradictions": table["contradictions"],
        "rows": len(table["rows"]),
    }


def _kinds(learnt: Learnt, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns, by device and kind, the layers that some measured sum holds.

    "measured_us" is None unless each of them was measured by itself.
    """
    import numpy as np

    within = {(row["device"], name) for row in table["rows"] for name in row["layers"]}
    alone = {
        (row["device"], row["layers"][0]): row["us"]
        for row in table["rows"] if len(row["layers"]) == 1
    }  # fmt: skip
    kinds: dict[tuple[str, str], list[int]] = {}
    for device, prior in learnt.prior_us.items():
        for i, layer in enumerate(learnt.network.layers):
            if (device, layer.name) in within and np.isfinite(prior[i]) and prior[i] > 0:
                kinds.setdefault((device, layer.kind), []).append(i)
    found = []
    for (device, kind), indices in sorted(kinds.items()):
        times = [alone.get((device, learnt.network.layers[i].name)) for i in indices]
        known = [us for us in times if us is not None]
        found.append({
            "device": device, "kind": kind, "layers": len(indices),
            **_sum(learnt, device, indices),
            "measured_us": rounded(math.fsum(known)) if len(known) == len(times) else None,
        })  # fmt: skip
    return found


def _rows(
    learnt: Learnt, table: Mapping[str, Any], index: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Returns the measured sums."""
    found = []
    for row in table["rows"]:
        if not all(name in index for name in row["layers"]):
            continue  # of a table that somebody wrote
        one = _sum(learnt, row["device"], [index[name] for name in row["layers"]])
        if one["predicted_us"] > 0 and row["us"] > 0:
            factor = rounded(row["us"] / one["predicted_us"])
            found.append({"device": row["device"], "layers": row["layers"], **one,
                          "measured_us": rounded(row["us"]), "factor": factor})  # fmt: skip
    return found


def _sum(learnt: Learnt, device: str, indices: list[int]) -> dict[str, float]:
    """Returns a sum of layers as predicted and as learnt, its deviation and learnt / predicted."""
    import numpy as np

    predicted = float(np.nansum(learnt.prior_us[device][indices]))
    us, sd = learnt.value(learnt.row([(device, i) for i in indices]))
    return {
        "predicted_us": rounded(predicted), "learnt_us": rounded(us), "learnt_sd_us": rounded(sd),
        "factor": rounded(us / predicted) if predicted > 0 else 0.0,
    }  # fmt: skip
