"""A record's proofs repeated: what holds, what no longer does, and what is of another model."""

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from edgekit.errors import DataError, GateError, ModelError
from edgekit.network.loading.load import canonical, load
from edgekit.network.writing import save
from edgekit.rewriting.catalogue import rewrite_list
from edgekit.rewriting.proof.prove import Proof
from edgekit.rewriting.provenance import verification as module
from edgekit.rewriting.provenance import verification as whole
from edgekit.rewriting.provenance.record import record_document
from edgekit.rewriting.provenance.verification import (
    Verified,
    claim_of_document,
    claim_of_model,
    verify,
    whole_network,
)
from edgekit.rewriting.rewrite import rewrite
from edgekit.rewriting.rules.order import REWRITES
from edgekit.targets.loader import get
from tests.pipeline.nets import small_net
from tests.rewriting import toys
from tests.rewriting.nets import net, node, weight

ORIN = get("jetson-agx-orin-64gb")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    small_net(path)
    before = load(path)
    after, applied, *_ = rewrite(before, ORIN, precision="fp16")
    document = record_document(before, after, applied).to_json()
    return before, after, document


def test_a_record_and_the_model_itself_are_repeated(small, tmp_path):
    before, after, document = small
    document = json.loads(json.dumps(document))
    save(after, tmp_path / "out.onnx")
    progress = []
    for claim in (
        claim_of_document(document, "r"),
        claim_of_document({"schema": "edgekit.rewrite/1", "record": document}, "r"),
        claim_of_model(load(tmp_path / "out.onnx")),
    ):
        found = verify(before, claim, progress=lambda *at: progress.append(at))
        assert found.schema == "edgekit.verified/1"
        assert found.holds
        assert found.same
        assert found.rewritten == after.digest
        assert found.refusal() is None
        assert found.network.max_error <= 1e-5
        json.dumps(found.to_json(), allow_nan=False)
    steps = len(document["rewrites"])
    assert progress[:steps] == [(n + 1, steps) for n in range(steps)]
    changes = [row.change for row in verify(before, claim_of_document(document, "r")).rewrites]
    assert changes == [0.0] * steps
    # a model has no measured errors to compare with
    assert found.rewrites[0].recorded is None


def test_a_model_of_several_rewritings_is_repeated_from_the_first_original(small):
    before, _, _ = small
    once, _, *_ = rewrite(before, ORIN, precision="fp16", enable=["global-average-pool"])
    twice, applied, *_ = rewrite(once, ORIN, precision="fp16")
    assert applied
    found = verify(before, claim_of_model(twice))
    assert found.refusal() is None
    assert len(found.rewrites) == 1 + len(applied)


def test_a_proof_that_no_longer_holds_is_reported_with_its_seed(small, monkeypatch):
    before, _, document = small
    monkeypatch.setattr(module, "prove", lambda *a, **k: Proof(3e-4, 0.0))
    found = verify(before, claim_of_document({**document, "seed": 41}, "r"))
    assert not found.holds
    error = found.refusal()
    assert isinstance(error, GateError)
    assert document["rewrites"][0]["rewrite"] in error.message
    assert "3.0e-04" in error.message
    assert "seed 41" in error.hint
    assert "report" in error.hint


def test_the_seed_and_the_runs_are_those_of_the_record(small, monkeypatch):
    before, _, document = small
    calls = []
    monkeypatch.setattr(module, "prove", lambda *a, **k: calls.append(k) or Proof(0.0, 0.0))
    verify(before, claim_of_document({**document, "seed": 5, "runs": 3}, "r"))
    assert calls == [{"runs": 3, "seed": 5}] * len(document["rewrites"])


def test_another_model_is_no_proof(small):
    _, after, document = small
    with pytest.raises(DataError) as caught:
        verify(after, claim_of_document(document, "r"))
    assert caught.value.code == "rewrite.other-model"
    assert caught.value.exit_code == 2


def test_a_result_that_was_changed_afterwards_is_reported(small):
    before, after, _ = small
    values = {name: np.array(value) for name, value in after.weights.items()}
    values["conv2.b"][0] += 1
    changed = canonical(after.proto, None, weights=values)
    found = verify(before, claim_of_model(changed))
    assert (found.holds, found.same) == (True, False)
    error = found.refusal()
    assert (error.code, error.exit_code) == ("rewrite.other-result", 2)


@pytest.mark.parametrize("key", ["rewrite", "anchor"])
def test_a_step_that_does_not_apply_any_more_ends_it(small, key):
    before, _, document = small
    changed = copy.deepcopy(document)
    changed["rewrites"][0][key] = "nobody"
    with pytest.raises(GateError) as caught:
        verify(before, claim_of_document(changed, "r"))
    assert caught.value.code == "rewrite.not-repeated"
    assert "nobody" in caught.value.message


def test_an_approximation_may_not_be_worse_than_recorded():
    claim = replace(_claim(), proofs=((1e-2, None),))
    for now, holds in ((1.05e-2, True), (2e-2, False)):
        row = module._row(_approximate(), Proof(now, 0.5, exact=False), claim, 0)
        assert row.holds is holds


