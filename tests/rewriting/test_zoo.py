"""The zoo: every form that people write ends on the DLA, with the same results."""

from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest

from edgekit.dla.judge import judge
from edgekit.network.lowering.layers import layers
from edgekit.network.model import metadata
from edgekit.network.session import session
from edgekit.network.writing import save
from edgekit.placement.forecast import forecast
from edgekit.rewriting.engine.opset import RAISED, raise_opset
from edgekit.rewriting.engine.replay import replay
from edgekit.rewriting.graph import RECIPE_OPERATORS
from edgekit.rewriting.provenance.record import KEY, read_record
from edgekit.rewriting.provenance.verification import claim_of_model, verify
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting import real_nets
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


@cache
def done(name):
    before = ZOO[name].make()
    return before, *rewritten(before)


@pytest.mark.few(30)
@pytest.mark.parametrize("name", ZOO)
def test_what_people_write_ends_on_the_dla(name):
    before, after, _, notes = done(name)
    assert not [note for note in notes if "report" in note]
    assert off(after) == list(ZOO[name].left)
    assert len(off(after)) <= len(off(before))


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


@pytest.mark.few(50)
@pytest.mark.parametrize("name", ZOO)
def test_the_results_stay(name):
    before, after, applied, _ = done(name)
    assert_same(before, after)
    for item in applied:
        assert item.max_error <= 1e-5
        assert item.max_error_float64 <= 1e-9
    assert (after is before) == (applied == ())


@pytest.mark.few(30)
@pytest.mark.parametrize("name", ZOO)
def test_others_can_open_the_file(name, tmp_path):
    _, after, applied, _ = done(name)
    save(after, tmp_path / "out.onnx")
    onnx.checker.check_model(tmp_path / "out.onnx", full_check=True)
    assert metadata(after, KEY) is not None or not applied
    # a mask of 0 and 1 stands there in a few bytes
    assert len(metadata(after, KEY) or "") < 20_000
    opened = onnxruntime.InferenceSession(tmp_path / "out.onnx")  # with all its optimisations
    random = np.random.default_rng(3)
    feed = {value.name: any_values(random, value) for value in opened.get_inputs()}
    plain = session(after, optimise=False).run(None, feed)
    for a, b in zip(plain, opened.run(None, feed), strict=True):
        if a.dtype.kind != "f":
            assert (a == b).all()
            continue
        assert np.abs(a - b).max() <= 1e-5 * (np.abs(a).max() or 1)


@pytest.mark.few(30)
@pytest.mark.parametrize("name", ZOO)
def test_recipes_are_of_operators_that_records_may_have(name):
    before, _, applied, _ = done(name)
    steps = [(item.rewrite, item.anchor) for item in applied if item.rewrite != RAISED]
    recipes = replay(raise_opset(before), steps).recipes().values()
    assert {item.op for item in recipes} <= RECIPE_OPERATORS


@pytest.mark.few(30)
@pytest.mark.parametrize("name", ZOO)
def test_a_rewritten_network_is_not_rewritten_again(name):
    _, after, _, _ = done(name)
    assert rewritten(after)[0] is after


@pytest.mark.few(30)
@pytest.mark.parametrize("name", ZOO)
def test_nothing_is_predicted_to_get_slower(name):
    before, after, _, _ = done(name)
    old, new = (forecast(*judged(model), ORIN) for model in (before, after))
    # what sources differ on may be written otherwise where a free choice of devices loses nothing
    best = [min(one.auto_us, one.gpu_only_us) for one in (old, new)]
    assert new.auto_us <= old.auto_us * 1.0001 or best[1] <= best[0] * 1.0001


@pytest.mark.few(30)
@pytest.mark.parametrize("name", ZOO)
def test_the_record_can_be_repeated(name):
    before, after, applied, _ = done(name)
    if not applied:
        pytest.skip("nothing was rewritten")
    document = verify(before, claim_of_model(after))
    assert document.holds
    assert document.same


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("name", NETS)
def test_networks_of_people_are_one_loadable(name, precision):
    before = getattr(real_nets, name)()
    after, _, notes = rewritten(before, precision=precision)
    assert not [note for note in notes if "report" in note]
    assert off(after, precision=precision) == NETS[name]
    _, judgement = judged(after, precision=precision)
    assert sum(group.retained for group in judgement.candidates) == 1
    assert_same(before, after, tolerance=3e-5)
    assert {item.op for item in read_record(after).recipes} <= RECIPE_OPERATORS


@pytest.mark.parametrize("name", NETS)
def test_on_xavier_only_softmax_stays_on_the_gpu(name):
    before = getattr(real_nets, name)()
    after, _, _ = rewritten(before, XAVIER)
    others = [op for op in off(after, XAVIER) if op != "Softmax"]
    assert others == NETS[name]
    assert_same(before, after, tolerance=3e-5)
