"""Tensors and types that no DLA has: a verdict for each layer, and no error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

import edgekit
from tests.dla.limits.sheet import Sheet
from tests.dla.one_layer import ORIN


def _verdicts(sheet: Sheet, folder: Path) -> dict[str, dict[str, Any]]:
    path = sheet.save(folder / "model.onnx", 17)
    document = edgekit.check(path, target=ORIN, precision="int8").to_json()
    found = {layer["name"]: layer["dla"] for layer in document["layers"]}
    assert len(found) == len(document["layers"])
    return found


def test_a_tensor_without_elements_is_refused(tmp_path: Path) -> None:
    sheet = Sheet()
    bounds = [sheet.constant([value]) for value in (2, 2, 2)]
    sheet.add("Relu", "after", sheet.add("Slice", "nothing", sheet.input(1, 4, 6, 6), *bounds))
    for verdict in _verdicts(sheet, tmp_path).values():
        assert not verdict["ok"]
        assert verdict["reasons"][0]["rule"] == "general.dimension"
        assert "0" in verdict["reasons"][0]["found"]


def test_types_that_no_dla_has(tmp_path: Path) -> None:
    sheet = Sheet()
    for kind in (TensorProto.INT64, TensorProto.INT32, TensorProto.DOUBLE):
        sheet.add("Abs", f"kind{kind}", sheet.input(1, 4, 2, 2, kind=kind))
    sheet.add("Add", "good", sheet.input(1, 4, 2, 2), sheet.constant(np.ones(1, np.float32)))
    found = _verdicts(sheet, tmp_path)
    assert [name for name, verdict in found.items() if verdict["ok"]] == ["good"]
