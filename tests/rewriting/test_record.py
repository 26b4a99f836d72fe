"""What a rewritten model says about itself: complete, deterministic, and never believed blindly."""

import json

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import ModelError
from edgekit.network.loading.load import canonical, load
from edgekit.network.model import metadata, with_metadata
from edgekit.network.writing import save
from edgekit.rewriting.engine.opset import raise_opset
from edgekit.rewriting.errors import MalformedError
from edgekit.rewriting.graph import RewriteGraph, emit
from edgekit.rewriting.provenance.record import (
    KEY,
    StoredConstant,
    WeightType,
    closure,
    read_record,
    with_record,
)
from edgekit.rewriting.rewrite import rewrite
from edgekit.rewriting.step import step_at
from edgekit.targets.loader import get
from edgekit_device.protocol.codec import read, write
from tests.pipeline.nets import small_net
from tests.rewriting import toys
from tests.rewriting.nets import net, node
from tests.tries import tries

ORIN = get("jetson-agx-orin-64gb")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    small_net(path)
    before = load(path)
    after, applied, *_ = rewrite(before, ORIN, precision="fp16")
    return before, after, applied


def test_the_record_names_original_steps_and_where_weights_come_from(small):
    before, after, applied = small
    record = read_record(after)
    assert record.original == before.digest
    assert record.rounds == (tuple((a.rewrite, a.anchor) for a in applied),)
    derived = {name: item for name, item in record.weights.items() if item.sources}
    assert [item.sources for item in derived.values()] == [("fc.w",)]
    assert record.originals["fc.w"] == WeightType("float32", (10, 32))
    # what survives under its own name is not listed
    assert set(after.weights) - set(record.weights) == set(before.weights) - {"fc.w"}
    assert read_record(before) is None


def test_the_same_rewriting_gives_the_same_bytes_and_no_path(small, tmp_path):
    _, after, _ = small
    small_net(tmp_path / "elsewhere.onnx")
    again, _, *_ = rewrite(load(tmp_path / "elsewhere.onnx"), ORIN, precision="fp16")
    assert again.proto.SerializeToString(deterministic=True) == after.proto.SerializeToString(
        deterministic=True
    )
    assert again.digest == after.digest
    assert str(tmp_path) not in metadata(again, KEY)


def test_the_record_survives_saving_editing_and_loading(small, tmp_path):
    _, after, _ = small
    save(after, tmp_path / "out.onnx")
    back = load(tmp_path / "out.onnx")
    assert metadata(back, KEY) == metadata(after, KEY)
    assert read_record(back) == read_record(after)
    assert back.digest == after.digest
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))
    edited = canonical(back.proto, None, weights=back.weights, outputs=["r1"])
    assert metadata(edited, KEY) == metadata(after, KEY)


def test_metadata_of_others_is_dropped():
    model = toys.product()
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto.metadata_props.add(key="author", value="/home/somebody")
    assert not canonical(proto, None, weights=model.weights).proto.metadata_props
    with pytest.raises(ValueError, match="edgekit"):
        with_metadata(model, "author", "somebody")


def test_only_recipes_that_end_in_a_weight_are_retained_with_what_they_read():
    model = toys.taken(toys.scales(), (toys.Doubled(), "one"))
    record = read_record(model)
    assert [r.op for r in record.recipes] == ["Add", "Mul"]
    assert record.weights["s:twice:whole"].recipe == ("s:twice", "s:twice:whole")
    # the inner factor 1.0 is read by a recipe; the outer one by a node, so the model has it
    assert [float(v.array()) for v in record.constants.values()] == [1.0]


def test_a_second_rewriting_continues_the_first_although_inner_names_meet():
    first = toys.taken(toys.scales(), (toys.Doubled(), "one"))
    second = toys.taken(first, (toys.Doubled(), "two"))
    record = read_record(second)
    assert record.original == toys.scales().digest
    assert record.rounds == ((("doubled", "one"),), (("doubled", "two"),))
    written = [name for recipe in record.recipes for name in recipe.outputs]
    assert len(set(written)) == len(written) == 4
    # "s:twice" was free again in the second rewriting
    assert sum(name.startswith("s:twice") and "whole" not in name for name in written) == 2
    for name, item in record.weights.items():
        if item.recipe:
            assert item.sources == ("s",)
            assert closure([name], record.makers())[-1] == name


def test_a_recipe_of_two_outputs_is_written_once():
    record = read_record(toys.taken(toys.product(), (toys.Halves(), "dense")))
    assert [(r.op, len(r.outputs)) for r in record.recipes] == [("Split", 2)]
    assert sum(item.sources == ("w",) for item in record.weights.values()) == 2


def test_an_operator_that_no_recipe_may_have_is_a_bug_of_the_rewrite():
    class Strange(toys.Doubled):
        def replace(self, graph, nodes, new):
            (at,) = nodes
            made = new.node("Sin", [at.inputs[1]])
            new.node("Mul", [at.inputs[0], made], output=at.outputs[0])

    with pytest.raises(MalformedError, match="Sin"):
        toys.taken(toys.scales(), (Strange(), "one"))


