"""The nine light networks: they tell inputs apart and survive FP16's range; seeds rule them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.network import zoo
from edgekit.network.model import Model
from edgekit.network.session import session
from edgekit.network.source import BUILTIN_NAMES
from edgekit.network.synthetic import synthetic_inputs
from edgekit.network.zoo import _Filler, builtin

# each takes seconds; of some tests the smallest stands for all
QUICK = ("light_squeezenet", "light_inception_v1", "light_resnet50", "light_shufflenet")
# light_vgg19 takes as long as all the others; like light_zfnet512 it has no layer that AlexNet
# lacks. All are filled in tests/contracts/test_networks.py, too
LARGE = sorted(set(BUILTIN_NAMES) - {*QUICK, "light_vgg19", "light_zfnet512"})
ALSO = {"light_bvlc_alexnet": "light_alexnet"}
KINDS = ("image", "normal", "uniform", "centred")
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module", params=QUICK)
def model(request: pytest.FixtureRequest) -> Model:
    return builtin(request.param, seed=0)


@pytest.fixture(scope="module")
def running(model: Model) -> Any:
    return session(model)


def batch(model: Model, kind: str, count: int) -> list[dict[str, Array]]:
    if kind == "image":
        return list(synthetic_inputs(model, count, seed=0))
    value = model.proto.graph.input[0]
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    items = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        draws = {"normal": rng.standard_normal, "uniform": rng.random}
        centred = kind == "centred"
        data = rng.uniform(-1, 1, shape) if centred else draws[kind](shape)
        items.append({value.name: data.astype(np.float32)})
    return items


def cosines(rows: Array) -> Array:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray((unit @ unit.T)[np.triu_indices(len(rows), 1)])


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_distinguished(model: Model, running: Any, kind: str) -> None:
    assert_distinct(model, running, kind, 16)


def assert_distinct(model: Model, running: Any, kind: str, count: int) -> None:
    outputs = np.stack([running.run(None, x)[0].ravel() for x in batch(model, kind, count)])
    assert np.isfinite(outputs).all()
    found = cosines(outputs.astype(np.float64))
    classes = len(set(outputs.argmax(axis=1).tolist()))
    assert classes >= count // 2
    limit = 0.3 if kind == "image" else 0.5
    assert found.mean() < limit
    if kind == "image":  # of 120 pairs a few look alike
        assert np.mean(found < 0.5) > 0.85


@pytest.mark.few(1)
def test_activations_stay_in_the_range_of_fp16(model: Model) -> None:
    assert_in_range(model, KINDS)


def assert_in_range(model: Model, kinds: tuple[str, ...]) -> None:
    names = [output for node in model.proto.graph.node for output in node.output[:1]]
    run = session(model, outputs=names, optimise=False)
    inputs = [batch(model, kind, 1)[0] for kind in kinds]
    peak = max(float(np.abs(value).max()) for x in inputs for value in run.run(names, x))
    assert peak < 1000


@pytest.mark.few(1)
def test_the_graph_is_the_shipped_one(model: Model) -> None:
    graph = model.proto.graph
    assert [value.name for value in graph.input] in (["data_0"], ["gpu_0/data_0"])
    kinds = {node.op_type for node in graph.node}
    assert "ConstantOfShape" not in kinds
    assert "Conv" in kinds
    read = {name for node in graph.node for name in node.input}
    assert {tensor.name for tensor in graph.initializer} <= read


@pytest.mark.few(1)
def test_convolutions_lose_nothing_to_int8_per_channel(model: Model) -> None:
    for node in model.proto.graph.node:
        if node.op_type == "Conv":
            rows = np.asarray(model.weights[node.input[1]]).reshape(-1, 1)
            rows = rows.reshape(model.weights[node.input[1]].shape[0], -1)
            steps = rows / (np.abs(rows).max(axis=1, keepdims=True) / 127)
            assert np.abs(steps - np.rint(steps)).max() < 1e-3


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_networks_are_the_same_in_all_of_it(name: str) -> None:
    # in one test each and less often: filling one takes longer than all that is asked of it
    model = builtin(ALSO.get(name, name), seed=0)
    assert model.source == f"builtin:{name}?seed=0"
    assert_distinct(model, session(model), "image", 5)
    assert_in_range(model, ("image", "centred"))
    test_the_graph_is_the_shipped_one(model)
    test_convolutions_lose_nothing_to_int8_per_channel(model)


@pytest.mark.whole
def test_same_seed_same_bytes_whatever_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    # filled each time, not read from what the run keeps
    monkeypatch.setattr(zoo, "fill", lambda g, s, r: _Filler(g, s, r).run())
    first = builtin("light_squeezenet", seed=3)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    again = builtin("light_squeezenet", seed=3)
    other = builtin("light_squeezenet", seed=4)
    assert first.digest == again.digest
    assert first.digest != other.digest
    assert first.source == "builtin:light_squeezenet?seed=3"
    assert not np.array_equal(first.weights["conv10_w_0"], other.weights["conv10_w_0"])


def test_unknown_name_gets_the_nearest() -> None:
    assert len(BUILTIN_NAMES) == 9
    with pytest.raises(UsageError, match="light_resnet50") as caught:
        builtin("light_resnet_50")
    assert caught.value.code == "model.unknown_builtin"
    with pytest.raises(UsageError, match="known are light_bvlc_alexnet"):
        builtin("???")


def test_the_layers_of_a_resnet_are_called_by_stage_block_and_convolution() -> None:
    names = [node.name for node in builtin("light_resnet50").proto.graph.node]
    assert len(set(names)) == len(names) == 176
    assert names[:5] == ["conv1", "bn1", "relu1", "maxpool", "stage2.block1.conv1"]
    assert names[-4:] == ["avgpool", "flatten", "fc", "softmax"]
    blocks = Counter(name.rpartition(".")[0] for name in names if name.endswith(".conv3"))
    per_stage = Counter(block.partition(".")[0] for block in blocks)
    assert per_stage == {"stage2": 3, "stage3": 4, "stage4": 6, "stage5": 3}
    shortcuts = [name for name in names if name.endswith("shortcut.conv")]
    assert shortcuts == [f"stage{stage}.block1.shortcut.conv" for stage in range(2, 6)]
