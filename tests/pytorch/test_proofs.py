"""The networks that people bring, exported by both exporters and compared with PyTorch.

Weights are random. Networks of torchvision and timm are skipped where these are not installed.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import edgekit

ORIN = "jetson-agx-orin-64gb"
#: A module that must be named, and the class of it, by network: torchvision's, then timm's.
TORCHVISION = {
    "resnet18": ("layer2.0.downsample", "Sequential"),
    "resnet50": ("layer4.2", "Bottleneck"),
    "mobilenet_v3_large": ("features.4.block.2.fc1", "Conv2d"),
    "efficientnet_b0": ("features.3.1.block.2", "SqueezeExcitation"),
    "convnext_tiny": ("features.5.8.block.0", "Conv2d"),
    "deeplabv3_resnet50": ("classifier.0", "ASPP"),
    "vit_b_16": ("encoder.layers.encoder_layer_11.mlp", "MLPBlock"),
    "swin_t": ("features.5.5.attn", "ShiftedWindowAttention"),
}
TIMM = {
    "mobilenetv3_small_100": ("blocks.3.1.se", "SqueezeExcite"),
    "resnet50": ("layer4.2", "Bottleneck"),
}
#: The least cosine of FP16 with FP32, of each output; less is enough where PyTorch's own FP16 has
#: less. DeepLabV3's has 0.976: with random weights each of its stages makes differences three times
#: as large, and an input rounded to FP16 is enough for a result that is 7 % off.
FP16 = 0.999
exporters = pytest.mark.parametrize("exporter", ["dynamo", "legacy"])


def random_network(package: str, name: str) -> Any:
    """A network with random weights, whose BatchNorms have seen its values as trained ones have.

    Without that the values of a deep network vanish, which FP16 has no numbers for. A matrix that
    begins as zeros would hide all before it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        library = pytest.importorskip(package, reason=f"needs {package}")
        torch.manual_seed(0)
        if package == "timm":
            module = library.create_model(name, pretrained=False)
        else:
            none = {"weights": None}
            if name.startswith("deeplab"):
                none["weights_backbone"] = None
            module = library.models.get_model(name, **none)
        for one in module.modules():
            if isinstance(one, torch.nn.Linear) and not one.weight.any():
                torch.nn.init.normal_(one.weight, std=0.02)
        norms = [one for one in module.modules() if isinstance(one, torch.nn.BatchNorm2d)]
        for one in norms:
            one.momentum = 1.0
        if norms:
            with torch.no_grad():
                module.train()(torch.randn(4, 3, 224, 224))
        return module.eval()


def prove(
    module: Any, inputs: tuple[Any, ...], exporter: str, named: tuple[str, str], out: Path
) -> None:
    """Exports, checks and compiles a network, and compares what it computes with PyTorch.

    Args:
        module: The network.
        inputs: An example.
        exporter: "dynamo" or "legacy".
        named: A module's path, and its class.
        out: The folder of what is compiled.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = edgekit.export(module, inputs, target=ORIN, exporter=exporter)
        agreement = found.agreement
        assert agreement.inputs == 3
        assert agreement.difference <= agreement.tolerance
        checked = edgekit.check(found.file, target=ORIN)
        classes = {one.module: one.kind.rpartition(".")[2] for one in checked.modules}
        path, kind = named
        assert classes[path] == (kind if exporter == "dynamo" else "")
        assert checked.modules[0].layers == checked.summary.layers
        net = edgekit.compile(
            module,
            inputs,
            target=ORIN,
            precision="fp16",
            exporter=exporter,
            out=out,
            calibration={"count": 1},
        )
        wanted, ours = module(*inputs), net(*inputs)
        worst = least = min(cosines(ours, wanted))
        if worst < FP16:
            half = copy.deepcopy(module).half()
            least = min(cosines(half(*(one.half() for one in inputs)), wanted))
    print(
        f"{type(module).__name__}: {exporter}, opset {found.opset}, {checked.summary.layers} "
        f"layers, {agreement.difference:.1e}; FP16 cosine {worst:.6f}"
    )
    assert worst >= min(FP16, least)


def cosines(ours: Any, theirs: Any) -> list[float]:
    """The cosine similarity of each output."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        return [one for name in theirs for one in cosines(ours[name], theirs[name])]
    if isinstance(theirs, tuple):
        return [one for a, b in zip(ours, theirs, strict=True) for one in cosines(a, b)]
    a, b = ours.detach().double().flatten(), theirs.detach().double().flatten()
    return [float(a @ b / (a.norm() * b.norm()))]


@pytest.mark.whole
@exporters
@pytest.mark.parametrize("name", TORCHVISION)
def test_networks_of_torchvision(
    nets: ModuleType, name: str, exporter: str, tmp_path: Path
) -> None:
    module = random_network("torchvision", name)
    prove(module, (nets.torch.randn(1, 3, 224, 224),), exporter, TORCHVISION[name], tmp_path)


@pytest.mark.whole
@exporters
@pytest.mark.parametrize("name", TIMM)
def test_networks_of_timm(nets: ModuleType, name: str, exporter: str, tmp_path: Path) -> None:
    module = random_network("timm", name)
    prove(module, (nets.torch.randn(1, 3, 224, 224),), exporter, TIMM[name], tmp_path)


@pytest.mark.whole
@exporters
@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda nets: (nets.lenet(), (nets.image(),)), ("feat.conv2", "Conv2d")),
        (lambda nets: (nets.Recurrent().eval(), (nets.torch.randn(1, 5, 8),)), ("cells", "LSTM")),
    ],
    ids=["lenet", "lstm"],
)
def test_small_networks(
    nets: ModuleType,
    made: Callable[[ModuleType], tuple[Any, tuple[Any, ...]]],
    named: tuple[str, str],
    exporter: str,
    tmp_path: Path,
) -> None:
    prove(*made(nets), exporter, named, tmp_path)
