"""A refit changes only change weights: other constants or attributes are refused by name."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from edgekit.errors import DataError, ModelError
from edgekit.network.loading.load import load
from edgekit.network.model import metadata, with_metadata
from edgekit.network.writing import save
from edgekit.rewriting.engine import replay
from edgekit.rewriting.provenance.other_weights import check_network, reweigh
from edgekit.rewriting.provenance.record import KEY, digest_parameters, read_record
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.pipeline.nets import small_net
from tests.rewriting import toys
from tests.rewriting.nets import net, node, rewrite_of, weight

ORIN = get("jetson-agx-orin-64gb")
FORMS = {
    "clip": [node("Clip", "a low high", "y")],
    "reduce": [node("ReduceSum", "a axes", "y", keepdims=1)],
    "resize": [node("Resize", "a  scales", "y", mode="nearest")],
    "pad": [node("Pad", "a pads", "y")],
    "mask": [node("Where", "mask a zero", "y")],
    "factor": [node("Mul", "a zero", "b"), node("Add", "b a", "y")],
}
FORMS["resize"][0].input[:] = ["a", "", "scales"]
CONSTANTS = {
    "low": np.float32(-1),
    "high": np.float32(3),
    "zero": np.float32(0.5),
    "axes": [2, 3],
    "scales": np.float32([1, 1, 2, 2]),
    "pads": [0, 0, 1, 1, 0, 0, 1, 1],
    "mask": np.eye(8, dtype=bool),
}
OTHERS = {
    "low": np.float32(-2),
    "high": np.float32(np.inf),
    "zero": np.float32(0.25),
    "axes": [1, 3],
    "scales": np.float32([1, 1, 4, 1]),
    "pads": [0, 0, 0, 0, 0, 0, 2, 2],
    "mask": ~np.eye(8, dtype=bool),
}


def formed(form, seed=0, **changed):
    """A scale that a rewrite changes, and behind it what reads constants."""
    read = {name for item in FORMS[form] for name in item.input}
    values = {n: changed.get(n, v) for n, v in CONSTANTS.items() if n in read}
    return net(
        [node("Mul", "x s", "a", "one"), *FORMS[form]],
        {"x": (1, 64, 8, 8)},
        ["y"],
        {"s": weight(1, 64, 1, 1, seed=seed), **values},
    )


def refused(rewritten, other):
    with pytest.raises(DataError) as caught:
        reweigh(rewritten, other)
    assert caught.value.code == "refit.mismatch"
    assert "\n" not in caught.value.message
    return caught.value.hint


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("clip", "low"),
        ("clip", "high"),
        ("reduce", "axes"),
        ("resize", "scales"),
        ("pad", "pads"),
        ("mask", "mask"),
        ("mask", "zero"),
        ("factor", "zero"),
    ],
)
@pytest.mark.parametrize("seed", [0, 3])
def test_a_constant_that_differs_is_named(form, name, seed, tmp_path):
    before = formed(form)
    save(toys.taken(before, (toys.Doubled(), "one")), tmp_path / "out.onnx")
    # only the rewritten file is there, not the original
    after, other = load(tmp_path / "out.onnx"), formed(form, seed, **{name: OTHERS[name]})
    assert f"{name} (" in refused(after, other)
    assert f"{name} (" in refused(before, other)
    for model in (after, before):
        weight_name = next(iter(model.weights))
        made = reweigh(model, formed(form, 3)).weights[weight_name]
        assert not np.array_equal(made, model.weights[weight_name])


def test_a_value_that_a_rewrite_read_and_took_away_is_still_compared():
    def swish(six=6.0, seed=0):
        return net(
            [
                node("Conv", "x w", "c", "conv"),
                node("Add", "c three", "d"),
                node("Clip", "d zero six", "e"),
                node("Mul", "c e", "f"),
                node("Div", "f six", "g"),
                node("Conv", "g v", "y"),
            ],
            {"x": (1, 3, 8, 8)},
            ["y"],
            {
                "w": weight(8, 3, 1, 1, seed=seed),
                "v": weight(8, 8, 1, 1, seed=seed + 1),
                "three": 3.0,
                "zero": 0.0,
                "six": six,
            },
        )

    after = toys.taken(swish(), ("hard-swish", "clip_e"))
    assert "six" not in [t.name for t in after.proto.graph.initializer]
    assert "six (here 7.0)" in refused(after, swish(7.0))
    assert reweigh(after, swish(seed=5)).digest == (
        toys.taken(swish(seed=5), ("hard-swish", "clip_e")).digest
    )


def test_other_attributes_are_refused_and_other_names_are_not(tmp_path):
    small_net(tmp_path / "one.onnx")
    small_net(tmp_path / "two.onnx", seed=5)
    before = load(tmp_path / "one.onnx")
    after, _, *_ = rewrite(before, ORIN, precision="fp16")
    proto = onnx.load(tmp_path / "two.onnx")
    for index, item in enumerate(proto.graph.node):
        item.name = f"renamed_{index}"
    onnx.save(proto, tmp_path / "renamed.onnx")
    assert reweigh(after, load(tmp_path / "renamed.onnx")).weights
    proto.graph.node[1].attribute.add(name="epsilon", f=0.5, type=onnx.AttributeProto.FLOAT)
    onnx.save(proto, tmp_path / "other.onnx")
    for model in (before, after):
        assert "BatchNormalization (1 fewer)" in refused(model, load(tmp_path / "other.onnx"))


def test_a_constant_of_another_name_but_the_same_value_will_do():
    def named(high):
        return net(
            [node("Mul", "x s", "a", "one"), node("Clip", f"a low {high}", "y")],
            {"x": (1, 64, 2, 2)},
            ["y"],
            {"s": weight(1, 64, 1, 1), "low": np.float32(-1), high: np.float32(3)},
        )

    after = toys.taken(named("onnx::Clip_7"), (toys.Doubled(), "one"))
    made = reweigh(after, named("onnx::Clip_9"))
    assert digest_parameters(made) == digest_parameters(after)


def scaled(factor, seed=0):
    """A convolution and a number that its weights can take in."""
    return net(
        [node("Mul", "x k", "c", "scale"), node("Conv", "c w", "y", "conv")],
        {"x": (1, 3, 8, 8)},
        ["y"],
        {"w": weight(8, 3, 1, 1, seed=seed), "k": factor},
    )


def test_a_number_that_only_recipes_read_is_derived_again():
    after = toys.taken(scaled(0.5), ("fold-scale-before", "conv"))
    assert "k" in read_record(after).originals
    made = reweigh(after, scaled(0.25, 4))
    assert made.digest == toys.taken(scaled(0.25, 4), ("fold-scale-before", "conv")).digest
    # the same of a model that was rewritten likewise
    assert reweigh(after, made).digest == made.digest


def careful(graph, at):
    """Folds a factor of one half alone: its value decides, though a recipe reads it, too."""
    factor = graph.producer(at.inputs[0]).inputs[1]
    return FOLD.at(graph, at) if graph.scalar(factor) == 0.5 else iter(())


FOLD = rewrite_of("fold-scale-before")
CAREFUL = replace(FOLD, name="careful", at=careful)


def test_a_number_that_decided_over_a_rewrite_is_refused(monkeypatch):
    monkeypatch.setattr(replay, "REWRITES", (CAREFUL,))
    after = toys.taken(scaled(0.5), (CAREFUL, "conv"))
    assert "k (here 0.25)" in refused(after, scaled(0.25, 4))
    assert reweigh(after, scaled(0.5, 4)).weights


def test_what_derives_a_constant_of_the_engines_is_refused():
    def factors(factor):
        return net(
            [node("Mul", "x s", "a", "one"), node("Mul", "a k", "y", "factor")],
            {"x": (1, 300, 1, 1)},
            ["y"],
            {"s": weight(1, 300, 1, 1), "k": factor},
        )

    derived = toys.taken(factors(0.5), (toys.Doubled(), "factor"))
    assert "k (here " in refused(derived, factors(0.25))


def test_rewritten_likewise_with_another_constant_is_refused():
    one, two = formed("clip"), formed("clip", high=np.float32(4))
    left, right = (toys.taken(m, (toys.Doubled(), "one")) for m in (one, two))
    assert "high (other values)" in refused(left, right)


def test_a_network_that_was_not_rewritten_is_checked_without_its_weights():
    check_network(formed("clip"), formed("clip", 3))
    with pytest.raises(DataError, match="only change weights"):
        check_network(formed("clip"), formed("clip", 3, low=np.float32(0)))


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": []},
        {"parameters": {"k": 3}},
        {"operators": {"Mul": -1}},
        {"operators": {"Mul": "1"}},
        {"operators": None},
    ],
    ids=str,
)
def test_hostile_parameters_are_refused(change):
    after = toys.taken(formed("clip"), (toys.Doubled(), "one"))
    document = {**json.loads(metadata(after, KEY)), **change}
    with pytest.raises(ModelError) as caught:
        read_record(with_metadata(after, KEY, json.dumps(document)))
    assert caught.value.code == "rewrite.record"


def test_a_second_rewriting_remembers_the_originals_constants():
    first = toys.taken(formed("clip"), (toys.Doubled(), "one"))
    again = toys.taken(first, (toys.Doubled(), "one"))
    assert read_record(again).parameters == read_record(first).parameters
    assert read_record(again).operators == {"Clip": 1, "Mul": 1}
    assert "low (here -2.0)" in refused(again, formed("clip", low=np.float32(-2)))
    assert reweigh(again, formed("clip", 8)).weights
