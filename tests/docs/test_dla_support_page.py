"""docs/dla-support.md and docs/data/dla-support.json: the example runs, the facts are check's."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from edgekit.cli import main
from edgekit.dla.judge import judge, reads_qdq
from edgekit.dla.rules import load_rules
from edgekit.knowledge import data_folder, read_knowledge
from edgekit.targets import loader
from edgekit.targets.jetpack import tensorrt_of_jetpack
from edgekit.targets.releases import supports_dla
from tests.dla.builder import Builder

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dla-support.md").read_text(encoding="utf-8")
DATA = ROOT / "docs" / "data" / "dla-support.json"


@pytest.fixture(scope="module")
def database() -> Any:
    return json.loads(DATA.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def definition() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "dla_database", ROOT / "scripts" / "dla_database.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # pydantic looks annotations up there
    sys.modules["dla_database"] = module
    spec.loader.exec_module(module)
    return module


def row_of(rows: Any, **wanted: str) -> Any:
    [found] = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return found


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(ROOT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/dla-support.md", "exec"), {})
    assert printed.getvalue().splitlines() == [
        "6.2 True implicit",
        "7.2 False none",
        "7.2.2 True qdq",
    ]


def test_the_commands_run(capsys: pytest.CaptureFixture[str]) -> None:
    [block] = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines():
        program, *arguments = shlex.split(line)
        assert program == "edgekit"
        with pytest.raises(SystemExit) as caught:
            main.main(arguments)
        assert caught.value.code in (None, 0)
        assert arguments[-1] in capsys.readouterr().out


def test_the_document_is_as_defined(database: Any, definition: ModuleType) -> None:
    read = definition.DlaSupport.model_validate(database)
    assert read.to_json() == database
    schema = json.loads(DATA.with_suffix(".schema.json").read_text(encoding="utf-8"))
    assert schema["title"] == database["schema"] == "edgekit.dla-support/1"
    assert set(schema["required"]) == set(database) == set(schema["properties"])


def test_what_is_named_is_there(database: Any) -> None:
    rules = {rule["id"] for rule in database["rules"]}
    sources, boards = set(database["sources"]), {row["board"] for row in database["boards"]}
    assert rules == set(load_rules().rules)
    assert {rule["family"] for rule in database["rules"]} == set(database["families"])
    assert boards == set(loader.names())
    for row in (*database["rules"], *database["operators"], *database["matrix"]):
        assert row["sources"]
        assert sources.issuperset(row["sources"])
    for row in (*database["rules"], *database["operators"]):
        if row["dispute"] is not None:
            said = [side["sources"] for side in row["dispute"]["sides"]]
            assert len(said) > 1
            assert all(said)
            assert set(row["dispute"]["sources"]) == set().union(*said) <= sources
    for row in database["operators"]:
        assert rules.issuperset(row["rules"])
        for one in row["support"]:
            assert rules.issuperset(one["decided_by"])
            assert one["decided_by"] or one["status"] in {"runs", "limits", "folded"}


def test_the_matrix_is_what_check_decides(database: Any) -> None:
    for row in database["matrix"]:
        board = loader.get(row["board"])
        assert row["has_dla"] == (board.dla.cores > 0)
        if row["tensorrt"] is None:
            assert row["usable"] is (None if row["has_dla"] else False)
            continue
        release = tensorrt_of_jetpack(board, row["jetpack"])
        assert release == row["tensorrt"]
        assert row["usable"] == (row["has_dla"] and supports_dla(board, release))
        if row["usable"]:
            assert row["int8"] == ("qdq" if reads_qdq(board, release) else "implicit")
        else:
            assert row["int8"] == "none"
            assert row["rule"] in {"general.no_dla", "general.tensorrt"}


def test_what_to_do_names_a_release_whose_dla_the_module_can_use(database: Any) -> None:
    for row in database["matrix"]:
        assert bool(row["instead"]) == (row["usable"] is not True)
        if row["has_dla"] and row["instead"]:
            usable = {
                one["jetpack"]: one["tensorrt"]
                for one in database["matrix"]
                if one["board"] == row["board"] and one["usable"]
            }
            named = re.findall(
                r"JetPack ([\d.]+)(?: to ([\d.]+))?(?: or later)? with TensorRT ([\d.]+\d)",
                row["instead"],
            )
            assert named
            for first, last, release in named:
                assert usable[first] == usable[last or first] == release
    agx = row_of(database["matrix"], board="jetson-agx-orin-64gb", jetpack="7.2")
    assert agx["instead"].startswith("update to JetPack 7.2.2 or later with TensorRT 11.4.1")


def test_every_disputed_rule_has_its_sides_and_no_other() -> None:
    sides = read_knowledge(data_folder("dla") / "disputes.yaml")["disputes"]
    assert set(sides) == {rule.id for rule in load_rules() if rule.certainty == "disputed"}


@pytest.mark.parametrize(
    ("operator", "precision", "release", "status", "decided"),
    [
        ("Relu", "fp16", "10.3.0", "runs", []),
        ("Conv", "int8", "10.3.0", "limits", []),
        ("Div", "fp16", "10.3.0", "never", ["elementwise.div_int8"]),
        ("Div", "int8", "10.3.0", "limits", []),
        ("Div", "int8", "8.5.2", "never", ["operators.since"]),
        ("Equal", "fp16", "10.3.0", "never", ["comparison.precision"]),
        ("Min", "fp16", "10.3.0", "disputed", ["operators.not_exposed"]),
        ("ReduceMean", "int8", "10.3.0", "never", ["reduce.function"]),
        ("DepthToSpace", "fp16", "10.3.0", "never", ["shuffle.mode"]),
        ("HardSigmoid", "fp16", "10.3.0", "never", ["activation.function"]),
        ("QuantizeLinear", "int8", "10.3.0", "never", ["general.explicit_quantization"]),
        ("QuantizeLinear", "int8", "11.4.1", "limits", []),
        ("Shape", "fp16", "10.3.0", "folded", []),
        ("Gather", "int8", "10.3.0", "never", ["general.kind", "general.plugin"]),
    ],
)
def test_an_operator_by_precision_and_release(
    database: Any, operator: str, precision: str, release: str, status: str, decided: list[str]
) -> None:
    rows = row_of(database["operators"], operator=operator)["support"]
    [found] = [
        one
        for one in rows
        if (one["generation"], one["precision"]) == ("2.0", precision)
        and release in one["tensorrt"]
    ]
    assert (found["status"], found["decided_by"]) == (status, decided)


@pytest.mark.parametrize("release", ["8.5.2", "10.3.0"])
def test_what_runs_and_what_never_does_is_what_check_decides(
    database: Any, tmp_path: Path, release: str
) -> None:
    orin = loader.get("jetson-agx-orin-64gb")
    compared = set()
    for row in database["operators"]:
        if row["layers"] not in (["ACTIVATION"], ["UNARY"], ["REDUCE"]) or row["operator"] == "Not":
            continue
        build = Builder(x=(1, 8, 16, 16))
        network = build.network(tmp_path, build.add(row["operator"], "n", "x"))
        for one in row["support"]:
            if one["generation"] == "2.0" and release in one["tensorrt"]:
                judged = judge(network, orin, precision=one["precision"], tensorrt=release)
                on_dla = all(verdict.ok for verdict in judged.verdicts.values())
                if one["status"] in {"runs", "never"}:
                    assert on_dla == (one["status"] == "runs"), (row["operator"], one)
                    compared.add(row["operator"])
    assert len(compared) > 30
