"""The rewritten network with other weights: what rewriting the other network would have given."""

from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from edgekit.errors import DataError, ModelError
from edgekit.network.loading.load import canonical, load
from edgekit.network.model import metadata, with_metadata
from edgekit.network.session import session
from edgekit.network.writing import save
from edgekit.rewriting.graph import Recipe
from edgekit.rewriting.provenance import other_weights
from edgekit.rewriting.provenance.other_weights import check_file, needed_weights, reweigh
from edgekit.rewriting.provenance.record import KEY, closure, read_record
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.pipeline.nets import small_net
from tests.rewriting import toys
from tests.rewriting.nets import net, node
from tests.tries import tries

ORIN = get("jetson-agx-orin-64gb")
DOUBLED, HALVES = toys.Doubled(), toys.Halves()


def same(a, b):
    assert a.proto.SerializeToString(deterministic=True) == b.proto.SerializeToString(
        deterministic=True
    )
    assert a.digest == b.digest


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reweigh")
    small_net(folder / "one.onnx")
    small_net(folder / "two.onnx", seed=5)
    return folder


def engine(model):
    after, applied, *_ = rewrite(model, ORIN, precision="fp16")
    assert applied
    return after


def test_other_weights_give_what_rewriting_the_other_model_gives(files, tmp_path):
    one, two = load(files / "one.onnx"), load(files / "two.onnx")
    after = engine(one)
    same(reweigh(after, two), engine(two))
    same(reweigh(after, one), after)
    # also from the file, and from a model that was rewritten likewise
    save(after, tmp_path / "out.onnx")
    same(reweigh(load(tmp_path / "out.onnx"), two), engine(two))
    same(reweigh(after, engine(two)), engine(two))
    answers = [
        session(m).run(None, {"x": np.ones((1, 3, 16, 16), np.float32)})[0]
        for m in (two, reweigh(after, two), one)
    ]
    np.testing.assert_allclose(answers[1], answers[0], rtol=0, atol=1e-5)
    assert np.abs(answers[2] - answers[0]).max() > 1e-3


@settings(max_examples=tries(25))
@given(
    order=st.permutations(["one", "two", "three"]),
    rounds=st.integers(1, 3),
    channels=st.sampled_from([3, 300]),
    seed=st.integers(1, 99),
)
def test_any_number_of_rewritings_is_derived_again(order, rounds, channels, seed):
    def often(model):
        for anchor in order[:rounds]:
            model = toys.taken(model, (DOUBLED, anchor))
        return model

    one, two = toys.scales(0, channels), toys.scales(seed, channels)
    after = often(one)
    same(reweigh(after, two), often(two))
    assert read_record(after).original == one.digest
    assert read_record(reweigh(after, two)).original == two.digest
    # from a model between two of the rewritings, too
    between = toys.taken(two, (DOUBLED, order[0]))
    same(reweigh(after, between), often(two))


class Counted(dict):
    """Counts what is looked up."""

    queries = 0

    def get(self, key, default=None):
        self.queries += 1
        return super().get(key, default)


def test_what_many_weights_are_derived_from_is_visited_once():
    names = [f"w{i}" for i in range(300)]
    makers = Counted({b: Recipe("Neg", (a,), (b,), {}) for a, b in pairwise(names)})
    assert closure(names, makers) == names
    assert closure(names[::-1], makers) == names
    assert closure(names[5:], makers, {"w4"}) == names[4:]
    assert makers.queries < 8 * len(names)


def test_weights_in_a_chain_are_requested_together(monkeypatch):
    after = toys.scales()
    for anchor in ("one", "two", "three"):
        after = toys.taken(after, (DOUBLED, anchor))
    derived = [item for item in read_record(after).weights.values() if item.recipe]
    closures = []
    monkeypatch.setattr(
        other_weights,
        "closure",
        lambda roots, *rest: closures.append(len(roots)) or closure(roots, *rest),
    )
    same(reweigh(after, toys.scales()), after)
    assert closures == [len(derived)] * 2 == [3] * 2


def test_two_outputs_of_one_recipe():
    same(
        reweigh(toys.taken(toys.product(), (HALVES, "dense")), toys.product(3)),
        toys.taken(toys.product(3), (HALVES, "dense")),
    )


