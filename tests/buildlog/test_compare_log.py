"""scripts/compare_log.py: a network rebuilt from a log, and what the builder makes of attention."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from edgekit.buildlog.parser import parse_log
from edgekit.dla.judge import judge
from edgekit.targets.loader import get
from tests.buildlog.attention_log import attention_log

SCRIPTS = Path(__file__).parents[2] / "scripts"
ORIN = get("jetson-agx-orin-64gb")
# What the parser of TensorRT for RTX 1.7.1.116 wrote of a network of ours into edgekit_device's
# log: of opset 18, with constants in nodes; without time stamps and what the script does not read.
PARSED = """\
[TRT] [I] Opset version:    18
[TRT] [V] conv [Conv] inputs: [x -> (1, 3, 16, 16)[FLOAT]], [w -> (8, 3, 3, 3)[FLOAT]], [b -> (8)[FLOAT]],
[TRT] [V] Using kernel: (3, 3), strides: (1, 1), prepadding: (1, 1), postpadding: (1, 1), dilations: (1, 1), numOutputs: 8, nbGroups: 1
[TRT] [V] conv [Conv] outputs: [c -> (1, 8, 16, 16)[FLOAT]],
[TRT] [V] relu [Relu] inputs: [c -> (1, 8, 16, 16)[FLOAT]],
[TRT] [V] relu [Relu] outputs: [r -> (1, 8, 16, 16)[FLOAT]],
[TRT] [V] axes_node [Constant] inputs:
[TRT] [V] axes_node [Constant] outputs: [axes -> (2)[INT64]],
[TRT] [V] mean [ReduceMean] inputs: [r -> (1, 8, 16, 16)[FLOAT]], [axes -> (2)[INT64]],
[TRT] [V] mean [ReduceMean] outputs: [m -> (1, 8)[FLOAT]],
[TRT] [V] k_node [Constant] inputs:
[TRT] [V] k_node [Constant] outputs: [k -> (1, 8)[FLOAT]],
[TRT] [V] scale [Mul] inputs: [m -> (1, 8)[FLOAT]], [k -> (1, 8)[FLOAT]],
[TRT] [V] scale [Mul] outputs: [s -> (1, 8)[FLOAT]],
[TRT] [V] unsq [Unsqueeze] inputs: [s -> (1, 8)[FLOAT]], [axes -> (2)[INT64]],
[TRT] [V] unsq [Unsqueeze] outputs: [u -> (1, 8, 1, 1)[FLOAT]],
[TRT] [V] sq [Squeeze] inputs: [u -> (1, 8, 1, 1)[FLOAT]], [axes -> (2)[INT64]],
[TRT] [V] sq [Squeeze] outputs: [q -> (1, 8)[FLOAT]],
[TRT] [V] slice [Slice] inputs: [q -> (1, 8)[FLOAT]], [st -> (1)[INT64]], [en -> (1)[INT64]], [ax -> (1)[INT64]],
[TRT] [V] slice [Slice] outputs: [sl -> (1, 4)[FLOAT]],
[TRT] [V] split [Split] inputs: [sl -> (1, 4)[FLOAT]], [sp -> (2)[INT64]],
[TRT] [V] split [Split] outputs: [s1 -> (1, 2)[FLOAT]], [s2 -> (1, 2)[FLOAT]],
[TRT] [V] add [Add] inputs: [s1 -> (1, 2)[FLOAT]], [s2 -> (1, 2)[FLOAT]],
[TRT] [V] add [Add] outputs: [y -> (1, 2)[FLOAT]],
[TRT] [V] Marking y_31 as output: y
"""  # noqa: E501


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import compare_log

    return compare_log


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_attention_is_placed_as_the_builder_places_it(script: ModuleType, precision: str) -> None:
    """Shuffles, candidates, slots: three products that stand side by side are one loadable, those
    of the next block are another, and in INT8 only those join that read one tensor."""
    lines = attention_log(precision)
    network, found = script.compare_network(lines)
    wrong = [(x.layer, x.predicted, x.builder) for x in found.layers if x.status != "agree"]
    assert wrong == []
    log = parse_log(lines)
    assert len(found.layers) == len(log.capable) + len(log.gpu_layers)
    assert [row.same for row in found.loadables] == [True] * 16
    assert (found.only_builder, found.warnings) == ((), ())
    assert {p.verdict for row in found.loadables for p in row.pools} == {"right"}
    judgement = judge(network, ORIN, precision=precision, tensorrt="10.3")
    assert log.accepted == (16, len(judgement.candidates))
    sizes = Counter(len(group.layers) for group in judgement.candidates)
    assert (sizes[3] > 0) == (precision == "fp16")


def test_what_the_log_says_otherwise_is_reported(script: ModuleType) -> None:
    said = "\n".join(attention_log("fp16")).replace(
        "[DlaLayer] /encoder.1/Add_1", "[GpuLayer] ELEMENTWISE: /encoder.1/Add_1"
    )
    said = said.replace("Switching to GPU for layer /encoder.1/Add_1\n", "nothing\n")
    _, found = script.compare_network(said.splitlines())
    assert [layer.layer for layer in found.disagreements] == ["/encoder.1/Add_1"]


def test_it_reads_packed_logs_and_prints(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "build.log.gz"
    path.write_bytes(gzip.compress("\n".join(attention_log("int8")).encode()))
    monkeypatch.setattr("sys.argv", ["compare_log.py", str(path)])
    script.main()
    printed = capsys.readouterr().out
    assert "agree (100.0%)" in printed
    assert "16 loadables are the same" in printed
    path.write_text("[I] nothing\n")
    with pytest.raises(SystemExit, match="no lines of the ONNX parser"):
        script.main()


@pytest.mark.parametrize("order", ["[TRT] [V] ", "[V] [TRT] "])
def test_constant_nodes_and_axes_that_are_inputs(script: ModuleType, order: str) -> None:
    """In edgekit_device's order of a line's parts, and in trtexec's."""
    lines = PARSED.replace("[TRT] [V] ", order).splitlines()
    model = script.read_model(lines)
    assert [node.op_type for node in model.graph.node if node.op_type != "ConstantOfShape"] == [
        "Conv",
        "Relu",
        "ReduceMean",
        "Mul",
        "Unsqueeze",
        "Squeeze",
        "Slice",
        "Split",
        "Add",
    ]
    assert model.opset_import[0].version == 18
    network, _ = script.compare_network(lines)
    assert {layer.name: layer.kind for layer in network.layers} == {
        "conv": "CONVOLUTION",
        "relu": "ACTIVATION",
        "mean": "REDUCE",
        "scale": "ELEMENTWISE",
        "slice": "SLICE",
        "split": "SLICE",
        "split_1": "SLICE",
        "add": "ELEMENTWISE",
    }
    assert network.layer("mean").params["axes"] == (2, 3)
    assert [network.tensors[name].shape for name in ("m", "sl", "s2", "y")] == [
        (1, 8),
        (1, 4),
        (1, 2),
        (1, 2),
    ]
