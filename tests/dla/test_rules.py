"""The rule files: complete, with sources, and in forms that the engine knows."""

import re
from pathlib import Path
from typing import Any

import pytest

from edgekit.dla.checks import show
from edgekit.dla.explanation import explain
from edgekit.dla.fact_files import MemoryFacts
from edgekit.dla.facts import _DERIVED
from edgekit.dla.guide import guide
from edgekit.dla.rule_files import RuleFile, sources_file
from edgekit.dla.rules import load_rules
from edgekit.errors import DataError, UsageError
from edgekit.knowledge import data_folder, read_document
from edgekit.targets.releases import parse_version
from tests.dla.one_layer import XAVIER, verdict

PAGE = Path(__file__).parents[2] / "docs" / "dla-support.md"
FAMILIES = {
    "general",
    "convolution",
    "deconvolution",
    "pooling",
    "activation",
    "prelu",
    "elementwise",
    "comparison",
    "scale",
    "lrn",
    "concatenation",
    "resize",
    "slice",
    "softmax",
    "unary",
    "shuffle",
    "reduce",
}
# what these compare with stands in the layer or in the operator's row
LIMIT_OF_THE_LAYER = {
    "convolution.padding_kernel",
    "convolution.padding_dilated",
    "operators.since",
    "operators.not_exposed",
}
# parameters that a layer of the network has, as far as rules ask for them
PARAMETERS = {
    "kernel", "stride", "pads", "dilation", "groups", "out_maps", "mode", "count_include_pad",
    "alpha", "beta", "function", "window", "region", "power", "value", "strides", "sizes", "perm",
    "precision", "dla_cores", "tensorrt_drives_dla", "kind_supported", "op", "kind",
    "has_quantization", "has_qdq_nodes", "gives_scales", "allowed", "generation",
    "constant_operand", "uniform_constant", "release_known", "drives_newest",
    # of a loadable (memory.yaml)
    "int8", "smaller", "layer", "pool",
}  # fmt: skip


def rule_files() -> list[Path]:
    """The files that hold rules and nothing else."""
    files = sorted(data_folder("dla").glob("*.yaml"))
    return [path for path in files if path.read_text().startswith("schema: edgekit.dla/1\n")]


def test_every_family_has_its_file_and_every_rule_its_source() -> None:
    rules = load_rules()
    assert {path.stem for path in rule_files()} == FAMILIES
    assert {rule.family for rule in rules} >= FAMILIES | {"operators", "memory"}
    for rule in rules:
        assert rule.id.startswith(f"{rule.family}.") or rule.family == "operators", rule.id
        assert rule.sources, rule.id
        assert rule.text, rule.id
        assert rule.fix, rule.id
        assert all(source.title and source.where for source in rule.source)
        assert rule.effect == "note" or rule.limit or rule.id in LIMIT_OF_THE_LAYER
        assert rule.certainty in {"certain", "disputed"}
        assert rule.effect in {"refuse", "risk", "note"}
        assert set(rule.generations) <= {"1.0", "2.0"}
        for version in (rule.since, rule.until):
            assert version is None or parse_version(version)


ROW = "id: x.a, text: t, fix: f, source: [header]"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (f"{{{ROW}, chek: 1}}", r"rules\[0\]: unknown: 'chek'"),
        ("{id: x.a, text: t, fix: f}", r"rules\[0\]: missing: source"),
        (
            "{id: x.a, text: t, fix: f, source: [hearsay]}",
            r"rules\[0\].source\[0\]: 'hearsay' is no",
        ),
        (f"{{{ROW}, generations: ['3.0']}}", r"rules\[0\].generations\[0\]: '3.0' is not one of"),
        (f"{{{ROW}, certainty: sure}}", r"rules\[0\].certainty: 'sure' is not one of"),
        (f"{{{ROW}, check: {{of: a}}}}", r"rules\[0\].check: not a check"),
        (f"{{{ROW}, check: {{range: [1, 2]}}}}", r"rules\[0\].check: not a check"),
        (f"{{{ROW}, check: {{of: a, in: [], x: 1}}}}", r"rules\[0\].check: not a check"),
        (f"{{{ROW}, check: {{of: a, near: 3}}}}", r"rules\[0\].check: unknown operator 'near'"),
        (f"{{{ROW}, check: {{of: a, in: 3}}}}", r"rules\[0\].check: in takes a list of values"),
        (f"{{{ROW}, check: {{any: [{{of: a, range: [1]}}]}}}}", "range takes the two ends"),
        (f"{{{ROW}, ties: {{tensors: outputs}}}}", r"rules\[0\].ties.tensors: 'outputs' is not"),
    ],
)
def test_a_wrong_row_of_a_rule_file_is_refused_with_its_place(tmp_path, row, said) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        f"schema: edgekit.dla/1\nfamily: x\ntitle: X\nkinds: [SCALE]\nrules:\n  - {row}\n"
    )
    with pytest.raises(DataError, match=said) as caught:
        read_document(RuleFile, file)
    assert (caught.value.code, caught.value.where) == ("data.invalid", str(file))


