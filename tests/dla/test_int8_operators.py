"""The operators with INT8 kernels: one table, of operators that exist, with sources."""

from edgekit.dla.precision import int8_operators
from edgekit.dla.rules import load_rules
from edgekit.knowledge import data_folder, read_knowledge

FOLDER = data_folder("dla")


def test_they_are_onnx_operators_and_what_computes_is_exposed():
    import onnx

    matrix = load_rules().operators
    for name in int8_operators().every:
        assert onnx.defs.has(name), name
    for name in int8_operators().computing:
        # a DLA has INT8 of nothing that it does not run
        assert matrix[name].trt != "rfe", name


def test_groups_are_apart_and_their_sources_known():
    ops = int8_operators()
    assert not ops.weighted & ops.pointwise
    assert not ops.computing & ops.moving
    assert ops.computing == ops.weighted | ops.pointwise
    assert ops.computing | ops.moving | ops.selecting <= ops.every
    document = read_knowledge(FOLDER / "int8.yaml")
    known = read_knowledge(FOLDER / "_sources.yaml")["sources"]
    assert {*document["source"], *document["fused"]["source"]} <= set(known)
    assert not {"Softmax", "LRN", "Sigmoid", "Tanh", "Div", "Pow"} & ops.every


def test_fused_kinds_are_kinds_of_the_rules():
    assert int8_operators().fused_kinds <= load_rules().kinds
