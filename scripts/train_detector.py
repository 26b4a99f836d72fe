"""Trains the detector of examples/detection on synthetic shapes, and exports it.

scripts/train_detector.py                      train, and write examples/detection/shapes.onnx
scripts/train_detector.py --export 640 FILE    write the trained network for pictures of 640 pixels

Needs torch (written with 2.14 for CPUs; about five minutes on one core). The network is a small one
of YOLOv8's kind: convolutions with SiLU, two levels, 16 bins a side, task-aligned assignment, and
the decoding exported inside as Ultralytics 8.4 does, with its metadata. The seed is fixed; another
processor sums in another order and gives slightly other weights.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "detection"))

from shapes import CLASSES, SIZE, prepared, scene

from edgekit.detection.precision import Precision, Truth, mean_precision
from edgekit.detection.recognise import recognise
from edgekit.detection.recognised import Recognised
from edgekit.network.loading.load import file_metadata, load
from edgekit.network.session import session
from edgekit_device.detection.detect import detect
from edgekit_device.protocol.detection import Options

TRAINED = Path(sys.path[0]) / "shapes.onnx"
#: Seeds below are for calibration and tests; training begins here.
FIRST = 1_000_000
HELD_OUT = 500_000
STRIDES = (8, 16)
BINS = 16
# anchors of an object at most, and how much score and overlap count in their choice
_ASSIGNED, _BY_SCORE, _BY_OVERLAP = 10, 0.5, 6.0
_BOX, _CLASS, _BINS = 7.5, 0.5, 1.5


class Conv(nn.Module):  # type: ignore[misc]
    """Convolution, normalisation, SiLU; the normalisation is gone after ``fuse``."""

    def __init__(self, into: int, out: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(out, eps=1e-3, momentum=0.03)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.norm(self.conv(x)))

    def fuse(self) -> None:
        self.conv = nn.utils.fuse_conv_bn_eval(self.conv, self.norm)
        self.norm = nn.Identity()


class C2f(nn.Module):  # type: ignore[misc]
    """YOLOv8's block: half of the channels, and a bottleneck of these."""

    def __init__(self, into: int, out: int, shortcut: bool = True) -> None:
        super().__init__()
        half = out // 2
        self.first = Conv(into, out, 1)
        self.inner = nn.Sequential(Conv(half, half), Conv(half, half))
        self.last = Conv(3 * half, out, 1)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        first_half, second_half = self.first(x).chunk(2, 1)
        three = self.inner(second_half)
        return self.last(
            torch.cat((first_half, second_half, second_half + three if self.shortcut else three), 1)
        )


class Detector(nn.Module):  # type: ignore[misc]
    """The network; its outputs are boxes and scores as Ultralytics exports them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(Conv(3, 12, 3, 2), Conv(12, 24, 3, 2))
        self.fine = nn.Sequential(Conv(24, 40, 3, 2), C2f(40, 40))
        self.coarse = nn.Sequential(Conv(40, 56, 3, 2), C2f(56, 56))
        self.up = C2f(96, 40, False)
        self.down = Conv(40, 40, 3, 2)
        self.end = C2f(96, 56, False)
        self.boxes = nn.ModuleList(
            nn.Sequential(Conv(width, 32), Conv(32, 32), nn.Conv2d(32, 4 * BINS, 1))
            for width in (40, 56)
        )
        self.scores = nn.ModuleList(
            nn.Sequential(Conv(width, 24), Conv(24, 24), nn.Conv2d(24, len(CLASSES), 1))
            for width in (40, 56)
        )
        self.project = nn.Conv2d(BINS, 1, 1, bias=False)
        self.project.weight.data = torch.arange(BINS, dtype=torch.float32).view(1, BINS, 1, 1)
        self.project.requires_grad_(False)
        self.grid = grid(SIZE)
        for boxes, scores in zip(self.boxes, self.scores, strict=True):
            boxes[-1].bias.data[:] = 1.0
            scores[-1].bias.data[:] = -4.5

    def raw(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns [batch, 4 * bins, places] and [batch, classes, places]."""
        fine = self.fine(self.stem(x))
        coarse = self.coarse(fine)
        up = functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        near = self.up(torch.cat((up, fine), 1))
        far = self.end(torch.cat((self.down(near), coarse), 1))
        both = near, far
        boxes = [part(level) for part, level in zip(self.boxes, both, strict=True)]
        scores = [part(level) for part, level in zip(self.scores, both, strict=True)]
        return (
            torch.cat([raw.view(len(raw), 4 * BINS, -1) for raw in boxes], -1),
            torch.cat([raw.view(len(raw), len(CLASSES), -1) for raw in scores], -1),
        )

    def distances(self, boxes: Tensor) -> Tensor:
        batch, _, places = boxes.shape
        bins = boxes.view(batch, 4, BINS, places).transpose(2, 1).softmax(1)
        return self.project(bins).view(batch, 4, places)

    def forward(self, x: Tensor) -> Tensor:
        boxes, scores = self.raw(x)
        # constants of the file, as Ultralytics keeps them
        anchors, strides = self.grid
        near, far = self.distances(boxes).chunk(2, 1)
        low, high = anchors[None] - near, anchors[None] + far
        decoded = torch.cat(((low + high) / 2, high - low), 1) * strides
        return torch.cat((decoded, scores.sigmoid()), 1)


