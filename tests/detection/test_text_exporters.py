"""The heads of PaddleOCR's detector and recogniser, rebuilt in PyTorch and exported by both of its
exporters.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised
from edgekit.network.loading.load import load
from tests.detection.text_nets import CHARACTERS

pytestmark = [pytest.mark.whole, pytest.mark.slow]


def detector() -> Any:
    import torch
    from torch import nn

    class Detector(nn.Module):
        """A pyramid of two levels and DB's head."""

        def __init__(self) -> None:
            super().__init__()
            self.quarter = nn.Conv2d(3, 6, 4, 4)
            self.eighth = nn.Conv2d(6, 6, 2, 2)
            self.up = nn.Upsample(scale_factor=2)
            self.head = nn.Sequential(
                nn.Conv2d(12, 6, 3, padding=1, bias=False),
                nn.BatchNorm2d(6),
                nn.ReLU(),
                nn.ConvTranspose2d(6, 6, 2, 2),
                nn.BatchNorm2d(6),
                nn.ReLU(),
                nn.ConvTranspose2d(6, 1, 2, 2),
                nn.Sigmoid(),
            )

        def forward(self, x: Any) -> Any:
            fine = self.quarter(x)
            return self.head(torch.cat([self.up(self.eighth(fine)), fine], 1))

    return Detector()


def recogniser(recurrent: bool) -> Any:
    from torch import nn

    class Recogniser(nn.Module):
        """A convolution, the height pooled to 1, an LSTM or nothing, and a class for each step."""

        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 8, 8, 8), nn.ReLU(), nn.AvgPool2d((4, 1)))
            self.along = nn.LSTM(8, 4, bidirectional=True, batch_first=True) if recurrent else None
            self.classes = nn.Linear(8, 6)

        def forward(self, x: Any) -> Any:
            y = self.features(x).squeeze(2).permute(0, 2, 1)
            if self.along is not None:
                y = self.along(y)[0]
            return self.classes(y).softmax(2)

    return Recogniser()


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("name", ["DB", "CTC", "CTC with an LSTM"])
def test_both_exporters(name: str, dynamo: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        pytest.importorskip("onnxscript")
        torch.manual_seed(0)
        module = detector() if name == "DB" else recogniser("LSTM" in name)
        x = torch.randn(2, 3, 32, 96)
        torch.onnx.export(
            module.eval(),
            (x,),
            str(path),
            input_names=["x"],
            dynamo=dynamo,
            opset_version=18 if dynamo else 17,
        )
    found = recognise(load(path), {"character": CHARACTERS})
    assert isinstance(found, Recognised), found
    assert found.head.family == name[:3].strip()
