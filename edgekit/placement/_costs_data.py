"""The files under ``targets/costs``: constants of the cost model, and how far off it is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge

__all__ = ["cost_data", "model_error", "noise"]


@cache
def cost_data(name: str) -> Mapping[str, Any]:
    """Returns ``targets/costs/NAME.yaml``."""
    loaded: Mapping[str, Any] = read_knowledge(data_folder("targets") / "costs" / f"{name}.yaml")
    return loaded


def noise(*, extrapolated: bool = False) -> float:
    """Returns by which part of a predicted time another one must be shorter to count as shorter.

    That is the model's median error on networks that it was not fitted on; where no published time
    supports the prediction, the assumed band.
    """
    if extrapolated:
        return 1 - float(cost_data("extrapolated")["band"][0])
    return float(cost_data("error")["without_network"]["median_percent"]) / 100


def model_error() -> str:
    """Returns what is known about the model's error, as one sentence."""
    error = cost_data("error")["without_network"]
    return (
        f"predicted by a model with a median error of {error['median_percent']} %, 90 % within "
        f"{error['of_90_percent']} %, on {error['rows']} published measurements of networks, each "
        "by constants fitted without that network"
    )
