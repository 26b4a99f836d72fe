"""Detectors with queries from transformers and Ultralytics, exported here by both exporters."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised
from edgekit.network.loading.load import load

_BACKBONE = {
    "embedding_size": 16,
    "hidden_sizes": [16, 24, 32, 48],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}
_DETR = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_queries": 20,
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
    "num_labels": 6,
}
_REALTIME = {
    "encoder_hidden_dim": 32,
    "encoder_in_channels": [24, 32, 48],
    "encoder_ffn_dim": 32,
    "encoder_attention_heads": 4,
    "d_model": 32,
    "decoder_in_channels": [32, 32, 32],
    "decoder_ffn_dim": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "num_queries": 20,
    "num_labels": 6,
    "num_denoising": 0,
}
#: Configuration, settings, family and function of the scores, by class of transformers.
NETWORKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "Detr": (_DETR, "DETR", "softmax"),
    "ConditionalDetr": (_DETR, "conditional DETR", "sigmoid"),
    "RTDetr": (_REALTIME, "RT-DETR", "sigmoid"),
    "RTDetrV2": (_REALTIME, "RT-DETR", "sigmoid"),
    "DFine": (_REALTIME, "D-FINE", "sigmoid"),
}
#: PyTorch 2.14's dynamo exporter does not translate transformers 5.24's RT-DETRv2 and D-FINE
#: (aten._is_all_true); tests/data/exports has an RT-DETRv2 that an older one wrote.
CASES = [(name, dynamo) for name in NETWORKS for dynamo in (False, True)]
CASES = [case for case in CASES if case not in {("RTDetrV2", True), ("DFine", True)}]


def network(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        settings, _, _ = NETWORKS[name]
        kind = "ResNetConfig" if settings is _DETR else "RTDetrResNetConfig"
        backbone = getattr(transformers, kind)(**_BACKBONE)
        config = getattr(transformers, f"{name}Config")(backbone_config=backbone, **settings)
        torch.manual_seed(0)
        whole = getattr(transformers, f"{name}ForObjectDetection")(config).eval()

        class Outputs(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.inner = whole

            def forward(self, images: Any) -> Any:
                found = self.inner(pixel_values=images)
                return found.logits, found.pred_boxes

        return Outputs().eval()


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize(("name", "dynamo"), CASES)
def test_transformers(name: str, dynamo: bool, tmp_path: Path) -> None:
    module = network(name)
    import torch

    path = tmp_path / "detector.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (torch.randn(2, 3, 64, 96),),
            str(path),
            input_names=["images"],
            dynamo=dynamo,
            opset_version=18 if dynamo else 17,
        )
    found = recognise(load(path))
    assert isinstance(found, Recognised), found
    _, family, scores = NETWORKS[name]
    part = found.head.query
    assert part is not None
    assert (found.head.family, part.scores, part.size) == (family, scores, (64, 96))


@pytest.mark.whole
@pytest.mark.slow
def test_ultralytics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ultralytics = pytest.importorskip("ultralytics")
        path = ultralytics.RTDETR("rtdetr-l.yaml").export(format="onnx", imgsz=320, batch=2)
    found = recognise(load(path))
    assert isinstance(found, Recognised), found
    part = found.head.query
    assert part is not None
    assert (found.head.family, part.most, part.size) == ("RT-DETR", 300, (320, 320))
