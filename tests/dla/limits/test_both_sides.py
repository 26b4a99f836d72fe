"""Every limit from both sides, through the public ``edgekit.check`` on small ONNX files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import edgekit
from tests.dla.limits import (
    convolutions,
    pointwise,
    quantization,
    shapes,
    windows,
)
from tests.dla.limits.cases import SETTINGS, Case, Setting
from tests.dla.limits.sheet import Sheet

FAMILIES: dict[str, list[Case]] = {
    "convolutions": convolutions.CASES,
    "pointwise": pointwise.CASES,
    "quantization": quantization.CASES,
    "shapes": shapes.CASES,
    "windows": windows.CASES,
}
ALL = [(family, index) for family, cases in FAMILIES.items() for index in range(len(cases))]
Layers = dict[str, list[dict[str, Any]]]


class Sheets:
    """The models of the table, one a family and opset, each checked once a setting."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.layers = cache(self._layers)
        self._file = cache(self._write)

    def _write(self, family: str, opset: int) -> Path:
        sheet = Sheet()
        for index, case in enumerate(FAMILIES[family]):
            if case.opset == opset:
                case.inside(sheet, f"inside{index}")
                case.outside(sheet, f"outside{index}")
        return sheet.save(self._folder / f"{family}-{opset}.onnx", opset)

    def _layers(self, family: str, opset: int, setting: Setting) -> Layers:
        with pytest.MonkeyPatch.context() as patch:
            if setting.tensorrt != "10.3":
                # what mending a layer would gain takes four fifths of a check: once is enough
                patch.setattr("edgekit.placement.check.find_fixes", lambda *_: ())
            document = edgekit.check(
                self._file(family, opset),
                target=setting.board,
                precision=setting.precision,
                tensorrt=setting.tensorrt,
            ).to_json()
        found: Layers = {}
        for layer in document["layers"]:
            for node in layer["nodes"]:
                found.setdefault(node, []).append(layer)
        return found


@pytest.fixture(scope="module")
def sheets(tmp_path_factory: pytest.TempPathFactory) -> Sheets:
    return Sheets(tmp_path_factory.mktemp("sheets"))


@pytest.mark.parametrize(
    ("family", "index"), ALL, ids=[f"{f}-{i}-{FAMILIES[f][i].rule}" for f, i in ALL]
)
def test_both_sides(sheets: Sheets, family: str, index: int) -> None:
    case = FAMILIES[family][index]
    for setting in SETTINGS:
        if not case.tried.holds(setting):
            continue
        layers = sheets.layers(family, case.opset, setting)
        for name, inside in ((f"inside{index}", True), (f"outside{index}", False)):
            judged = [la for la in layers[name] if case.kind in {"", la["kind"]}]
            assert judged, f"{setting}: no layer of {name}"
            for layer in judged:
                _compare(case, setting, layer, inside=inside)


def _compare(case: Case, setting: Setting, layer: dict[str, Any], *, inside: bool) -> None:
    verdict = layer["dla"]
    reasons = {reason["rule"]: reason for reason in verdict["reasons"]}
    said = f"{case.rule}, {'in' if inside else 'out'}side, {setting}: {verdict}"
    if inside or not case.breaks.holds(setting):
        assert case.rule not in reasons, said
        allowed = case.inside_ok if inside or case.outside_ok is None else case.outside_ok
        assert verdict["ok"] is allowed.holds(setting), said
        return
    assert case.rule in reasons, said
    reason = reasons[case.rule]
    assert case.found in reason["found"], said
    assert case.limit in reason["limit"], said
    assert reason["found"] in reason["message"], said
    assert reason["source"], said
    assert reason["fix"], said
    assert verdict["ok"] is case.risk, said
    disputed = case.risk or case.disputed.holds(setting)
    assert verdict["certainty"] == ("disputed" if disputed else "certain"), said