def test_weights_that_wait_are_not_computed_before_they_are_requested():
    """An exporter's FP16 weight behind a Cast stays a promise, and its recipe with it."""

    def halves(seed):
        # more than is folded while loading
        wide = np.random.default_rng(seed).standard_normal((1, 1 << 18, 1, 4)).astype(np.float16)
        return net(
            [node("Cast", "h", "s", to=onnx.TensorProto.FLOAT), node("Mul", "x s", "y", "one")],
            {"x": (1, 1 << 18, 1, 4)},
            ["y"],
            {"h": wide},
        )

    after = toys.taken(halves(0), (DOUBLED, "one"))
    made = reweigh(after, halves(1))
    assert type(made.weights).__name__ == "Weights"
    assert made.weights.entries["s:twice:whole"].digest is None
    same(made, toys.taken(halves(1), (DOUBLED, "one")))


def test_a_model_that_was_not_rewritten_just_gets_the_weights():
    same(reweigh(toys.product(), toys.product(3)), toys.product(3))


def changed(source, path, change):
    proto = onnx.load(source)
    for tensor in list(proto.graph.initializer):
        value = change(tensor.name, numpy_helper.to_array(tensor))
        proto.graph.initializer.remove(tensor)
        if value is not None:
            proto.graph.initializer.append(numpy_helper.from_array(value, tensor.name))
    onnx.save(proto, path)
    return path


def test_every_weight_that_does_not_fit_is_named_before_the_graph_is_read(files, tmp_path):
    after = engine(load(files / "one.onnx"))

    def broken(name, value):
        if name == "fc.w":  # read by a recipe alone
            return value[:, :16]
        if name == "conv2.w":
            return value.astype(np.float64)
        return None if name == "bn.mean" else value

    path = changed(files / "two.onnx", tmp_path / "broken.onnx", broken)
    with pytest.raises(DataError) as caught:
        check_file(path, after)
    assert caught.value.code == "refit.mismatch"
    assert caught.value.where == str(path)
    for part in ("fc.w (float32 [10, 16]", "conv2.w (float64", "bn.mean (missing)"):
        assert part in caught.value.hint
    check_file(files / "two.onnx", after)
    check_file(files / "one.onnx", load(files / "one.onnx"))
    save(after, tmp_path / "out.onnx")
    check_file(tmp_path / "out.onnx", after)


def test_a_loaded_model_of_another_network_is_refused():
    after = toys.taken(toys.scales(), (DOUBLED, "one"), (DOUBLED, "two"))
    with pytest.raises(DataError) as caught:
        reweigh(after, toys.scales(channels=299))
    assert caught.value.code == "refit.mismatch"
    assert "s (float32 [1, 299, 1, 1]" in caught.value.hint
    with pytest.raises(DataError, match="missing from the file"):
        reweigh(after, toys.product())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"op":"Add"', '"op":"Sub"'),  # another value: whoever signs the file answers for it
        ('"op":"Add","inputs":["s","s"]', '"op":"Concat","inputs":["s","s"]'),
        ('"op":"Mul"', '"op":"Gather"'),
        ('"op":"Mul"', '"op":"Transpose"'),
    ],
)
def test_recipes_that_cannot_be_true_end_in_one_line(old, new):
    after = toys.taken(toys.scales(), (DOUBLED, "one"))
    text = metadata(after, KEY)
    assert old in text
    hostile = with_metadata(after, KEY, text.replace(old, new))
    if new.endswith('"Sub"'):
        assert not reweigh(hostile, toys.scales(1)).weights["s:twice:whole"].any()
        return
    with pytest.raises(ModelError) as caught:
        reweigh(hostile, toys.scales(1))
    assert "\n" not in caught.value.message


def test_weights_cut_away_are_not_requested():
    whole = toys.taken(toys.scales(), (DOUBLED, "one"), (DOUBLED, "three"))
    part = canonical(whole.proto, None, weights=whole.weights, outputs=["a"])
    assert set(needed_weights(part)) == {"s"}
    other = toys.scales(3)
    expected = reweigh(whole, other).weights["s:twice:whole"]
    assert np.array_equal(reweigh(part, other).weights["s:twice:whole"], expected)
