"""The files under ``targets/costs``: constants of the cost model, and how far off it is."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge

__all__ = ["cost_data", "model_error"]


@cache
def cost_data(name: str) -> Mapping[str, Any]:
    """Returns ``targets/costs/NAME.yaml``."""
    loaded: Mapping[str, Any] = read_knowledge(data_folder("targets") / "costs" / f"{name}.yaml")
    return loaded


def model_error() -> str:
    """Returns what is known about the model's error, as one sentence."""
    error = cost_data("error")["without_network"]
    return (
        f"predicted by a model with a median error of {error['median_percent']} %, 90 % within "
        f"{error['of_90_percent']} %, on {error['rows']} published measurements of networks, each "
        "by constants fitted without that network"
    )
