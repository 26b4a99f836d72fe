"""YOLO's heads in networks of Ultralytics, made from its YAML files and exported here by both
exporters and by Ultralytics' own; the anchors' heads are rebuilt (tests/detection/yolov5.py). Masks
and suppression are compared with Ultralytics' and torchvision's.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgekit.network.loading.load import load
from edgekit.network.model import Model
from edgekit_device.detection.detect import decode, detect
from edgekit_device.detection.masks import mask
from edgekit_device.protocol.detection import Options
from tests.detection.yolo import head_of, own_outputs, raw_maps
from tests.detection.yolov5 import network as network_with_anchors

#: YAML files, and whether the network's own top-k chooses the boxes.
NETWORKS = [
    ("yolov8n.yaml", False),
    ("yolov9t.yaml", False),
    ("yolov10n.yaml", True),
    ("yolo11n.yaml", False),
    ("yolo12n.yaml", False),
    ("yolo26n.yaml", True),
    ("yolo26n.yaml", False),
    ("yolov5n.yaml", False),
    ("yolov8n-seg.yaml", False),
    ("yolo11n-seg.yaml", False),
    ("yolo26n-seg.yaml", True),
    ("yolov8n-pose.yaml", False),
    ("yolo11n-pose.yaml", False),
    ("yolo26n-pose.yaml", True),
]
SIZE = (64, 96)
exporters = pytest.mark.parametrize("exporter", ["legacy", "dynamo"])


@contextmanager
def quiet(folder: Path) -> Iterator[Any]:
    """Ultralytics without its warnings, downloads and installations; its settings in ``folder``."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("YOLO_CONFIG_DIR", str(folder))
        patch.setenv("YOLO_AUTOINSTALL", "false")
        patch.setenv("YOLO_VERBOSE", "false")
        pytest.importorskip("torch")
        yield pytest.importorskip("ultralytics", reason="needs ultralytics")


def exported(module: Any, exporter: str, folder: Path) -> Model:
    """The network as PyTorch's exporter writes it, for two frames of 64 x 96."""
    import torch

    path = folder / "network.onnx"
    pictures = torch.rand(2, 3, *SIZE)
    options: dict[str, Any] = {"external_data": False} if exporter == "dynamo" else {}
    with torch.no_grad():
        torch.onnx.export(
            module, (pictures,), str(path), dynamo=exporter == "dynamo", verbose=False, **options
        )
    return load(path)


def decoded_as_its_own(model: Model) -> None:
    """Compares the decoding with the network's own output, or its own top-k."""
    head = head_of(model)
    maps = raw_maps(model, head, bias=-4.0)
    own = own_outputs(model, maps)[0]
    ours = decode(head, maps)
    if head.distance is not None and head.distance.most:
        for every, found in zip(own, detect(head, maps, Options(score=0.3)), strict=True):
            rows = every[every[:, 4] > 0.3]
            assert len(rows) > 20
            np.testing.assert_allclose([one.box for one in found], rows[:, :4], 1e-4, 1e-3)
            assert [one.number for one in found] == rows[:, 5].astype(int).tolist()
        return
    parts = [ours[key] for key in ("boxes", "scores", "extra") if key in ours]
    together = ours["output"] if "output" in ours else np.concatenate(parts, axis=1)
    np.testing.assert_allclose(together, own, rtol=1e-4, atol=1e-4)


@pytest.mark.whole
@pytest.mark.slow
@exporters
@pytest.mark.parametrize(("file", "chosen"), NETWORKS)
def test_ultralytics_by_pytorchs_exporters(
    file: str, chosen: bool, exporter: str, tmp_path: Path
) -> None:
    with quiet(tmp_path):
        from ultralytics.nn import tasks

        kinds = {"seg": tasks.SegmentationModel, "pose": tasks.PoseModel}
        kind = kinds.get(Path(file).stem.partition("-")[2], tasks.DetectionModel)
        module = kind(file, verbose=False).eval()
        module.model[-1].export = True
        module.model[-1].end2end = chosen
        model = exported(module, exporter, tmp_path)
    decoded_as_its_own(model)


@pytest.mark.whole
@exporters
@pytest.mark.parametrize("form", ["v5", "v5-seg", "v7"])
def test_heads_of_anchors_by_pytorchs_exporters(form: str, exporter: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torch")
        model = exported(network_with_anchors(form), exporter, tmp_path)
    decoded_as_its_own(model)


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "options", "family"),
    [
        ("yolo11n.yaml", {}, "YOLO11n"),
        ("yolov8n-seg.yaml", {"half": True}, "YOLOv8n-seg"),
        ("yolo26n-pose.yaml", {"nms": False}, "YOLO26n-pose"),
        ("yolov8n.yaml", {"dynamic": True}, "YOLOv8n"),
    ],
)
def test_ultralytics_own_export(
    file: str, options: dict[str, Any], family: str, tmp_path: Path
) -> None:
    with quiet(tmp_path) as ultralytics, chdir(tmp_path):
        network = ultralytics.YOLO(file)
        network.model.pt_path = str(tmp_path / "network.pt")
        written = network.export(
            format="onnx", imgsz=list(SIZE), simplify=False, device="cpu", **options
        )
    path = tmp_path / os.fspath(written)
    metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    shapes = {"images": (2, 3, *SIZE)} if "dynamic" in options else None
    model = load(path, shapes=shapes)
    head = head_of(model, metadata)
    assert head.family == family
    assert len(head.classes) == 80
    if "half" not in options:
        decoded_as_its_own(model)


def test_masks_are_ultralytics(tmp_path: Path) -> None:
    with quiet(tmp_path):
        import torch
        from ultralytics.utils.ops import process_mask
    random = np.random.default_rng(6)
    prototypes = random.normal(size=(32, 40, 56)).astype(np.float32)
    coefficients = random.normal(size=(20, 32)).astype(np.float32)
    corner, size = random.uniform(-20, 140, (20, 2)), random.uniform(10, 90, (20, 2))
    boxes = np.concatenate([corner, corner + size], axis=1).astype(np.float32)
    theirs = process_mask(
        *map(torch.from_numpy, (prototypes, coefficients, boxes)), (160, 224), upsample=True
    ).numpy()
    for row, box, expected in zip(coefficients, boxes.tolist(), theirs, strict=True):
        found = mask(row, prototypes, tuple(box), 4)
        assert found.shape == expected.shape
        assert (found != (expected > 0)).mean() < 1e-4
    assert theirs.any()
