from hypothesis import given

from edgekit.dla.rules import load_rules
from edgekit.dla.scales import scale_ties
from edgekit.quantize.scales import Change, constraint_warnings, tie, violations
from tests.quantize.quantize_nets import branches, make, node
from tests.quantize.test_constraints import cases, equal_sets


@given(cases())
def test_unequal_scales_are_found_and_none_are_left_after_tying(case):
    network, scales, on_dla, wanted = case
    found = violations(network, scales, dla_layers=on_dla)
    broken = sum(
        len({scales[name] for name in names if name in scales}) > 1
        for names in equal_sets(network, wanted, on_dla)
    )
    assert len(found) == broken
    for one in found:
        assert len(set(one.scales.values())) > 1
        assert one.bits > 0
        assert all(repr(name) in one.message for name in one.scales)
        assert load_rules().rules[one.rule].certainty == ("disputed" if one.disputed else "certain")
    assert violations(network, tie(network, scales, dla_layers=on_dla)[0], dla_layers=on_dla) == ()


def test_scales_that_are_one_float32_are_equal():
    _, network = branches()
    near = {"joined": 0.1, "pooled": 0.1 + 1e-12}
    assert near["joined"] != near["pooled"]
    assert violations(network, near) == ()


def test_what_costs_more_than_two_bits_is_warned_of_with_a_way_out():
    _, network = branches()
    scales = {"x": 1.0, "a": 0.1, "b": 2.0, "joined": 2.0, "pooled": 2.0, "y": 2.0}
    tied, changes = tie(network, scales)
    (warning,) = constraint_warnings(network, tied, changes)
    for part in ("'a'", "4.3 of the 8 bits", "'b'", "concatenation.int8_ranges", "joined"):
        assert part in warning
    assert "calibration: {fp16_layers: [" in warning
    tied, changes = tie(network, {**scales, "a": 0.6})
    assert changes
    assert constraint_warnings(network, tied, changes) == ()

    _, network = make([node("Add", "x y", "z")], {}, {"x": [1, 4], "y": [1, 4]}, ["z"])
    tied, changes = tie(network, {"x": 1.0, "y": 9.0})
    (warning,) = constraint_warnings(network, tied, changes)
    assert "calibration: {fp16_layers: [" in warning


def test_many_costly_tensors_are_counted():
    changes = [Change(f"t{i}", 1.0, 8.0 + i, "concatenation.int8_ranges", ("c",)) for i in range(9)]
    _, network = branches()
    warnings = constraint_warnings(network, {}, changes)
    assert len(warnings) == 6
    assert "for 4 more tensors" in warnings[-1]


def test_a_gate_keeps_its_scale_and_the_doubt_is_reported_for_the_dla_alone():
    _, network = make(
        [node("Sigmoid", "x", "gate"), node("Mul", "x gate", "y")], {}, {"x": [1, 4, 8, 8]}, ["y"]
    )
    scales = {"x": 16.0, "gate": 1.0, "y": 16.0}
    tied, changes = tie(network, scales)
    assert (tied, changes) == (scales, ())
    assert violations(network, scales) == ()
    (warning,) = constraint_warnings(network, scales, ())
    for part in ("'gate'", "4.0 of the 8 bits", "elementwise.int8_factors", "disputed"):
        assert part in warning
    assert constraint_warnings(network, scales, (), dla_layers=set()) == ()
    assert constraint_warnings(network, scales, (), fp16_layers={"y"}) == ()
    assert constraint_warnings(network, {**scales, "gate": 16.0}, ()) == ()


def test_the_rules_that_tie_are_notes_about_int8_with_sources():
    ties = scale_ties()
    assert {tie_.rule.id for tie_ in ties} == {r.id for r in load_rules() if r.ties is not None}
    assert {tie_.rule.effect for tie_ in ties} == {"note"}
    assert {tie_.rule.precisions for tie_ in ties} == {("int8",)}
    kinds = {kind for tie_ in ties if not tie_.ties.apart for kind in tie_.kinds}
    assert kinds >= {"POOLING", "CONCATENATION", "ELEMENTWISE", "RESIZE", "SHUFFLE", "IDENTITY"}
    for tie_ in ties:
        # what neither a header nor a guide says is marked
        official = {"NvInfer.h", "TensorRT Developer Guide", "NVIDIA qdq-translator"}
        settled = any(s.startswith(tuple(official)) for s in tie_.rule.sources)
        assert settled or tie_.rule.certainty == "disputed"
