"""Times of earlier tunings count for the network they are of, or are refused with their file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
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
    world = world_of(query, GPU, DLA, model="came")
    done = tuned(query, world, request={"rounds": 1})
    path = tmp_path / "tuned.profile.json"
    path.write_text(json.dumps(done.table("").to_json()))
    table = read_table(path)
    assert check_network(table, world) == ""
    rewritten = replace(world, model="rewritten")
    came = replace(world, name="as it came")
    assert "the network as it came" in check_network(table, rewritten, came)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"model": "x"}, "profile.merge"),
        ({"backend": "x"}, "profile.merge"),
        ({"clock": "cpu-measured"}, "profile.clock"),
    ]
    for change, code in changes:
        with pytest.raises(DataError) as refused:
            check_network(table, replace(world, **change))
        assert (refused.value.code, refused.value.where) == (code, str(path))
    check_conditions(table, world.start)
    with pytest.raises(DataError, match="another power mode"):
        check_conditions(table, replace(world.start, power_mode="15W"))
    # a tuning of another network goes its way without it
    later = tuned(query, rewritten, request={"rounds": 1}, tables=[table.document])
    assert all(row.source == "plan 1" for row in later.table("").rows)
    count = later.table("").frames[0].samples
    again = tuned(query, world, request={"rounds": 1}, tables=[table.document])
    assert again.table("").frames[0].samples == 2 * count