@pytest.mark.parametrize(
    ("written", "wrong", "place"),
    [
        ("smallest: 4096", "smallest: -1", "smallest"),
        ("default: 1073741824", "default: -5", "local_dram.default"),
        ("fp16: 4194304", "fp16: -1", "local_extra.fp16"),
        ('{"8": 8}', '{"8": 0}', "loadables_per_core.before.8"),
        ("pool: local_dram", "pool: dram", "rules"),
    ],
)
def test_a_wrong_size_of_a_pool_is_refused_with_its_place(tmp_path, written, wrong, place) -> None:
    text = (data_folder("dla") / "memory.yaml").read_text()
    assert text.count(written) == 1
    file = tmp_path / "memory.yaml"
    file.write_text(text.replace(written, wrong))
    with pytest.raises(DataError, match=re.escape(f"{file}: {place}")):
        read_document(MemoryFacts, file)


def test_rules_use_only_facts_that_exist() -> None:
    referenced = set()
    for path in rule_files():
        referenced |= set(re.findall(r"\bof: (\w+)", path.read_text()))
        referenced |= set(re.findall(r"\bbelow: (\w+)", path.read_text()))
    assert referenced <= PARAMETERS | set(_DERIVED)


def test_every_sentence_of_the_guide_has_its_rules_and_every_rule_from_it_a_sentence() -> None:
    """Both ways: section 13.2 of the guide of TensorRT 10.7, and the rules that cite it."""
    known = load_rules()
    held = set()
    for sentence in (sentence for section in guide() for sentence in section.sentences):
        assert sentence.rules or sentence.why, sentence.says
        held |= set(sentence.rules)
    assert held <= set(known.rules)
    title = sources_file().sources["guide107"].title
    # chapters 13.4, 13.6 and 13.7 of the same guide
    others = {"formats", "memory", "sparsity"}
    citing = {r.id for r in known if title in r.sources and r.family not in others}
    # shuffles and comparisons are listed without boards; ranges of the parts that have no sentence
    silent = {
        "shuffle.xavier",
        "comparison.xavier",
        "convolution.hwc4_type",
        "elementwise.int8_ranges",
    }
    assert citing - held <= silent


def test_the_matrix_is_complete() -> None:
    operators = load_rules().operators
    assert len(operators) == 114
    counts = dict.fromkeys(("native", "reconstruction", "rfe", "folded"), 0)
    for row in operators.values():
        counts[row.trt] += 1
        assert set(row.families) <= FAMILIES
    assert counts == {"native": 37, "reconstruction": 21, "rfe": 54, "folded": 2}
    assert operators["Div"].since == operators["Greater"].since == "8.6.12"
    assert operators["Abs"].since == ""


def test_explain() -> None:
    rule = explain("convolution.kernel").to_json()
    assert "kernel" in rule["text"]
    assert rule["limit"] == "1..32"
    assert "NvInfer.h" in rule["source"]
    assert rule["sources"][0]["where"].startswith("github.com/NVIDIA/TensorRT")
    with pytest.raises(UsageError) as caught:
        explain("convolution.kernle")
    assert caught.value.code == "rule.unknown"
    assert "convolution.kernel" in caught.value.hint


