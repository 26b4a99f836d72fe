"""Small networks with heads of priors and points, exported as their users export them.

SSD and RetinaNet are torchvision's own classes on a backbone of three convolutions; YOLOX is the
package pixeltable-yolox (Apache-2.0), an eighth as wide as YOLOX-l. RetinaFace is rebuilt after
https://github.com/biubug6/Pytorch_Retinaface (MIT): depthwise backbone, pyramid, context modules,
heads, ``PriorBox``, ``decode`` and ``decode_landm``.

``python -m tests.detection.prior_networks`` writes those of :data:`STORED`, without the values of
large weights.
"""

from __future__ import annotations

import io
import lzma
import sys
import warnings
from collections import OrderedDict
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.exports import RECORD

__all__ = ["FOLDER", "STORED", "exported"]

FOLDER = Path(__file__).parent.parent / "data/heads"
#: The network, its input's shape and the exporter of the stored files, by name. PyTorch's newer
#: exporter takes no suppression: how many boxes stay depends on the data.
STORED = {
    "ssd_nms": ("ssd_nms", (1, 3, 64, 96), "legacy"),
    "ssd_decoded": ("ssd_decoded", (1, 3, 72, 112), "dynamo"),
    "retinanet_nms": ("retinanet_nms", (1, 3, 64, 96), "legacy"),
    "retinaface": ("retinaface", (2, 3, 72, 104), "legacy"),
    "retinaface_decoded": ("retinaface_decoded", (2, 3, 72, 104), "legacy"),
    "retinaface_decoded_dynamo": ("retinaface_decoded", (1, 3, 104, 72), "dynamo"),
    "yolox": ("yolox", (2, 3, 64, 96), "legacy"),
    "yolox_decoded": ("yolox_decoded", (2, 3, 96, 64), "dynamo"),
}
_SIDES = (64, 96)


def exported(name: str, shape: tuple[int, ...], exporter: str) -> onnx.ModelProto:
    """Returns a network with random weights as an exporter of PyTorch writes it.

    Args:
        name: "ssd_nms", "retinanet_nms": the suppression is inside; "ssd_decoded",
            "retinaface_decoded", "yolox_decoded": boxes in pixels, or parts of the picture, come
            out; "retinaface", "yolox": the raw maps, joined.
        shape: Of the picture.
        exporter: "dynamo" or "legacy".
    """
    import torch

    torch.manual_seed(0)
    family, _, form = name.partition("_")
    module = globals()[f"_{family}"](form, shape).eval()
    example = torch.rand(shape)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            found: onnx.ModelProto = torch.onnx.export(
                module, (example,), dynamo=True, verbose=False, input_names=["images"]
            ).model_proto
            return found
        file = io.BytesIO()
        torch.onnx.export(
            module, (example,), file, dynamo=False, opset_version=17, input_names=["images"]
        )
        return onnx.load_model_from_string(file.getvalue())


