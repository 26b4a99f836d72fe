"""Problem documents: answers against a brute force in the documents' terms, and what is refused."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import DataError, GateError
from edgekit.solver.document import read_document, solve_document
from tests.solver.document_brute import best, check
from tests.solver.document_random import random_document

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"
EXAMPLES = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.S)]
Json = dict[str, Any]


@pytest.mark.parametrize("objective", ["latency", "period", "energy"])
def test_random_documents_agree_with_the_brute_force(objective: str) -> None:
    refused = 0
    for seed in range(25):
        document = random_document(random.Random(f"{objective} {seed}"), objective)
        expected = best(document)
        if expected is None:
            refused += 1
            with pytest.raises(GateError) as caught:
                solve_document(document)
            assert caught.value.code == "plan.infeasible"
            continue
        answer = solve_document(document)
        check(document, answer)
        assert answer["optimal"]
        assert answer["value"] == pytest.approx(expected, rel=1e-6)
        assert answer["bound"] <= expected * (1 + 1e-9)
    assert 0 < refused < 15


@pytest.mark.parametrize(("number", "value"), [(0, 84.0), (1, 660.0), (2, 50.0)])
def test_the_page_s_examples(number: int, value: float) -> None:
    answer = solve_document(EXAMPLES[number])
    check(EXAMPLES[number], answer)
    assert answer["value"] == pytest.approx(value)
    assert answer["optimal"]
    assert json.dumps(answer) == json.dumps(solve_document(EXAMPLES[number]))
    assert re.search(rf"\b{value:g}\b", PAGE.read_text().split("## Examples")[1])
    rows = re.findall(r"^\| (`.*?) \|", PAGE.read_text(), re.M)
    assert set(answer) <= {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def test_defaults_are_what_the_page_says() -> None:
    nodes = [
        {"name": "a", "time_us": {"GPU": 3, "DLA": 2}, "out_us": {"DLA>GPU": 5}},
        {"name": "b", "time_us": {"GPU": 4}},
    ]
    bare = {"schema": "edgekit.problem/1", "devices": ["GPU", "DLA0"]}
    chain = solve_document({**bare, "networks": [{"name": "n", "nodes": nodes}]})
    assert (chain["value"], chain["objective"]) == (7.0, "latency")
    apart = solve_document({**bare, "networks": [{"name": "n", "nodes": nodes, "edges": []}]})
    assert (apart["value"], apart["transfers"]) == (6.0, [])
    null = {"loadable": None, "bounds": None, "transfer_on": None, "objective": None}
    assert solve_document({**bare, **null, "networks": [{"name": "n", "nodes": nodes}]}) == chain


def test_a_tensor_is_paid_once_for_readers_on_two_cores() -> None:
    document = {
        "schema": "edgekit.problem/1",
        "devices": ["GPU", "DLA0", "DLA1"],
        "networks": [
            {
                "name": "n",
                "nodes": [
                    {"name": "b", "time_us": {"DLA": 9}},
                    {"name": "a", "time_us": {"GPU": 1}, "out_us": {"GPU>DLA": 2, "DLA>DLA": 99}},
                    {"name": "c", "time_us": {"DLA": 9}},
                ],
                "edges": [[1, 0], [1, 2]],
            }
        ],
        "objective": "period",
    }
    answer = solve_document(document)
    check(document, answer)
    assert answer["value"] == 9.0
    assert len(answer["transfers"]) == 1
    latency = solve_document({**document, "objective": "latency", "transfer_on": "delay"})
    assert latency["value"] == 21.0


def changed(path: str, value: Any) -> Json:
    """Returns the second example with one value replaced (``DROP``: taken away)."""
    document: Any = copy.deepcopy(EXAMPLES[1])
    steps = [int(s) if s.isdigit() else s for s in re.findall(r"[^.\[\]]+", path)]
    place = document
    for step in steps[:-1]:
        place = place[step]
    if value is DROP:
        del place[steps[-1]]
    else:
        place[steps[-1]] = value
    return document


DROP = object()
NODE = "networks[0].nodes[3]"


@pytest.mark.parametrize(
    ("path", "value", "where", "says"),
    [
        (f"{NODE}.time_us.DLA", -1, f"{NODE}.time_us.DLA", "negative"),
        (f"{NODE}.time_us.DLA", float("nan"), f"{NODE}.time_us.DLA", "finite"),
        (f"{NODE}.time_us.DLA", float("inf"), f"{NODE}.time_us.DLA", "finite"),
        (f"{NODE}.time_us.DLA", True, f"{NODE}.time_us.DLA", "true or false"),
        (f"{NODE}.time_us.DLA", "5", f"{NODE}.time_us.DLA", "a string"),
        (f"{NODE}.time_us.DLA", 10**400, f"{NODE}.time_us.DLA", "too large"),
        (f"{NODE}.time_us.DLA0", 1, f"{NODE}.time_us.DLA0", "unknown key"),
        (f"{NODE}.out_us", {"GPU>GPU": 1}, f"{NODE}.out_us.GPU>GPU", "unknown key"),
        (f"{NODE}.weight_bytes", 1.5, f"{NODE}.weight_bytes", "whole"),
        (f"{NODE}.name", "a", f"{NODE}.name", "used by networks[0].nodes[0].name"),
        (f"{NODE}.name", "\ud800", f"{NODE}.name", "unprintable characters"),
        (f"{NODE}.name", DROP, NODE, '"name" is missing'),
        (f"{NODE}.time", {}, f"{NODE}.time", "unknown key"),
        ("networks[0].edges[1]", [0], "networks[0].edges[1]", "a pair"),
        ("networks[0].edges[1]", [0, 4], "networks[0].edges[1][1]", "node 4 does not exist"),
        ("networks[0].edges[1]", [-1, 2], "networks[0].edges[1][0]", "negative"),
        ("networks[0].edges[1]", [True, 2], "networks[0].edges[1][0]", "true or false"),
        ("networks[0].edges[1]", [3, 0], "networks[0].edges", "a > b > d > a"),
        ("networks[0].edges[1]", [2, 2], "networks[0].edges", "cycle"),
        ("networks[0].contiguous", 1, "networks[0].contiguous", "true or false"),
        ("networks[0].max_transitions", 1.5, "networks[0].max_transitions", "whole"),
        ("networks", [], "networks", "1 to 64"),
        ("networks[0].nodes", [], "networks[0].nodes", "0 values"),
        ("devices[1]", "DLA1", "devices[2]", "used by devices[1]"),
        ("devices[1]", "NPU", "devices[1]", "unknown device"),
        ("devices", {"GPU": 1}, "devices", "an array"),
        ("objective", "speed", "objective", "unknown objective"),
        ("bounds.gpu_us", 1, "bounds.gpu_us", "unknown key"),
        ("transfer_on", "DLA", "transfer_on", "unknown place"),
        ("schema", "edgekit.problem/2", "schema", "unknown schema"),
        ("loadable", [], "loadable", "an object"),
    ],
)
def test_wrong_documents_are_refused_with_the_place(
    path: str, value: Any, where: str, says: str
) -> None:
    with pytest.raises(DataError) as caught:
        solve_document(changed(path, value))
    assert caught.value.code == "problem.invalid"
    assert caught.value.where == where
    assert says in caught.value.message


def test_unknown_keys_come_with_the_nearest_known_one() -> None:
    with pytest.raises(DataError) as caught:
        solve_document(changed(f"{NODE}.energy_mj", {}))
    assert caught.value.hint == 'did you mean "energy_uj"?'
    for document in ([], None, "x", 3):
        with pytest.raises(DataError, match="expected an object"):
            solve_document(document)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": ' + b"9" * 6000 + b"}", "not JSON"),
    ],
)
def test_files_that_are_no_json(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "problem.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_document(path)
    assert says in caught.value.message
    assert caught.value.where.startswith(str(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(DataError) as caught:
            read_document(path)
        assert caught.value.code == "problem.unreadable"
    path = tmp_path / "problem.json"
    path.write_text("\ufeff" + json.dumps(EXAMPLES[0]), encoding="utf-8")
    assert read_document(path) == EXAMPLES[0]


@pytest.mark.parametrize(
    ("changes", "conflict", "says"),
    [
        ({"bounds.latency_us": 50}, ["bounds.latency_us = 50"], "the lowest possible value is 58"),
        (
            {"bounds.latency_us": 59, "bounds.energy_uj": 1000},
            ["bounds.energy_uj = 1000", "bounds.latency_us = 59"],
            "together",
        ),
        (
            {"loadable.max": 0, f"{NODE}.time_us": {"DLA": 20}},
            ["loadable.max = 0"],
            "cannot be met",
        ),
        (
            {"loadable.weight_bytes": 600, "networks[0].nodes[1].time_us": {"DLA": 20}},
            ["loadable.weight_bytes = 600"],
            "cannot be met",
        ),
        (
            {
                "networks[0].max_transitions": 1,
                "networks[0].nodes[0].time_us": {"GPU": 1},
                "networks[0].nodes[1].time_us": {"DLA": 1},
                f"{NODE}.time_us": {"GPU": 1},
            },
            ["networks[0].max_transitions = 1"],
            "cannot be met",
        ),
        ({f"{NODE}.time_us": {}}, [f"{NODE}.time_us"], 'node "d" cannot run on any device'),
    ],
)
def test_conflicts_are_named(changes: Json, conflict: list[str], says: str) -> None:
    document: Any = copy.deepcopy(EXAMPLES[1])
    for path, value in changes.items():
        place = document
        *steps, last = [int(s) if s.isdigit() else s for s in re.findall(r"[^.\[\]]+", path)]
        for step in steps:
            place = place[step]
        place[last] = value
    with pytest.raises(GateError) as caught:
        solve_document(document)
    assert caught.value.code == "plan.infeasible"
    assert caught.value.extra["conflict"] == conflict
    assert says in caught.value.message


def test_makespans_lie_between_period_and_latency() -> None:
    refused = 0
    for seed in (553, *range(20)):  # 553: no GPU and no loadable allowed
        document = random_document(random.Random(seed), "makespan")
        latency = best({**document, "objective": "latency"})
        if latency is None:
            refused += 1
            with pytest.raises(GateError) as caught:
                solve_document(document)
            assert caught.value.code == "plan.infeasible"
            continue
        answer = solve_document(document)
        check(document, answer)
        assert answer["optimal"]
        period = best({**document, "objective": "period"})
        assert period is not None
        assert answer["value"] >= period - 1e-6
        if not document.get("bounds"):
            assert answer["value"] <= latency + 1e-6
    assert 0 < refused < 10