def test_explain_an_operator() -> None:
    row = explain("hardswish").to_json()
    assert (row["operator"], row["tensorrt"], row["text"]) == ("HardSwish", "rfe", "no")
    assert row["dla_software_since"] == "3.14.0"
    assert row["rules"][-1] == "operators.composed"
    assert "Deep-Learning-Accelerator-SW" in row["sources"][0]["where"]
    assert explain("Conv").to_json()["rules"][:2] == ["convolution.weights", "convolution.dims"]
    assert explain("Div").to_json()["since"] == "8.6.12"
    assert "Neg.py" in explain("Neg").to_json()["fix"]
    with pytest.raises(UsageError) as caught:
        explain("HardSwitch")
    assert "HardSwish" in caught.value.hint


def test_explain_an_operator_says_what_check_makes_of_it() -> None:
    for name in ("Min", "Atan"):
        row = explain(name).to_json()
        assert "disputed" in row["verdict"]
        assert "operators.not_exposed" in row["rules"]
    assert "operators.composed" in explain("Mean").to_json()["rules"]
    assert "elementwise.div" in explain("Div").to_json()["rules"]
    assert explain("Shape").to_json()["rules"] == []
    assert "operators.composed" in explain("LpPool").to_json()["rules"]


@pytest.mark.parametrize(
    ("op", "kind", "rule", "sources"),
    [
        ("Atan", "UNARY", "operators.not_exposed", {"header", "guide107", "matrix"}),
        (
            "Min",
            "ELEMENTWISE",
            "operators.not_exposed",
            {"header", "guide85", "guide107", "matrix"},
        ),
        ("Atanh", "UNARY", "unary.atanh_unsure", {"guide107", "matrix"}),
        ("Mean", "ELEMENTWISE", "operators.composed", {"header", "guide85", "guide107", "matrix"}),
    ],
)
def test_a_dispute_names_exactly_the_sources_of_its_sides(
    op: str, kind: str, rule: str, sources: set[str]
) -> None:
    size = (1, 8, 4, 4)
    inputs = (size,) if kind == "UNARY" else (size, size)
    function = "SUM" if op == "Mean" else op.upper()
    found = verdict(
        kind,
        inputs=inputs,
        output=size,
        op=op,
        function=function,
        broadcast="NCHW",
        tensorrt="10.3",
    )
    assert (found.ok, found.certainty) == (True, "disputed")
    (reason,) = found.reasons
    assert reason.rule == rule
    assert set(reason.source.split("; ")) == {sources_file().sources[key].title for key in sources}


def test_every_function_that_a_rule_allows_has_a_source_that_says_so() -> None:
    known = load_rules()
    for kind in known.kinds & set(known.allowed_by):
        assert known.sources_allowing(kind, "ANY") or kind == "CAST"
    for function in ("EQUAL", "POW", "DIV", "SUM"):
        assert known.sources_allowing("ELEMENTWISE", function)


@pytest.mark.parametrize("name", ["lrn", "slice", "prelu", "resize", "softmax"])
def test_explain_an_operator_that_shares_its_name_with_a_family(name: str) -> None:
    found = explain(name).to_json()
    assert found["operator"].lower() == name
    assert found["family_rules"]["family"] == name
    assert {rule["id"] for rule in found["family_rules"]["rules"]} >= set(found["rules"])


@pytest.mark.parametrize(
    ("name", "first"), [("Pow", "elementwise.pow"), ("reducemax", "reduce.max_unsure")]
)
def test_explain_an_operator_that_only_rules_name(name: str, first: str) -> None:
    found = explain(name).to_json()
    assert found["tensorrt"] is None
    assert found["rules"][0] == first
    assert set(found["rules"]) <= set(load_rules().rules)
    assert set(load_rules().unlisted).isdisjoint(load_rules().operators)
    assert first in found["verdict"]


def test_explain_a_family() -> None:
    found = explain("Pooling").to_json()
    assert found["title"] == "Pooling"
    assert "pooling.window" in {rule["id"] for rule in found["rules"]}
    assert {rule["id"].split(".")[0] for rule in found["rules"]} == {"pooling"}


def test_explain_an_operator_that_the_matrix_does_not_have() -> None:
    with pytest.raises(UsageError, match="does not list the ONNX operator Gelu") as caught:
        explain("Gelu")
    assert caught.value.code == "operator.unlisted"
    assert "Elu" not in caught.value.hint