@pytest.mark.parametrize(
    "value",
    [
        np.kron(np.eye(8), np.ones((1, 9, 1, 1))),
        np.zeros(0),
        np.float32(2.0),
        np.arange(9),
        np.array([0.0, -0.0] * 8),
        np.full(100, np.nan),
        np.zeros((40, 3), bool),
        np.repeat(np.float16([1, 2]), 50),
    ],
    ids=str,
)
def test_constants_are_read_as_they_were_and_runs_are_written_once(value):
    value = np.asarray(value)
    text = json.dumps(write(StoredConstant.of(value)))
    back = read(StoredConstant, json.loads(text)).array()
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert back.tobytes() == value.tobytes()
    assert len(text) <= 60 + 4 * (value.nbytes + 2) // 3
    assert len(StoredConstant.of(np.zeros((512, 512))).data) < 20


def good():
    return json.loads(metadata(toys.taken(toys.scales(), (toys.Doubled(), "one")), KEY))


def refused(document):
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(ModelError) as caught:
        read_record(with_metadata(toys.scales(), KEY, text))
    error = caught.value
    assert error.code == "rewrite.record"
    assert "\n" not in error.message
    assert error.hint
    return error.message


ZEROS = {"dtype": "float32", "shape": [4], "data": "AAAAAA=="}
RECIPE = {"op": "Add", "inputs": ["s", "s"], "outputs": ["n"], "attributes": {}}


@pytest.mark.few(10)
@pytest.mark.parametrize(
    "change",
    [
        {"schema": "edgekit.rewritten/2"},
        {"original": "abc"},
        {"opset": [13]},
        {"opset": "13"},
        {"steps": [["doubled"]]},
        {"rounds": [5]},
        {"rounds": [-1, 2]},
        {"weights": []},
        {"weights": {"n": {"from": ["nobody"], "recipe": []}}},
        {"weights": {"n": {"from": ["s"], "recipe": ["s:twice"]}}},
        {"originals": {"s": {"dtype": "object", "shape": [1]}}},
        {"originals": {"s": {"dtype": ["float32"], "shape": [1]}}},
        {"originals": {"s": {"dtype": "float32", "shape": [1 << 50]}}},
        {"originals": {"s": {"dtype": "float32", "shape": [1 << 30, 1 << 30]}}},
        {"stations": {"nobody": {"dtype": "float32", "shape": [1]}}},
        {"recipes": [{**RECIPE, "op": "Loop"}]},
        {"recipes": [{**RECIPE, "op": ["Add"]}]},
        {"recipes": [{**RECIPE, "inputs": ["n", "s"]}]},
        {"recipes": [{**RECIPE, "outputs": ["s"]}]},
        {"recipes": [RECIPE, RECIPE]},
        {"recipes": [{**RECIPE, "outputs": []}]},
        {"recipes": ["Add"]},
        {"recipes": [{**RECIPE, "attributes": {"axis": {"g": 1}}}]},
        {"recipes": [{**RECIPE, "attributes": {"axis": [1, "a"]}}]},
        {"recipes": [{**RECIPE, "attributes": {"axis": 1 << 70}}]},
        {"constants": {"k": {"dtype": "float32", "shape": [2], "data": "AAAA"}}},
        {"constants": {"k": {"dtype": "float32", "shape": [1], "data": "%%%%"}}},
        {"constants": {"k": {"dtype": "float32", "shape": [1], "data": 5}}},
        {"constants": {"k": {**ZEROS, "counts": [3]}}},
        {"constants": {"k": {**ZEROS, "counts": 4}}},
        {"constants": {"k": {**ZEROS, "counts": [5, -1]}}},
        {"constants": {"k": {**ZEROS, "shape": [1 << 30], "counts": [1 << 30]}}},
        {
            "constants": {
                f"k{i}": {**ZEROS, "shape": [1 << 24], "counts": [1 << 24]} for i in range(5)
            }
        },
    ],
    ids=str,
)
def test_a_hostile_record_is_refused_in_one_line(change):
    refused({**good(), **change})


def test_what_is_no_record_at_all_is_refused():
    for text in ("", "{", "[]", "null", "[" * 100_000, '{"schema": NaN}'):
        refused(text)
    cycle = [
        {**RECIPE, "inputs": ["b", "s"], "outputs": ["a"]},
        {**RECIPE, "inputs": ["a", "s"], "outputs": ["b"]},
    ]
    assert "no earlier recipe computes" in refused({**good(), "recipes": cycle})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def code_of(model):
    """The code of the refusal, or nothing; any other exception fails the test."""
    try:
        read_record(model)
    except ModelError as error:
        return error.code
    return ""


@settings(max_examples=tries(60))
@given(field=st.sampled_from(sorted(good())), value=JSON)
def test_any_value_in_any_field_is_read_or_refused(field, value):
    model = with_metadata(toys.scales(), KEY, json.dumps({**good(), field: value}))
    assert code_of(model) in ("", "rewrite.record")


def test_a_model_raised_to_another_opset_is_recorded_from_its_original():
    factors = np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1)
    nodes = [node("Mul", "x s", "y", "one")]
    old = net(nodes, {"x": (1, 3, 2, 2)}, ["y"], {"s": factors}, opset=11)

    graph = RewriteGraph(raise_opset(old))
    step = step_at(graph, toys.Doubled(), graph.node("one"))
    graph.apply(step)
    record = read_record(with_record(emit(graph), graph, [toys.applied(step)], original=old))
    assert (record.original, record.opset) == (old.digest, (11, graph.opset))
    assert list(record.originals) == ["s"]