def grid(size: int) -> tuple[Tensor, Tensor]:
    """Returns places [2, places] in places of their level, and the strides [places]."""
    places, strides = [], []
    for stride in STRIDES:
        line = torch.arange(size // stride) + 0.5
        y, x = torch.meshgrid(line, line, indexing="ij")
        places.append(torch.stack((x.flatten(), y.flatten())))
        strides.append(torch.full((len(line) ** 2,), float(stride)))
    return torch.cat(places, 1), torch.cat(strides)


def overlap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Returns IoU of boxes [..., 4], and its generalised form (GIoU)."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1)
    union = areas - shared + 1e-7
    outer = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    hull = outer.prod(-1) + 1e-7
    return shared / union, shared / union - (hull - union) / hull


def loss(net: Detector, x: Tensor, truth: Tensor, kinds: Tensor) -> Tensor:
    """Returns the loss of a batch; ``kinds`` is -1 where ``truth`` [batch, objects, 4] is empty."""
    boxes, scores = net.raw(x)
    anchors, strides = grid(x.shape[-1])
    distances = net.distances(boxes).transpose(1, 2)
    places = (anchors * strides).T
    steps = strides[:, None]
    found = torch.cat(
        (places - distances[..., :2] * steps, places + distances[..., 2:] * steps), -1
    )
    with torch.no_grad():
        inside = (
            torch.cat((places - truth[:, :, None, :2], truth[:, :, None, 2:] - places), -1).amin(-1)
            > 0
        ) & (kinds >= 0)[..., None]
        mine = scores.sigmoid().gather(
            1, kinds.clamp(min=0)[..., None].expand(-1, -1, scores.shape[-1])
        )
        iou = overlap(found[:, None], truth[:, :, None])[0].clamp(min=0)
        fit = mine**_BY_SCORE * iou**_BY_OVERLAP * inside
        least = fit.topk(_ASSIGNED, -1).values[..., -1:]
        chosen = inside & (fit >= least) & (fit > 1e-9)
        # a place that two objects want goes to the one that it overlaps more
        owner = (iou * chosen).argmax(1)
        chosen &= functional.one_hot(owner, truth.shape[1]).transpose(1, 2).bool()
        fit = fit * chosen
        best = fit.amax(-1, keepdim=True) + 1e-9
        weight = (fit / best * (iou * chosen).amax(-1, keepdim=True)).amax(1)
        any_one = chosen.any(1)
        wanted = torch.zeros_like(scores).transpose(1, 2)
        kind = kinds.gather(1, owner).clamp(min=0)
        wanted.scatter_(2, kind[..., None], (weight * any_one)[..., None])
        target = truth.gather(1, owner[..., None].expand(-1, -1, 4))
    total = wanted.sum().clamp(min=1)
    result = _CLASS * functional.binary_cross_entropy_with_logits(
        scores.transpose(1, 2), wanted, reduction="sum"
    )
    share = weight[any_one]
    result = result + _BOX * ((1 - overlap(found, target)[1])[any_one] * share).sum()
    sides = torch.cat((places - target[..., :2], target[..., 2:] - places), -1) / steps
    sides = sides.clamp(0, BINS - 1.01)[any_one]
    rows = boxes.view(len(boxes), 4, BINS, -1).permute(0, 3, 1, 2)[any_one].log_softmax(-1)
    left = sides.long()
    near = rows.gather(-1, left[..., None])[..., 0] * (left + 1 - sides)
    near = near + rows.gather(-1, left[..., None] + 1)[..., 0] * (sides - left)
    return (result - _BINS * (near.mean(-1) * share).sum()) / total


def make_data(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns pictures (uint8), boxes and classes of as many scenes, padded."""
    scenes = [scene(FIRST + number) for number in range(count)]
    most = max(len(picture.classes) for picture in scenes)
    boxes = torch.zeros(count, most, 4)
    kinds = torch.full((count, most), -1)
    for row, drawn in enumerate(scenes):
        boxes[row, : len(drawn.boxes)] = torch.from_numpy(drawn.boxes)
        kinds[row, : len(drawn.classes)] = torch.from_numpy(drawn.classes)
    pictures = torch.from_numpy(np.stack([drawn.picture.transpose(2, 0, 1) for drawn in scenes]))
    return pictures, boxes, kinds


def augment(x: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Mirrors, turns by quarters and recolours a batch."""
    if torch.rand(()) < 0.5:
        x, boxes = (
            x.flip(-1),
            torch.stack(
                (SIZE - boxes[..., 2], boxes[..., 1], SIZE - boxes[..., 0], boxes[..., 3]), -1
            ),
        )
    for _ in range(int(torch.randint(4, ()))):
        x = x.transpose(-1, -2).flip(-1)
        left, top, right, bottom = boxes.unbind(-1)
        boxes = torch.stack((SIZE - bottom, left, SIZE - top, right), -1)
    x = x[:, torch.randperm(3)] * (0.6 + 0.4 * torch.rand(len(x), 1, 1, 1))
    return (1 - x if torch.rand(()) < 0.5 else x), boxes


def train(steps: int, batch: int, scenes: int) -> Detector:
    """Returns the trained network (the running mean of its weights), normalisations fused."""
    torch.manual_seed(0)
    pictures, boxes, kinds = make_data(scenes)
    net = Detector()
    count = sum(parameter.numel() for parameter in net.parameters())
    print(f"{count:,} parameters, {scenes} scenes, {steps} steps of {batch}", flush=True)
    decayed = [
        parameter
        for parameter in net.parameters()
        if parameter.ndim > 1 and parameter.requires_grad
    ]
    rest = [parameter for parameter in net.parameters() if parameter.ndim == 1]
    chosen = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 5e-3}, {"params": rest, "weight_decay": 0.0}]
    )
    mean = {name: value.detach().clone() for name, value in net.state_dict().items()}
    start, summed = time.monotonic(), 0.0
    for step in range(steps):
        rate = 4e-3 * min(1, step / 100) * (0.51 + 0.49 * math.cos(math.pi * step / steps))
        for group in chosen.param_groups:
            group["lr"] = rate
        rows = torch.randint(scenes, (batch,))
        x, truth = augment(pictures[rows].float() / 255, boxes[rows])
        value = loss(net, x, truth, kinds[rows])
        chosen.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10)
        chosen.step()
        summed += value.item()
        keep = 0.998 * (1 - math.exp(-step / 300))
        for name, parameter in net.state_dict().items():
            if parameter.dtype.is_floating_point:
                mean[name].lerp_(parameter, 1 - keep)
        if step % 100 == 99:
            print(f"{step + 1}: {summed / 100:.3f}, {time.monotonic() - start:.0f} s", flush=True)
            summed = 0.0
    net.load_state_dict(mean)
    return fuse_all(net)