def _claim():
    model = toys.taken(toys.scales(), (toys.Doubled(), "one"))
    return claim_of_model(model)


def _approximate():
    from edgekit.rewriting.graph import Applied

    return Applied("approx-x", "", "one", ("one",), ("one",), 1e-2, None, 2, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "edgekit.rewrites/9"},
        {"model": "x"},
        {"rewritten": None},
        {"opset": [13]},
        {"opset": ["13", "13"]},
        {"seed": -1},
        {"seed": 1.5},
        {"runs": 0},
        {"runs": 101},
        {"runs": True},
        {"rewrites": {}},
        {"rewrites": [{}]},
        {"rewrites": [7]},
        {"rewrites": [{"rewrite": "a", "anchor": "b", "max_error": "1"}]},
        {"rewrites": [{"rewrite": "a", "anchor": "b", "max_error": float("nan")}]},
    ],
    ids=str,
)
def test_a_document_that_cannot_be_true_is_refused(small, change):
    _, _, document = small
    with pytest.raises(DataError) as caught:
        claim_of_document({**document, **change}, "r.json")
    assert (caught.value.code, caught.value.where) == ("rewrite.record", "r.json")
    for other in (None, [], "text", {"record": 5}):
        with pytest.raises(DataError):
            claim_of_document(other, "r")


def test_a_model_without_a_record_is_refused(small):
    with pytest.raises(DataError) as caught:
        claim_of_model(small[0])
    assert caught.value.code == "rewrite.no-record"


def test_whole_networks_are_compared_by_the_largest_value():
    def scaled(factor, bias=0.0):
        return net(
            [
                node("Mul", "x s", "a", "one"),
                node("Add", "a b", "y", "two"),
                node("ArgMax", "a", "z", "best", axis=1),
            ],
            {"x": (1, 300, 1, 1)},
            {"y": 1, "z": 7},
            {"s": weight(1, 300, 1, 1) * factor, "b": np.full((1, 300, 1, 1), bias)},
        )

    assert whole_network(scaled(1), scaled(1), runs=2, seed=0).max_error == 0
    near = whole_network(scaled(1), scaled(1 + 1e-4), runs=2, seed=0)
    assert near.holds
    assert near.max_error == pytest.approx(1e-4, rel=0.05)
    far = whole_network(scaled(1), scaled(1.01), runs=1, seed=0)
    assert not far.holds
    assert whole_network(scaled(1), scaled(1.01), runs=1, seed=0, exact=False).limit is None
    broken = whole_network(scaled(1), scaled(1, np.nan), runs=2, seed=0)
    assert (broken.max_error, broken.holds) == (None, False)
    row = Verified(
        model="m",
        original="",
        rewritten="",
        recorded="",
        same=True,
        seed=3,
        runs=2,
        rewrites=(),
        largest_change=0.0,
        network=broken,
        holds=False,
    )
    assert "seed 3" in row.refusal().hint


@pytest.mark.parametrize(("rows", "largest"), [(4, 3), (2, 1), (1, 0)])
def test_indices_are_within_the_table_that_they_read(rows, largest, monkeypatch):
    made = [node("Gather", "t i", "g"), node("Add", "g x", "y")]
    model = net(made, {"i": ((6,), 7), "x": (6, 5)}, ["y"], {"t": weight(rows, 5)})
    fed = []
    real = whole._distance
    monkeypatch.setattr(whole, "_distance", lambda a, b: fed.append(b) or real(a, b))
    found = whole_network(model, model, runs=8, seed=0)
    assert found.holds
    assert len(fed) == 8
    wrong = net(made, {"i": ((6,), 7), "x": (6, 5)}, ["y"], {"t": weight(rows, 5) * 2})
    assert not whole_network(model, wrong, runs=1, seed=0).holds
    shorter = net(made, {"i": ((6,), 7), "x": (6, 5)}, ["y"], {"t": weight(1, 5)})
    if largest:
        # what only the other one refuses is an error of the other one
        assert whole_network(model, shorter, runs=8, seed=0).max_error is None


def test_a_network_that_runs_on_no_random_input_is_refused_by_name():
    made = [node("Sub", "i s", "j"), node("Gather", "t j", "y")]
    model = net(made, {"i": ((3,), 7)}, ["y"], {"t": weight(2, 5), "s": np.int64(9)})
    with pytest.raises(ModelError) as caught:
        whole_network(model, model, runs=1, seed=0)
    assert caught.value.code == "rewrite.inputs"
    assert "indices" in str(caught.value)


def test_the_list_has_every_rewrite_with_its_reason():
    rows = rewrite_list().rewrites
    assert {row.name for row in rows} == {"raise-opset", *(item.name for item in REWRITES)}
    assert all(row.reason for row in rows)
    # raising the opset begins at no operator
    assert [row.name for row in rows if not row.operators] == ["raise-opset"]
    kinds = [row.approximate for row in rows]
    assert kinds == sorted(kinds)
    assert all(row.approximate == row.name.startswith("approx-") for row in rows)
