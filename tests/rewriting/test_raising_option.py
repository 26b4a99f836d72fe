"""Raising the opset: named, disabled, refused clearly, and nothing rests on it unproved."""

import json

import numpy as np
import pytest

import edgekit
from edgekit.cli import main
from edgekit.errors import UsageError
from edgekit.network.loading.load import load
from edgekit.network.writing import save
from edgekit.rewriting import rewrite as rewrite_module
from edgekit.rewriting.catalogue import rewrite_list
from edgekit.rewriting.engine import opset as opset_module
from edgekit.rewriting.proof.prove import Proof
from edgekit.rewriting.rewrite import rewrite
from edgekit.targets.loader import get
from tests.rewriting.nets import net, node, ops, weight

ORIN = get("jetson-agx-orin-64gb")
DISABLED = "nothing was rewritten: rewrites need opset 13, and raise-opset is disabled"


def old(opset=11):
    return net(
        [
            node("Conv", "x w", "c", "conv"),
            node("GlobalAveragePool", "c", "g", "pool"),
            node("Softmax", "g", "y", "soft"),
        ],
        {"x": (1, 3, 16, 16)},
        ["y"],
        {"w": weight(8, 3, 3, 3)},
        opset,
    )


def names(applied):
    return [item.rewrite for item in applied]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    save(old(), tmp_path / "old.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def output_of(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main.main([*map(str, arguments), "--json", "-q"])
    captured = capsys.readouterr()
    assert caught.value.code == 0, captured.err
    return json.loads(captured.out)


def test_it_is_the_first_entry_with_its_proof_and_its_nodes():
    after, applied, notes, *_ = rewrite(old(), ORIN, precision="fp16")
    assert names(applied) == ["raise-opset", "global-average-pool"]
    assert applied[0].nodes == applied[0].new_nodes == ("soft",)
    assert applied[0].max_error == applied[0].max_error_float64 == 0
    assert notes == ()
    assert after.proto.opset_import[0].version == 13
    newer = rewrite(old(13), ORIN, precision="fp16")[1]
    assert "raise-opset" not in names(newer)


def test_disabled_nothing_is_rewritten_and_it_says_so():
    model = old()
    after, applied, notes, *_ = rewrite(model, ORIN, precision="fp16", disable=["raise-opset"])
    assert after is model
    assert (applied, notes) == ((), (DISABLED,))
    # a model that needs no raising is rewritten as ever
    newer = old(13)
    after, applied, notes, *_ = rewrite(newer, ORIN, precision="fp16", disable=["raise-opset"])
    assert names(applied) == ["global-average-pool"]
    assert notes == ()


def test_it_may_be_named_and_need_not_be():
    def chosen(*enable):
        return names(rewrite(old(), ORIN, precision="fp16", enable=enable)[1])

    assert chosen("raise-opset") == ["raise-opset"]
    assert chosen("global-average-pool") == ["raise-opset", "global-average-pool"]
    assert chosen("global-average-pool", "raise-opset") == ["raise-opset", "global-average-pool"]
    assert rewrite(old(), ORIN, precision="fp16", enable="none")[1:3] == ((), ())
    with pytest.raises(UsageError, match="raise-opsets"):
        chosen("raise-opsets")


def test_the_command_the_configuration_and_the_interface_disable_it(folder, capsys):
    text = "version: 1\nname: old\nmodel: {onnx: old.onnx}\ntarget: jetson-agx-orin-64gb\n"
    (folder / "old.yaml").write_text(text + "rewrite: {disable: [raise-opset]}\n")
    documents = [
        output_of(
            capsys,
            "rewrite",
            "old.onnx",
            "-t",
            ORIN.name,
            "--disable",
            "raise-opset",
            "-o",
            "out.onnx",
        ),
        output_of(capsys, "rewrite", "old.yaml"),
        edgekit.rewrite(
            "old.onnx", target=ORIN.name, rewrite={"disable": ["raise-opset"]}
        ).to_json(),
    ]
    for document in documents:
        assert document["rewrites"] == []
        assert document["notes"] == [DISABLED]
        assert document["record"]["opset"] == [11, 11]
    assert load(folder / "out.onnx").proto.opset_import[0].version == 11
    document = output_of(capsys, "rewrite", "old.onnx", "-t", ORIN.name)
    assert document["rewrites"][0]["rewrite"] == "raise-opset"
    assert document["record"]["opset"] == [11, 13]


def test_the_list_names_it():
    (row,) = [row for row in rewrite_list().rewrites if row.name == "raise-opset"]
    assert "opset 13" in row.reason
    assert not row.approximate


@pytest.mark.parametrize(
    ("item", "inputs", "weights", "opset"),
    [
        (node("Resize", "c s", "y", "both-ways"), 6, {"s": np.array([1.0, 1.0, 2.0, 0.5])}, 10),
        (
            node("BatchNormalization", "c a a a a", "y", "both-ways", spatial=0),
            6,
            {"a": np.ones((8, 4, 4))},
            7,
        ),
    ],
    ids=["resize", "batch-normalization"],
)
def test_what_cannot_be_raised_is_named(item, inputs, weights, opset):
    nodes = [node("Conv", "x w", "c", "conv"), item]
    model = net(
        nodes, {"x": (1, 3, inputs, inputs)}, ["y"], {"w": weight(8, 3, 3, 3), **weights}, opset
    )
    after, applied, (note,), *_ = rewrite(model, ORIN, precision="fp16")
    assert after is model
    assert applied == ()
    assert note == (
        "nothing was rewritten: rewrites need opset 13, and "
        f"{item.op_type} 'both-ways' cannot be converted to it"
    )


@pytest.mark.parametrize("proof", [Proof(0.25, 0.0), Proof(0.0, 1e-6), Proof(float("inf"), 0.0)])
def test_a_proof_that_fails_rewrites_nothing(monkeypatch, proof):
    monkeypatch.setattr(opset_module, "compare", lambda *a, **k: proof)
    monkeypatch.setattr(rewrite_module, "RewriteSearch", None)  # nothing is searched
    model = old()
    after, applied, (note,), *_ = rewrite(model, ORIN, precision="fp16")
    assert after is model
    assert ops(after) == ["Conv", "GlobalAveragePool", "Softmax"]
    assert applied == ()
    assert "raise-opset changes the results (seed 0)" in note
    assert "report" in note