def _backbone(channels: int | list[int]) -> Any:
    from torch import nn

    class Backbone(nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.out_channels = channels
            self.levels = nn.ModuleList(
                nn.Conv2d(8 if level else 3, 8, 3, 2 if level else 4, 1) for level in range(3)
            )

        def forward(self, x: Any) -> Any:
            found = OrderedDict()
            for level, one in enumerate(self.levels):
                x = one(x).relu()
                found[str(level)] = x
            return found

    return Backbone()


def _one_picture(detector: Any) -> Any:
    from torch import nn

    class OnePicture(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.detector = detector

        def forward(self, x: Any) -> Any:
            found = self.detector([x[0]])[0]
            return found["boxes"], found["scores"], found["labels"]

    return OnePicture()


def _ssd(form: str, shape: tuple[int, ...]) -> Any:
    from torch import nn
    from torchvision.models.detection.image_list import ImageList
    from torchvision.models.detection.ssd import SSD, DefaultBoxGenerator

    boxes = DefaultBoxGenerator([[2], [2, 3], [2]])
    detector = SSD(
        _backbone([8, 8, 8]),
        boxes,
        (shape[3], shape[2]),
        5,
        score_thresh=0.2,
        nms_thresh=0.45,
        topk_candidates=10_000,
        detections_per_img=10_000,
    )
    if form == "nms":
        return _one_picture(detector)

    class Decoded(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.detector = detector

        def forward(self, x: Any) -> Any:
            features = list(detector.backbone(x).values())
            raw = detector.head(features)
            pictures = ImageList(x, [(shape[2], shape[3])])
            priors = detector.anchor_generator(pictures, features)[0]
            found = detector.box_coder.decode_single(raw["bbox_regression"][0], priors)
            return found, raw["cls_logits"].softmax(-1)

    return Decoded()


def _retinanet(form: str, shape: tuple[int, ...]) -> Any:
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.retinanet import RetinaNet

    anchors = AnchorGenerator(((8, 12), (16, 24), (32, 48)), ((0.5, 1.0, 2.0),) * 3)
    # pictures are resized inside, from 64x96 to 93x140
    return _one_picture(
        RetinaNet(
            _backbone(8),
            5,
            anchor_generator=anchors,
            min_size=96,
            max_size=140,
            score_thresh=0.2,
            nms_thresh=0.45,
            topk_candidates=10_000,
            detections_per_img=10_000,
        )
    )


def _yolox(form: str, shape: tuple[int, ...]) -> Any:
    from torch import nn
    from yolox.models import YoloPafpn, YoloxHead

    class Yolox(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone = YoloPafpn(0.33, 0.125, act="silu")
            self.head = YoloxHead(4, 0.125, act="silu")
            self.head.decode_in_inference = form == "decoded"

        def forward(self, x: Any) -> Any:
            return self.head(self.backbone(x))

    return Yolox()


def _retinaface(form: str, shape: tuple[int, ...]) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    leaky = nn.LeakyReLU(0.1)
    variances = (0.1, 0.2)
    steps, least = (8, 16, 32), ((16, 32), (64, 128), (256, 512))

    def depthwise(before: int, after: int, stride: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False),
            nn.BatchNorm2d(before),
            leaky,
            nn.Conv2d(before, after, 1, bias=False),
            nn.BatchNorm2d(after),
            leaky,
        )

    class Context(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.three = nn.Conv2d(16, 8, 3, 1, 1)
            self.first = nn.Conv2d(16, 4, 3, 1, 1)
            self.five = nn.Conv2d(4, 4, 3, 1, 1)
            self.seven = nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1), leaky, nn.Conv2d(4, 4, 3, 1, 1))

        def forward(self, x: Any) -> Any:
            half = leaky(self.first(x))
            return torch.cat((self.three(x), self.five(half), self.seven(half)), 1).relu()

    def priors() -> Any:
        height, width = shape[2:]
        found = []
        for step, sizes in zip(steps, least, strict=True):
            for i, j in product(range(ceil(height / step)), range(ceil(width / step))):
                for size in sizes:
                    centre = ((j + 0.5) * step / width, (i + 0.5) * step / height)
                    found.append((*centre, size / width, size / height))
        return torch.tensor(found)

    class RetinaFace(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), leaky, depthwise(8, 8, 2))
            self.stages = nn.ModuleList(
                depthwise(before, after, 2) for before, after in ((8, 16), (16, 32), (32, 64))
            )
            self.inner = nn.ModuleList(nn.Conv2d(width, 16, 1) for width in (16, 32, 64))
            self.context = nn.ModuleList(Context() for _ in steps)
            self.heads = nn.ModuleDict(
                {
                    name: nn.ModuleList(nn.Conv2d(16, 2 * values, 1) for _ in steps)
                    for name, values in (("score", 2), ("box", 4), ("landmark", 10))
                }
            )
            self.register_buffer("priors", priors())

        def joined(self, name: str, features: list[Any], values: int) -> Any:
            maps = [
                head(one).permute(0, 2, 3, 1).contiguous().view(one.shape[0], -1, values)
                for head, one in zip(self.heads[name], features, strict=True)
            ]
            return torch.cat(maps, dim=1)

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            features = []
            for stage, inner in zip(self.stages, self.inner, strict=True):
                x = stage(x)
                features.append(leaky(inner(x)))
            for level in (1, 0):
                size = features[level].shape[2:]
                features[level] = features[level] + functional.interpolate(
                    features[level + 1], size=size, mode="nearest"
                )
            features = [one(x) for one, x in zip(self.context, features, strict=True)]
            boxes = self.joined("box", features, 4)
            points = self.joined("landmark", features, 10)
            scores = functional.softmax(self.joined("score", features, 2), dim=-1)
            if form != "decoded":
                return boxes, scores, points
            centre, size = self.priors[:, :2], self.priors[:, 2:]
            found = torch.cat(
                (
                    centre + boxes[..., :2] * variances[0] * size,
                    size * torch.exp(boxes[..., 2:] * variances[1]),
                ),
                -1,
            )
            found[..., :2] -= found[..., 2:] / 2
            found[..., 2:] += found[..., :2]
            marks = [
                centre + points[..., at : at + 2] * variances[0] * size for at in range(0, 10, 2)
            ]
            return found, scores, torch.cat(marks, dim=-1)

    return RetinaFace()


def _strip(model: onnx.ModelProto) -> None:
    """Replaces large weights by the record that ``tests.exports.load`` draws them from."""
    weights = {node.input[1] for node in model.graph.node if node.op_type == "Conv"}
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.name in weights and values.size > 16:
            wide = values.astype(np.float64)
            record = (wide.mean(), wide.std(), wide.min(), wide.max())
            tensor.ClearField("raw_data")
            tensor.doc_string = RECORD + " ".join(f"{number:.4g}" for number in record)
    model.doc_string = ""
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        del value.metadata_props[:]
    del model.graph.metadata_props[:], model.metadata_props[:]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for stored in sys.argv[1:] or STORED:
        proto = exported(*STORED[stored])
        _strip(proto)
        packed = lzma.compress(proto.SerializeToString(deterministic=True), preset=9)
        (FOLDER / f"{stored}.onnx.xz").write_bytes(packed)
        print(stored, len(packed))
