"""The zoo: every form that people write ends on the DLA, with the same results."""

import numpy as np
import onnx
import onnxruntime
import pytest

from edgekit.dla.judge import judge
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers
from edgekit.network.model import metadata
from edgekit.network.session import session
from edgekit.network.writing import save
from edgekit.placement.forecast import forecast
from edgekit.rewriting.engine.opset import RAISED, raise_opset
from edgekit.rewriting.engine.replay import match_steps
from edgekit.rewriting.graph import RewriteGraph, emit
from edgekit.rewriting.provenance.other_weights import reweigh
from edgekit.rewriting.provenance.record import KEY, read_record, with_record
from edgekit.rewriting.provenance.verification import claim_of_model, verify
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting import real_nets, toys
from tests.rewriting.nets import any_values, assert_same
from tests.rewriting.zoos import ZOO

ORIN, XAVIER = get("jetson-agx-orin-64gb"), get("jetson-agx-xavier")
BOARDS = {"int8": (ORIN, "int8"), "xavier": (XAVIER, "fp16")}
NETS = {
    "yolo_v5": ["Transpose", "Transpose"],  # each one shuffle with the reshape before it
    "yolo_v8": ["Reshape", "Reshape", "Concat"],
    "mobilenet_v3": ["Reshape"],
    "resnet_of_torchvision": ["Gemm"],
    "unet": [],
    "nhwc_classifier": ["Reshape"],
    "audio_1d": ["Reshape", "Reshape"],
}


def predicted(target):
    return lambda network, judgement: forecast(network, judgement, target)


def rewritten(model, target=ORIN, precision="fp16", **options):
    return rewrite(model, target, precision=precision, cost=predicted(target), **options)[:3]


def judged(model, target=ORIN, precision="fp16"):
    network = layers(model)
    return network, judge(network, target, precision=precision)


def off(model, target=ORIN, precision="fp16"):
    """Operators behind what stays off the DLA, kept constants too."""
    network, judgement = judged(model, target, precision)
    refused = [la.op for la in network.layers if not judgement.verdicts[la.name].placeable]
    return refused + [f"{la.op} (constant)" for la in network.constants]


def other_values(model):
    """The same network with other weights."""
    values = {
        name: np.asarray(value * 1.5 + 0.25, value.dtype) if value.dtype.kind == "f" else value
        for name, value in model.weights.items()
    }
    return canonical(model.proto, None, weights=values)


def assert_refits(before, after, applied):
    """Another model's weights give what the same steps make of the other model."""
    other = other_values(before)
    graph, again = RewriteGraph(raise_opset(other)), []
    steps = [(item.rewrite, item.anchor) for item in applied if item.rewrite != RAISED]
    for step in match_steps(graph, steps):
        graph.apply(step)
        again.append(toys.applied(step))
    expected = with_record(emit(graph), graph, again, original=other)
    made = reweigh(after, other)
    assert made.proto.SerializeToString(deterministic=True) == expected.proto.SerializeToString(
        deterministic=True
    )
    assert made.digest == expected.digest
    assert reweigh(after, before).digest == after.digest


def assert_others_open(model, path):
    """onnx checks the file, and ONNX Runtime with all its optimisations computes the same."""
    save(model, path)
    onnx.checker.check_model(path, full_check=True)
    opened = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(3)
    feed = {value.name: any_values(random, value) for value in opened.get_inputs()}
    plain = session(model, optimise=False).run(None, feed)
    for a, b in zip(plain, opened.run(None, feed), strict=True):
        if a.dtype.kind != "f":
            assert (a == b).all()
            continue
        assert np.abs(a - b).max() <= 1e-5 * (np.abs(a).max() or 1)


def assert_not_slower(before, after):
    old, new = (forecast(*judged(model), ORIN) for model in (before, after))
    # what sources differ on may be written otherwise where a free choice of devices loses nothing
    best = [min(one.auto_us, one.gpu_only_us) for one in (old, new)]
    assert new.auto_us <= old.auto_us * 1.0001 or best[1] <= best[0] * 1.0001


@pytest.mark.few(40)
@pytest.mark.parametrize("name", ZOO)
def test_what_people_write_ends_on_the_dla(name, tmp_path):
    before = ZOO[name].make()
    after, applied, notes = rewritten(before)
    assert not [note for note in notes if "report" in note]
    assert off(after) == list(ZOO[name].left)
    assert len(off(after)) <= len(off(before))
    assert_same(before, after)
    for item in applied:
        assert item.max_error <= 1e-5
        assert item.max_error_float64 <= 1e-9
    assert_not_slower(before, after)
    assert rewritten(after)[0] is after
    if not applied:
        assert after is before
        assert read_record(after) is None
        return
    # a mask of 0 and 1 stands there in a few bytes
    assert len(metadata(after, KEY)) < 20_000
    assert_others_open(after, tmp_path / "out.onnx")
    repeated = verify(before, claim_of_model(after))
    assert repeated.holds
    assert repeated.same
    assert_refits(before, after, applied)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("name", "where"), [(n, w) for n, e in ZOO.items() for w in BOARDS if getattr(e, w) is not None]
)
def test_with_int8_and_on_xavier(name, where):
    before, left = ZOO[name].make(), getattr(ZOO[name], where)
    after, _, notes = rewritten(before, *BOARDS[where])
    assert not [note for note in notes if "report" in note]
    assert off(after, *BOARDS[where]) == list(left)
    assert_same(before, after)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("name", NETS)
def test_networks_of_people_are_one_loadable(name, precision):
    before = getattr(real_nets, name)()
    after, applied, notes = rewritten(before, precision=precision)
    assert not [note for note in notes if "report" in note]
    assert off(after, precision=precision) == NETS[name]
    _, judgement = judged(after, precision=precision)
    assert sum(group.retained for group in judgement.candidates) == 1
    assert_same(before, after, tolerance=3e-5)
    if precision == "fp16":
        assert_refits(before, after, applied)


@pytest.mark.whole
@pytest.mark.parametrize("name", NETS)
def test_on_xavier_only_softmax_stays_on_the_gpu(name):
    before = getattr(real_nets, name)()
    after, _, _ = rewritten(before, XAVIER)
    others = [op for op in off(after, XAVIER) if op != "Softmax"]
    assert others == NETS[name]
    assert_same(before, after, tolerance=3e-5)
