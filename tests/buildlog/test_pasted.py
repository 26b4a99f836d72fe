"""`edgekit explain-log` of lines as people paste them, with what data/pasted.txt has of each.

A case begins with ``== {...}``: the ids of its errors (with number and operator of a node, and how
often), the rules with their layers, the refused layers, errors that nobody knows, and figures.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from edgekit.pipeline.log_explanation import explain_log

TEXT = (Path(__file__).parent / "data" / "pasted.txt").read_text(encoding="utf-8")
CASES = [case.partition("\n") for case in re.split(r"(?m)^== ", TEXT)[1:]]


@pytest.mark.parametrize(("wanted", "_", "text"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_a_pasted_text_is_explained(wanted: str, _: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "pasted.log").write_text(text)
    found = explain_log(tmp_path / "pasted.log").to_json()
    expected: dict[str, Any] = json.loads(wanted)
    figures, program = expected.pop("says", []), expected.pop("program", None)
    assert program in (None, found["program"])
    reported = {
        "errors": [_error(one) for one in found["errors"]],
        "rules": [f"{one['rule']}: {', '.join(one['layers'])}" for one in found["rules"]],
        "refused": [one["layer"] for one in found["log"]["fallbacks"]],
        "unknown": found["unknown_errors"],
        "passed": found["passed"],
    }
    assert {key: value for key, value in reported.items() if value not in ([], None)} == expected
    said = [found["headline"], [(one["cause"], one["remedy"]) for one in found["errors"]]]
    assert [figure for figure in figures if figure not in str(said)] == []
    for error in found["errors"]:
        assert error["cause"]
        assert error["remedy"]
        assert all(source["where"] for source in error["sources"])


def _error(found: dict[str, Any]) -> str:
    node = found.get("node")
    more = f" {node['number']} {node['operator']}" if node else ""
    return found["id"] + more + (f" x{found['count']}" if found["count"] > 1 else "")
