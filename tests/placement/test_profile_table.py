"""Tables of measured sums: benches of hybrid engines, merging, and what is refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.benchmark.document import read_bench
from edgekit.errors import DataError
from edgekit.placement.profiles.profile import Profile, ProfileTable, merge_tables, table_from_json
from edgekit.placement.profiles.reader import read_profile
from tests.tries import tries


def bench(nodes: list[tuple[str, float]], device: str = "DLA0") -> dict[str, Any]:
    names = ["a", "b", "c"]
    return {
        "schema": "edgekit.bench/1",
        "clock": "board-measured",
        "target": "t",
        "precision": "int8",
        "segments": [
            {
                "lane": 0,
                "index": 0,
                "device": device,
                "layers": names,
                "latency_ms": {"median": 1.0},
            }
        ],
        "nodes": [{"lane": 0, "index": 0, "node": n, "op": "", "median_us": us} for n, us in nodes],
        "placement": [[["a", "DLA0"], ["b", "DLA0"], ["c", "GPU"]]],
    }


def read(folder: Path, document: object) -> Profile:
    file = folder / "bench.json"
    file.write_text(json.dumps(document))
    return read_profile(file, documents=read_bench)


def test_a_hybrid_engines_wait_is_its_loadables(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        bench(
            [
                ("x to nvm", 100.0),
                ("{ForeignNode[a...b]}", 10.0),
                ("b from nvm", 590.0),
                ("c", 100.0),
            ]
        ),
    )
    assert not found.notes
    # 800 us were profiled of a segment of 1000: each row counts as much more
    assert [(row.name, row.device, row.us) for row in found.rows] == [
        ("{ForeignNode[a...b]}", "DLA", pytest.approx(750.0)),
        ("c", "GPU", pytest.approx(125.0)),
    ]


def test_a_hybrid_engine_without_its_layers_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="hybrid engine"):
        read(tmp_path, bench([]))


def test_a_segments_layers_share_out_its_time(tmp_path: Path) -> None:
    document = bench([("a + b", 300.0), ("c", 100.0)], "GPU")
    document["placement"] = [[["a", "GPU"], ["b", "GPU"], ["c", "GPU"]]]
    rows = read(tmp_path, document).rows
    assert [(row.name, row.us) for row in rows] == [("a + b", 750.0), ("c", 250.0)]
    document["nodes"][0]["node"] = document["nodes"][1]["node"] = "myelin"
    (row,) = read(tmp_path, document).rows
    assert (row.layers, row.us) == (("a", "b", "c"), 1000.0)


def table(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "schema": "edgekit.profile/1",
        "clock": "board-measured",
        "board": "t",
        "power_mode": "",
        "precision": "int8",
        "model": "m",
        "backend": "tensorrt",
        "rows": list(rows),
        "frames": [],
        **more,
    }


def row(us: float, at: float, samples: int, layers: tuple[str, ...] = ("a",)) -> dict[str, Any]:
    return {
        "device": "GPU",
        "layers": list(layers),
        "us": us,
        "sd_us": 0.01 * us,
        "samples": samples,
        "measured_at": at,
    }


def merged(*documents: dict[str, Any]) -> ProfileTable:
    return merge_tables([table_from_json(document, "t.json") for document in documents])


def test_what_agrees_is_pooled_and_what_does_not_is_reported() -> None:
    pooled = merged(table(row(100, 1, 10)), table(row(103, 2, 30)))
    (only,) = pooled.rows
    assert (only.us, only.samples) == (pytest.approx(102.25), 40)
    assert not pooled.contradictions
    # the order in which the files are named does not matter, their times do
    newer = merged(table(row(150, 2, 10)), table(row(100, 1, 10)))
    assert newer.rows[0].us == 150
    assert newer.contradictions[0].dropped_us == 100
    assert "newer" in newer.notes[0]
    supported = merged(table(row(100, 1, 100)), table(row(150, 2, 10)))
    assert supported.rows[0].us == 100
    assert "far more samples" in supported.notes[0]
    other = merged(table(row(100, 1, 1)), table(row(9, 2, 1, ("a", "b"))))
    assert len(other.rows) == 2
    with pytest.raises(DataError) as refused:
        merged(table(), table(board="another"))
    assert refused.value.code == "profile.merge"


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 3},
        {"rows": [{}]},
        {"rows": [row(-1, 0, 1)]},
        {"rows": []},
        {"rows": [{**row(1, 0, 1), "device": "NPU"}]},
        {"frames": [{"parts": 1}]},
        {"clock": "cpu-measured"},
    ],
)
def test_tables_that_are_none(tmp_path: Path, changes: dict[str, Any]) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({**table(row(1, 0, 1)), **changes}))
    with pytest.raises(DataError):
        read_profile(file)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "segments",
                    "nodes",
                    "placement",
                    "layers",
                    "latency_ms",
                    "median",
                    "device",
                    "index",
                    "lane",
                    "node",
                    "median_us",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=tries(60))
@given(_JSON)
def test_no_bench_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, odd: Any) -> None:
    parts = odd if isinstance(odd, dict) else {"segments": odd}
    found = {"schema": "edgekit.bench/1", **parts, "clock": "board-measured"}
    with contextlib.suppress(DataError):
        rows = read(tmp_path_factory.getbasetemp(), found).rows
        assert all(one.us > 0 for one in rows)
