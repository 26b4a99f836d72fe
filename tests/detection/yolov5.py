"""The original heads of YOLOv5 and v7 on a small backbone, rebuilt in PyTorch: Ultralytics' package
has only v5u, whose head is YOLOv8's.

After https://github.com/ultralytics/yolov5 (models/yolo.py, Detect and Segment) and
https://github.com/WongKinYiu/yolov7 (models/yolo.py, Detect), as their exporters run them.
"""

from __future__ import annotations

from typing import Any

__all__ = ["ANCHORS", "network"]

STRIDES = (8, 16, 32)
#: Width and height in pixels, by level: YOLOv5's own.
ANCHORS = (
    ((10.0, 13.0), (16.0, 30.0), (33.0, 23.0)),
    ((30.0, 61.0), (62.0, 45.0), (59.0, 119.0)),
    ((116.0, 90.0), (156.0, 198.0), (373.0, 326.0)),
)


def network(form: str = "v5", classes: int = 3, masks: int = 4) -> Any:
    """Returns a module for pictures whose sides are multiples of 32.

    Args:
        form: "v5", "v5-seg", "v7" (the same values in fewer operations), or "v3" (sizes are
            exponentials).
        classes: Number of classes.
        masks: Mask coefficients of "v5-seg".
    """
    import torch
    from torch import nn

    values = 5 + classes + (masks if form == "v5-seg" else 0)

    class Network(nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(
                nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Conv2d(8, 8, 2, 2), nn.ReLU()
            )
            self.down = nn.ModuleList(nn.Conv2d(8, 8, 2, 2) for _ in STRIDES[1:])
            self.heads = nn.ModuleList(nn.Conv2d(8, 3 * values, 1) for _ in STRIDES)
            self.prototypes = nn.Conv2d(8, masks, 1)

        def forward(self, x: Any) -> Any:
            features = [self.first(x)]
            for down in self.down:
                features.append(torch.relu(down(features[-1])))
            levels = [
                self.level(head(feature), stride, anchors)
                for head, feature, stride, anchors in zip(
                    self.heads, features, STRIDES, ANCHORS, strict=True
                )
            ]
            found = torch.cat(levels, 1)
            if form != "v5-seg":
                return found
            wide = nn.functional.interpolate(features[0], scale_factor=2.0)
            return found, torch.relu(self.prototypes(wide))

        def level(self, raw: Any, stride: int, sizes: Any) -> Any:
            batch, _, height, width = raw.shape
            raw = raw.view(batch, 3, values, height, width).permute(0, 1, 3, 4, 2).contiguous()
            y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            grid = torch.stack((x, y), 2).expand(1, 3, height, width, 2).float()
            anchors = torch.tensor(sizes).view(1, 3, 1, 1, 2)
            if form == "v5-seg":
                xy, wh, rest, coefficients = raw.split((2, 2, 1 + classes, masks), 4)
                xy, wh, rest = xy.sigmoid(), wh.sigmoid(), rest.sigmoid()
            else:
                xy, wh, rest = raw.sigmoid().split((2, 2, 1 + classes), 4)
            if form == "v7":
                xy = xy * (2.0 * stride) + stride * (grid - 0.5)
                wh = wh**2 * (4 * anchors)
            elif form == "v3":
                xy = (xy + grid) * stride
                wh = torch.exp(raw[..., 2:4]) * anchors
            else:
                xy = (xy * 2 + (grid - 0.5)) * stride
                wh = (wh * 2) ** 2 * anchors.expand(1, 3, height, width, 2)
            parts = (xy, wh, rest, coefficients) if form == "v5-seg" else (xy, wh, rest)
            return torch.cat(parts, 4).view(batch, 3 * height * width, values)

    torch.manual_seed(0)
    return Network().eval()