def test_texts_name_only_facts_that_exist() -> None:
    known = PARAMETERS | set(_DERIVED) | {"target", "tensorrt", "scales", "known_releases"}
    for rule in load_rules():
        for words in (rule.found, rule.fix, *(way.fix for way in rule.ways)):
            assert set(re.findall(r"\{(\w+)\}", words)) <= known | {"value"}, rule.id


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"kind": "REDUCE", "function": "AVG", "axes": (2, 3), "size": (14, 7)}, "7x7 and then"),
        ({"kind": "REDUCE", "function": "AVG", "axes": (2, 3), "size": (13, 13)}, "kernel 13x13"),
        ({"kind": "REDUCE", "function": "AVG", "axes": (2, 3), "size": (37, 37)}, "on the GPU"),
        ({"kind": "REDUCE", "function": "SUM", "axes": (1,), "size": (4, 4)}, "1x1 convolution"),
        ({"kind": "SLICE", "op": "Expand", "strides": (1, 0, 1, 1), "size": (4, 4)}, "broadcast"),
        ({"kind": "SLICE", "strides": (1, 1, -1, 1), "size": (4, 4)}, "reverse"),
        ({"kind": "NORMALIZATION", "op": "LayerNormalization", "size": (4, 4)}, "GPU; NVIDIA"),
        ({"kind": "UNARY", "op": "LogSoftmax", "function": "LOG", "size": (4, 4)}, "GPU; NVIDIA"),
        (
            {"kind": "UNARY", "op": "Sin", "function": "SIN", "size": (4, 4), "board": XAVIER},
            "no TensorRT release for this board",
        ),
    ],
)
def test_a_fix_fits_the_layer(layer: dict[str, Any], words: str) -> None:
    size = (1, 8, *layer.pop("size"))
    found = verdict(layer.pop("kind"), inputs=(size,), output=size, **layer)
    assert not found.ok
    assert any(words in reason.fix for reason in found.reasons)


def test_a_fix_that_keeps_a_layer_on_the_gpu_does_not_mend() -> None:
    size = (1, 8, 4, 4)
    for op, kind, mends in (
        ("LayerNormalization", "NORMALIZATION", False),
        ("Where", "SELECT", True),
    ):
        (reason,) = verdict(kind, inputs=(size,), output=size, op=op).reasons
        assert reason.mends is mends


def test_int8_is_no_advice_in_int8() -> None:
    for precision, offered in (("fp16", True), ("int8", False)):
        size = (1, 8192, 8, 8)
        wide = {
            "kernel": (5, 5),
            "stride": (1, 1),
            "pads": (0, 0, 0, 0),
            "dilation": (1, 1),
            "groups": 1,
            "out_maps": 8,
            "in_maps": 8192,
        }
        found = verdict(
            "CONVOLUTION", precision=precision, inputs=(size,), output=(1, 8, 4, 4), **wide
        )
        (reason,) = (r for r in found.reasons if r.rule == "convolution.cbuf")
        assert ("INT8" in reason.fix) is offered


def test_docs_page_has_every_rule_and_operator() -> None:
    page = PAGE.read_text()
    for rule in load_rules():
        assert f"`{rule.id}`" in page
    for name in load_rules().operators:
        assert f"\n| {name} |" in page


def test_versions() -> None:
    assert parse_version("10.3") == parse_version("10.3.0")
    assert parse_version("8") == parse_version("8.0") == parse_version("8.0.0")
    assert parse_version("8.5.2") < parse_version("8.6") < parse_version("8.6.12")
    assert parse_version("8.6.12") < parse_version("10.3.0.30")
    for bad in ("", "ten", "10.x", "10.", "1.2.3.4.5"):
        with pytest.raises(UsageError, match="not a TensorRT version"):
            parse_version(bad)


def test_values_as_people_write_them() -> None:
    assert show((33, 1)) == "33x1"
    assert show(("int64", "int64", "bool")) == "int64, bool"
    assert show(2.5) == "2.5"
    assert show(-3.4e38) == "unbounded"
    assert show(True) == "yes"


def test_docs_page_shows_pools_and_formats() -> None:
    page = PAGE.read_text()
    assert "| Global DRAM | weights; adds up over loadables | 512 MiB | 4 MiB | no |" in page
    assert "Orin's default" in page
    # a line of 645 pixels of 4 bytes: 2580, to 32 bytes on Xavier and to 64 on Orin
    assert f"| {480 * 2592}, 2592 and {480 * 2624}, 2624 |" in page
    assert "channels 1 as 1, 3 as 4, 4 as 4" in page
