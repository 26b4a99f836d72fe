"""Times of earlier tunings count for the network they are of, or are refused with their file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgekit.errors import DataError
from edgekit.network.model import Network
from edgekit.tuning.records import check_conditions, check_network, read_table
from tests.tuning.test_tune import DLA, GPU, net, query_for, tuned
from tests.tuning.tune_world import world_of

__all__ = ["net"]


def test_a_table_is_of_one_of_the_networks_or_refused(net: Network, tmp_path: Path) -> None:
    query = query_for(net)
    world = world_of(query, GPU, DLA, origin={"backend": "tensorrt"})
    done = tuned(query, world, request={"rounds": 1}, model="came")
    path = tmp_path / "tuned.profile.json"
    path.write_text(json.dumps(done.table()))
    table = read_table(path)
    names: dict[str, Any] = {"clock": "board-measured", "backend": "tensorrt", "model": "came",
                             "other": None}  # fmt: skip
    assert check_network(table, SimpleNamespace(**names)) == ""
    other = SimpleNamespace(name="as it came", model="came")
    both = SimpleNamespace(**{**names, "model": "rewritten", "other": other})
    assert "the network as it came" in check_network(table, both)
    for change, code in (({"model": "x"}, "profile.merge"), ({"backend": "x"}, "profile.merge"),
                         ({"clock": "cpu-measured"}, "profile.clock")):  # fmt: skip
        with pytest.raises(DataError) as refused:
            check_network(table, SimpleNamespace(**{**names, **change}))
        assert (refused.value.code, refused.value.where) == (code, str(path))
    check_conditions(table, done.start)
    with pytest.raises(DataError, match="another power mode"):
        check_conditions(table, replace(done.start, power_mode="15W"))
    # a tuning of another network goes its way without it
    later = tuned(query, world, request={"rounds": 1}, model="rewritten", tables=[table.document])
    assert all(row["source"] == "plan 1" for row in later.table()["rows"])
    count = later.table()["frames"][0]["samples"]
    again = tuned(query, world, request={"rounds": 1}, model="came", tables=[table.document])
    assert again.table()["frames"][0]["samples"] == 2 * count