def fuse_all(net: Detector) -> Detector:
    net.eval()
    for module in list(net.modules()):
        if isinstance(module, Conv):
            module.fuse()
    return net


def load_trained(path: Path) -> Detector:
    """Returns the network with the weights of an exported file."""
    net = fuse_all(Detector())
    values: dict[str, Any] = {
        weight.name: torch.from_numpy(numpy_helper.to_array(weight).copy())
        for weight in onnx.load(path).graph.initializer
    }
    names = net.state_dict()
    net.load_state_dict({name: values[name] for name in names})
    return net


def export(net: Detector, path: Path, size: int) -> None:
    """Writes ONNX with Ultralytics' metadata."""
    net.grid = grid(size)
    torch.onnx.export(
        net,
        (torch.zeros(1, 3, size, size),),
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=["images"],
        output_names=["output0"],
    )
    model = onnx.load(path)
    metadata = {
        "description": "a small detector of edgekit's examples, trained on synthetic shapes",
        "task": "detect",
        "stride": str(max(STRIDES)),
        "batch": "1",
        "imgsz": str([size, size]),
        "names": str(dict(enumerate(CLASSES))),
    }
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, path)
    print(f"{path}: {path.stat().st_size:,} bytes")


def measure_precision(path: Path, size: int) -> Precision:
    """Returns the exported network's precision on scenes that it was not trained on."""
    model = load(path)
    found = recognise(model, file_metadata(path))
    assert isinstance(found, Recognised), found
    names = list(found.head.outputs)
    runs, kept = session(model, outputs=names), Options(score=0.001)
    truths, objects = [], []
    for seed in range(HELD_OUT, HELD_OUT + 300):
        drawn = scene(seed, size)
        maps = dict(zip(names, runs.run(None, {"images": prepared(drawn.picture)}), strict=True))
        objects += detect(found.head, maps, kept)
        truths.append(Truth(drawn.boxes, drawn.classes, np.zeros(len(drawn.classes), bool)))
    return mean_precision(truths, objects)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--export", nargs=2, metavar=("SIZE", "FILE"))
    parser.add_argument("--out", type=Path, default=TRAINED)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scenes", type=int, default=4000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.export:
        export(load_trained(TRAINED), Path(options.export[1]), int(options.export[0]))
        return
    export(train(options.steps, options.batch, options.scenes), options.out, SIZE)
    print(measure_precision(options.out, SIZE))


if __name__ == "__main__":
    main()
