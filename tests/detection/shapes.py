"""The trained detector of examples/detection, and the scenes that it knows."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "detection"
TRAINED = EXAMPLE / "shapes.onnx"


def scenes() -> ModuleType:
    """Returns the module that makes the scenes."""
    name = "examples_detection_shapes"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLE / "shapes.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def configuration(folder: Path, **sections: object) -> Path:
    """Writes a configuration of the detector in INT8, calibrated on scenes of the folder "cal"."""
    document = {
        "version": 1,
        "name": "shapes",
        "target": "jetson-agx-orin-64gb",
        "precision": "int8",
        "model": {"onnx": str(TRAINED), "head": "auto"},
        "calibration": {"data": "cal/images", "count": 16},
        **sections,
    }
    path = folder / "shapes.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
