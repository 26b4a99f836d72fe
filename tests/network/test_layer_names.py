"""What a glob names: layers, ONNX nodes or modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.dla.judge import judge
from edgekit.errors import UsageError
from edgekit.network.layer_names import layers_matching, layers_named, unmatched_error
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.model import Network
from edgekit.placement.explanation import find_layer
from edgekit.placement.gpu_reasons import gpu_reasons
from edgekit.placement.inputs import resolve_pins
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import Options, Pin
from edgekit.targets.loader import get
from tests.network.onnx_making import conv_net, write
from tests.network.torch_files import dynamo_nodes, lenet


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return layers(load(lenet(tmp_path_factory.mktemp("lenet"), dynamo_nodes())))


def of(network: Network, *modules: str) -> set[str]:
    """Names of the layers of these modules."""
    return {layer.name for layer in network.layers if layer.module in modules}


@pytest.mark.parametrize(
    ("glob", "modules"),
    [
        ("feat.conv1", ["feat.conv1"]),
        # a module is all that it computes, its own operators included
        ("feat", ["feat", "feat.conv1", "feat.conv2"]),
        ("feat.*", ["feat", "feat.conv1", "feat.conv2"]),
        ("feat.conv?", ["feat.conv1", "feat.conv2"]),
        ("*.conv1", ["feat.conv1"]),
        ("classifier.[02]", ["classifier.0", "classifier.2"]),
        ("class*", ["classifier.0", "classifier.1", "classifier.2"]),
        ("fea", []),
        ("feat.conv", []),
        ("feat.conv1.*.x", []),
        ("", []),
        (".*", []),
    ],
)
def test_module_globs(network: Network, glob: str, modules: list[str]) -> None:
    assert set(layers_matching(network, glob)) == of(network, *modules)
    assert layers_named(network, [glob], strict=False) == of(network, *modules)


def test_names_of_layers_come_before_nodes_and_these_before_modules(network: Network) -> None:
    assert layers_matching(network, "n0") == ("n0",)
    # n5, the Flatten, has no layer of its own name
    (flatten,) = layers_matching(network, "n5")
    assert flatten.startswith("n5 + ")
    assert set(layers_matching(network, "*")) == {layer.name for layer in network.layers}


def test_pins_take_modules_and_the_later_one_wins(network: Network) -> None:
    pins = resolve_pins(network, Options(pins=(Pin("feat.*", "DLA"), Pin("feat.conv2", "GPU"))))
    assert {name for name, device in pins.items() if device == "GPU"} == of(network, "feat.conv2")
    assert {name for name, device in pins.items() if device == "DLA"} == of(
        network, "feat", "feat.conv1"
    )


def test_a_report_says_which_module_was_pinned(network: Network) -> None:
    target = get("jetson-agx-orin-64gb")
    judgement = judge(network, target, precision="fp16", tensorrt=target.tensorrt)
    query = PlacementQuery(
        network, judgement, target, "fp16", None, Options(pins=(Pin("feat.*", "GPU"),))
    )
    (pinned,) = [
        one
        for one in gpu_reasons(query.plan(), network, judgement, target)
        if one.rule == "pinned to the GPU"
    ]
    assert {one.name for one in pinned.layers} == of(network, "feat", "feat.conv1", "feat.conv2")
    assert {one.message for one in pinned.layers} == {"pin feat.* puts it on the GPU"}


@pytest.mark.parametrize(
    ("glob", "near"),
    [
        ("faet.*", "'feat'"),
        ("feat.conv3", "'feat.conv1'"),
        ("clasifier", "'classifier'"),
        ("*.conv9", "conv"),
        ("CLASSIFIER.2", "'classifier.2'"),
    ],
)
def test_a_glob_that_matches_nothing_names_the_nearest(
    network: Network, glob: str, near: str
) -> None:
    with pytest.raises(UsageError, match="no layer, ONNX node or module") as caught:
        resolve_pins(network, Options(pins=(Pin(glob, "GPU"),)))
    assert caught.value.code == "plan.pin"
    assert near in caught.value.hint
    with pytest.raises(UsageError) as caught:
        layers_named(network, [glob])
    assert caught.value.code == "calibration.fp16"
    assert near in caught.value.hint


def test_without_a_near_one_some_are_listed(tmp_path: Path) -> None:
    network = layers(load(write(conv_net(), tmp_path)))
    error = unmatched_error("???", network, what="pin", code="plan.pin")
    assert error.message == "pin '???' matches no layer or ONNX node"
    assert "'conv', 'relu'" in error.hint


def test_why_is_of_one_layer(network: Network) -> None:
    assert find_layer(network, "feat.conv2").name == "n3"
    assert find_layer(network, "*er.1").name == "n7"
    with pytest.raises(UsageError) as caught:
        find_layer(network, "feat")
    assert caught.value.code == "layer.several"
    assert caught.value.hint == "name one of n0, n1, n2, n3, n4"
    with pytest.raises(UsageError) as caught:
        find_layer(network, "feat.conv9")
    assert caught.value.code == "layer.unknown"
    assert "feat.conv1" in caught.value.hint
