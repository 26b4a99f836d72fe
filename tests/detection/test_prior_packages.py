"""SSD, RetinaNet, RetinaFace and YOLOX exported here by both exporters; torchvision's generators
of priors and its suppression. ``prior_networks`` tells what is rebuilt.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.detection.published_priors import published
from edgekit_device.detection.nms import suppress
from tests.detection.prior_models import found, saved
from tests.detection.prior_networks import exported

#: What an export needs, by network.
NEEDS = {"ssd": "torchvision", "retinanet": "torchvision", "yolox": "yolox", "retinaface": "torch"}
#: PyTorch's newer exporter takes no suppression.
CASES = [
    ("ssd_nms", (1, 3, 80, 48), "legacy"),
    ("ssd_decoded", (1, 3, 60, 100), "legacy"),
    ("ssd_decoded", (1, 3, 60, 100), "dynamo"),
    ("retinanet_nms", (1, 3, 96, 64), "legacy"),
    ("retinaface", (1, 3, 64, 128), "dynamo"),
    ("retinaface", (3, 3, 100, 60), "legacy"),
    ("retinaface_decoded", (1, 3, 100, 60), "legacy"),
    ("retinaface_decoded", (3, 3, 64, 128), "dynamo"),
    ("yolox", (1, 3, 96, 64), "dynamo"),
    ("yolox", (1, 3, 96, 64), "legacy"),
    ("yolox_decoded", (3, 3, 64, 128), "dynamo"),
    ("yolox_decoded", (3, 3, 64, 128), "legacy"),
]


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "shape", "exporter"), CASES)
def test_both_exporters(name: str, shape: tuple[int, ...], exporter: str, tmp_path: Path) -> None:
    """Recognised and, by that, proved element by element."""
    family, _, form = name.partition("_")
    pytest.importorskip("torch")
    pytest.importorskip(NEEDS[family])
    recognised = found(saved(exported(name, shape, exporter), tmp_path))
    assert recognised.head.family.lower() == family
    assert bool(recognised.head.assumed) == (form == "")


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "priors", "scale"),
    [
        ("ssd300_vgg16", 8732, (400 / 300, 320 / 300)),
        ("ssdlite320_mobilenet_v3_large", 3234, (400 / 320, 320 / 320)),
        ("retinanet_resnet50_fpn", 9 * (40 * 52 + 20 * 26 + 10 * 13 + 5 * 7 + 3 * 4), (1, 1)),
    ],
)
def test_torchvisions_whole_networks(
    name: str, priors: int, scale: tuple[float, float], tmp_path: Path
) -> None:
    """As its users export them: a list of one picture [3, height, width] of any size, which is
    resized inside, and by RetinaNet padded to 320x416.
    """
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    sizes = {"min_size": 320, "max_size": 400} if name.startswith("retinanet") else {}
    network = models.get_model(name, weights=None, weights_backbone=None, **sizes).eval()
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, ([torch.rand(3, 320, 400)],), file, dynamo=False, opset_version=17
        )
    model = saved(onnx.load_model_from_string(file.getvalue()), tmp_path)
    head = found(model).head
    assert head.prior is not None
    assert head.prior.scale == pytest.approx(scale)
    rows = 0
    for level in head.prior.levels:
        _, channels, height, width = model.graph.shape(level.boxes)
        assert channels == 4 * len(level.priors)
        rows += height * width * len(level.priors)
    assert rows == priors


@pytest.mark.parametrize(
    ("name", "width", "height"),
    [
        ("ssd300_vgg16", 300, 300),
        ("ssdlite320_mobilenet_v3_large", 320, 320),
        ("ssdlite320_mobilenet_v3_large", 480, 320),
        ("retinanet_resnet50_fpn", 640, 480),
        ("retinanet_resnet50_fpn", 1088, 800),
    ],
)
def test_published_priors_are_torchvisions(name: str, width: int, height: int) -> None:
    """1088x800 has maps whose steps differ along x and y: 64 and 61 pixels."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    from torchvision.models.detection import retinanet
    from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
    from torchvision.models.detection.image_list import ImageList

    if name == "ssd300_vgg16":
        generator = DefaultBoxGenerator(
            [[2], [2, 3], [2, 3], [2, 3], [2], [2]],
            scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
            steps=[8, 16, 32, 64, 100, 300],
        )
        sides = [(38, 38), (19, 19), (10, 10), (5, 5), (3, 3), (1, 1)]
    elif name.startswith("ssdlite"):
        generator = DefaultBoxGenerator([[2, 3]] * 6, min_ratio=0.2, max_ratio=0.95)
        sides = [(-(-height // (16 << at)), -(-width // (16 << at))) for at in range(6)]
    else:
        generator = retinanet._default_anchorgen()
        sides = [(-(-height // (8 << at)), -(-width // (8 << at))) for at in range(5)]
    sizes = [
        (each, *side)
        for each, side in zip(generator.num_anchors_per_location(), sides, strict=True)
    ]
    pictures = ImageList(torch.zeros(1, 3, height, width), [(height, width)])
    theirs = generator(pictures, [torch.zeros(1, 1, *side) for side in sides])[0].numpy()
    network = published(sizes, 0, True, width, height)
    assert network is not None
    assert network.name == f"torchvision's {name}"
    ours = []
    for (priors, step), (high, wide) in zip(network.places, sides, strict=True):
        first = np.array(priors)
        for row in range(high):
            for column in range(wide):
                centre = first[:, :2] + np.array([column * step[0], row * step[1]])
                half = first[:, 2:] / 2
                ours.append(np.concatenate((centre - half, centre + half), axis=1))
    np.testing.assert_allclose(np.concatenate(ours), theirs, rtol=1e-5, atol=1e-3)


def test_suppression_is_torchvisions() -> None:
    torch = pytest.importorskip("torch")
    ops = pytest.importorskip("torchvision.ops")
    random = np.random.default_rng(0)
    centre, half = random.uniform(0, 300, (3000, 2)), random.uniform(4, 40, (3000, 2))
    boxes = np.concatenate((centre - half, centre + half), axis=1).astype(np.float32)
    scores = random.random(3000).astype(np.float32)
    classes = random.integers(0, 3, 3000)
    ours = suppress(boxes, scores, classes, 0.45, 10_000)
    theirs = ops.batched_nms(*map(torch.from_numpy, (boxes, scores, classes)), 0.45).numpy()
    assert 50 <= len(theirs) < 2000
    assert ours.tolist() == theirs.tolist()
