"""Times of earlier tunings count for the network they are of, or are refused with their file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.errors import DataError
from edgekit.network import Network
from edgekit.pipeline._tune_tables import belongs, read_table, same_conditions
from tests.pipeline.test_tune import DLA, GPU, asked, net, tuned
from tests.pipeline.tune_world import world_of

__all__ = ["net"]


def test_a_table_is_of_one_of_the_networks_or_refused(net: Network, tmp_path: Path) -> None:
    ask = asked(net)
    world = world_of(ask, GPU, DLA, origin={"backend": "tensorrt"})
    done = tuned(ask, world, wish={"rounds": 1}, model="came")
    path = tmp_path / "tuned.profile.json"
    path.write_text(json.dumps(done.table()))
    table = read_table(path)
    names: dict[str, Any] = {"clock": "board-measured", "backend": "tensorrt", "model": "came",
                             "other": None}  # fmt: skip
    assert belongs(table, SimpleNamespace(**names)) == ""
    other = SimpleNamespace(name="as it came", model="came")
    both = SimpleNamespace(**{**names, "model": "rewritten", "other": other})
    assert "the network as it came" in belongs(table, both)
    for change, code in (({"model": "x"}, "profile.merge"), ({"backend": "x"}, "profile.merge"),
                         ({"clock": "cpu-measured"}, "profile.clock")):  # fmt: skip
        with pytest.raises(DataError) as refused:
            belongs(table, SimpleNamespace(**{**names, **change}))
        assert (refused.value.code, refused.value.where) == (code, str(path))
    same_conditions(table, done.start)
    with pytest.raises(DataError, match="another power mode"):
        same_conditions(table, replace(done.start, power_mode="15W"))
    # a tuning of another network goes its way without it
    later = tuned(ask, world, wish={"rounds": 1}, model="rewritten", tables=[table.document])
    assert all(row["source"] == "plan 1" for row in later.table()["rows"])
    count = later.table()["frames"][0]["samples"]
    again = tuned(ask, world, wish={"rounds": 1}, model="came", tables=[table.document])
    assert again.table()["frames"][0]["samples"] == 2 * count
