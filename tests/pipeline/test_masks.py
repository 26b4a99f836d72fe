"""Masks: tensors that no INT8 scale fits stay in FP16, and every command says so of the same ones.

Numbers are those of the reference backend on this CPU.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgekit
from edgekit.cli.main import main
from edgekit.errors import DataError, ModelError, UsageError
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.network.session import session
from edgekit.placement.segments import cut_segments
from edgekit.quantize.cache_files import show_document
from edgekit.quantize.caches import edit, load_cache, make_cache
from edgekit.quantize.calibration.calibrate import scales_from
from edgekit.quantize.calibration.measure import measure
from edgekit.quantize.scales import is_scale
from edgekit.reference.build import build_reference
from edgekit.reference.run import Runner
from tests.network.onnx_making import make
from tests.pipeline.nets import small_net
from tests.reference.toy_nets import place_all, plan_of

F = np.float32
LOWEST = float(np.finfo(F).min)
TOKENS, WIDTH, HEADS = 16, 32, 2
BOARD = {"target": "jetson-agx-orin-64gb"}


def attention(path: Path, fill: float, *, chosen: bool = False) -> Path:
    """One block of self-attention as BERT's exports have it, of a float input and an integer mask.

    ``fill`` is what masked positions get, added or, with ``chosen``, picked by a Where.
    """
    rng = np.random.default_rng(0)
    weights = {
        name: (rng.standard_normal((WIDTH, WIDTH)) * 2 / np.sqrt(WIDTH)).astype(F)
        for name in ("q.w", "k.w", "v.w", "o.w")
    }
    weights |= {"fill": np.array(fill, F), "one": np.array(1, F), "step": np.array(0.25, F)}
    weights |= {"axes": np.array([1, 2]), "split": np.array([1, TOKENS, HEADS, WIDTH // HEADS])}
    weights |= {"whole": np.array([1, TOKENS, WIDTH])}
    nodes = []

    def add(op: str, reads: str, output: str, **attributes: object) -> None:
        nodes.append(helper.make_node(op, reads.split(), [output], output, **attributes))

    add("Unsqueeze", "mask axes", "wide")
    if chosen:
        add("Cast", "wide", "known", to=TensorProto.BOOL)
    else:
        add("Cast", "wide", "known", to=TensorProto.FLOAT)
        add("Sub", "one known", "unknown")
        add("Mul", "unknown fill", "bias")
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        add("MatMul", f"x {name}.w", f"{name}.m")
        add("Reshape", f"{name}.m split", f"{name}.r")
        add("Transpose", f"{name}.r", f"{name}.t", perm=order)
    add("MatMul", "q.t k.t", "products")
    add("Mul", "products step", "scores")
    if chosen:
        add("Where", "known scores fill", "sum")
    else:
        add("Add", "scores bias", "sum")
    add("Softmax", "sum", "weights", axis=-1)
    add("MatMul", "weights v.t", "context")
    add("Transpose", "context", "back", perm=[0, 2, 1, 3])
    add("Reshape", "back whole", "flat")
    add("MatMul", "flat o.w", "y")
    graph = helper.make_graph(
        nodes,
        "attention",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, TOKENS, WIDTH]),
            helper.make_tensor_value_info("mask", TensorProto.INT64, [1, TOKENS]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, TOKENS, WIDTH])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def feeds(count: int, known: int, *, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Inputs of which so many tokens are no padding."""
    rng = np.random.default_rng(seed)
    mask = (np.arange(TOKENS) < known).astype(np.int64)[None]
    return [
        {"x": rng.standard_normal((1, TOKENS, WIDTH)).astype(F), "mask": mask} for _ in range(count)
    ]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("fill", "chosen", "bare"),
    [
        (LOWEST, False, {"bias", "sum"}),
        (-1e30, False, {"sum"}),
        (-10000.0, False, {"sum"}),
        (LOWEST, True, {"sum"}),
        (-np.inf, True, {"sum"}),
    ],
)
def test_calibrate_plan_and_build_agree_on_a_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill: float, chosen: bool, bare: set[str]
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    path = attention(tmp_path / "mask.onnx", fill, chosen=chosen)
    samples = feeds(4, 11) + feeds(4, 16, seed=1)
    np.savez(
        tmp_path / "data.npz", **{n: np.concatenate([f[n] for f in samples]) for n in samples[0]}
    )
    data = {"data": str(tmp_path / "data.npz")}
    cache = tmp_path / "calib.cache"
    found = edgekit.calibrate(path, cache, calibration=data, **BOARD).to_json()
    assert not bare & found["scales"].keys()
    assert all(map(is_scale, found["scales"].values()))
    # the scores keep a scale of their own size
    assert found["scales"]["scores"] < 1
    listed = load_cache(cache).scales
    assert {name for name, scale in listed.items() if not scale} == bare

    # no --missing: the cache itself says which tensors have no scale
    plan = edgekit.plan(path, calibration={"cache": str(cache)}, **BOARD)
    built = edgekit.build(path, calibration=data, rewrite={"enable": "none"}, **BOARD).to_json()
    assert built["accuracy"]["snr_db"] > 20
    floats = {layer.name for layer in plan.layers if layer.precision != "int8"}
    assert bare <= floats
    # one sentence everywhere, of the same tensors and layers
    (reported,) = [note for note in found["notes"] if "no INT8 scale fits" in note]
    assert all(repr(name) in reported for name in bare)
    shown = show_document(cache, str(path)).to_json()
    for notes in (shown["notes"], plan.notes, built["notes"]):
        assert reported in notes
        assert not any("has no scale" in note for note in notes)
    assert shown["missing"] == []
    assert {row["tensor"] for row in shown["without"]} == bare
    layers_named = {layer for row in shown["without"] for layer in row["layers"]}
    # a Where has no INT8
    assert layers_named == (set() if chosen else {"sum", *bare})
    assert layers_named <= floats
    assert ("in FP16 instead" in reported) == bool(layers_named)


def test_products_whose_reshape_and_transpose_are_merged_have_a_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT's layers do not have the tensors between; the build and the cache do."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    path = attention(tmp_path / "mask.onnx", -10000.0)
    cache = tmp_path / "calib.cache"
    found = edgekit.calibrate(path, cache, rewrite={"enable": "none"}, **BOARD).to_json()
    model = load(path)
    assert {"q.m", "q.r"}.isdisjoint(layers(model).tensors)
    listed = load_cache(cache).scales
    for name in "qkv":
        own = {found["scales"][f"{name}.{end}"] for end in "mrt"}
        assert own == {listed[f"{name}.{end}"] for end in "mrt"}
        assert len(own) == 1
    rows = {row["name"]: row for row in show_document(cache, str(path)).to_json()["tensors"]}
    assert rows["q.m"]["known"]
    for calibration in ({}, {"cache": str(cache)}):
        built = edgekit.build(
            path, calibration=calibration, rewrite={"enable": "none"}, **BOARD
        ).to_json()
        assert not any("has no scale" in note for note in built["notes"])


def with_constant(path: Path, op: str, constant: np.ndarray, *, weighted: bool = False) -> Path:
    """A softmax over what ``op`` makes of a product and a constant."""
    square = np.eye(TOKENS, dtype=F)
    nodes = [
        helper.make_node("MatMul", ["x", "square" if weighted else "x"], ["p"], "p"),
        helper.make_node(op, ["p", "c"], ["sum"], "sum"),
        helper.make_node("Softmax", ["sum"], ["w"], "w", axis=-1),
        helper.make_node("MatMul", ["w", "square"], ["y"], "y"),
    ]
    weights = {"c": constant, "square": square}
    onnx.save(make(nodes, {"x": [1, TOKENS, TOKENS]}, ["y"], weights, opset=13), path)
    return path


@pytest.mark.parametrize("lowest", [LOWEST, -np.inf])
def test_a_constant_mask_of_infinities_is_treated_as_one_of_the_lowest_float(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowest: float
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    causal = np.triu(np.full((1, TOKENS, TOKENS), lowest, F), 1)
    path = with_constant(tmp_path / "causal.onnx", "Add", causal)
    assert edgekit.check(path, **BOARD).to_json()["layers"]
    assert edgekit.plan(path, **BOARD).layers
    found = edgekit.calibrate(path, tmp_path / "calib.cache", **BOARD).to_json()
    assert found["without"] == ["sum"]
    (reported,) = [note for note in found["notes"] if "no INT8 scale fits" in note]
    assert "'sum'; in FP16 instead: sum; " in reported
    built = edgekit.build(path, **BOARD).to_json()
    assert reported in built["notes"]
    assert built["accuracy"]["snr_db"] > 20


@pytest.mark.parametrize(
    ("op", "value", "weighted"),
    [("Add", np.nan, False), ("Mul", -np.inf, False), ("Add", -np.inf, True)],
)
def test_what_is_no_mask_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, value: float, *, weighted: bool
) -> None:
    """NaN, an infinite factor, and an infinite bias of constant weights."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    constant = np.ones((TOKENS,), F)
    constant[3] = value
    path = with_constant(tmp_path / "bad.onnx", op, constant, weighted=weighted)
    for query in (edgekit.plan, edgekit.calibrate):
        with pytest.raises(ModelError, match="weight 'c'"):
            query(path, **BOARD)


def test_nan_that_an_infinite_mask_makes_is_refused(tmp_path: Path) -> None:
    path = with_constant(tmp_path / "bad.onnx", "Add", np.full((TOKENS,), -np.inf, F))
    proto = onnx.load(path)
    proto.graph.node.insert(2, helper.make_node("Sub", ["sum", "sum"], ["none"], "none"))
    proto.graph.node[3].input[0] = "none"
    onnx.save(proto, path)
    with pytest.raises(DataError, match=r"the first come from node 'none' \(Sub\)"):
        edgekit.calibrate(path, **BOARD)


def test_one_count_of_scales_in_texts_json_and_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It counts the ONNX tensors; those that TensorRT's parser puts in follow from them."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    masked = attention(tmp_path / "mask.onnx", LOWEST)
    small_net(tmp_path / "small.onnx")
    samples = feeds(4, 11) + feeds(4, 16, seed=1)
    np.savez(
        tmp_path / "data.npz", **{n: np.concatenate([f[n] for f in samples]) for n in samples[0]}
    )
    cache = tmp_path / "calib.cache"
    # these vary, and no float32 is a scale for them
    tiny = np.random.default_rng(0).choice([0.0, 1e-44], (4, 3, 16, 16)).astype(F)
    np.save(tmp_path / "tiny.npy", tiny)
    for path, data in ((masked, "data.npz"), (tmp_path / "small.onnx", "tiny.npy")):
        arguments = ["-t", BOARD["target"], "--data", str(tmp_path / data)]
        with pytest.raises(SystemExit):
            main(["calibrate", str(path), *arguments, "--save", str(cache)])
        reported = capsys.readouterr()
        found = edgekit.calibrate(path, calibration={"data": str(tmp_path / data)}, **BOARD)
        scales, without = found.scales, list(found.without)
        listed = load_cache(cache).scales
        own = load(path).graph.tensor_names
        assert without
        assert {n: s for n, s in listed.items() if s and (n in own or n in scales)} == scales
        assert {n for n, s in listed.items() if not s and n in without} == {*without}
        assert reported.out.startswith(f"{len(scales)} scale")
        out = " ".join(reported.out.split())
        count = "1 tensor" if len(without) == 1 else f"{len(without)} tensors"
        assert f"; {count} without one" in out
        assert f"fits the measured ranges of {count}: " in " ".join(
            (reported.out + reported.err).split()
        )
        assert f"written to {cache}: {len(listed)} tensors" in out
        assert f"{len(scales)} scale" in reported.err


def test_scores_are_not_tied_to_a_mask_that_is_added_to_them(tmp_path: Path) -> None:
    """A DLA gives both operands of a sum one scale: here the scores would have had the mask's."""
    model = load(attention(tmp_path / "mask.onnx", -10000.0))
    network = layers(model)
    ranges = measure(model, feeds(6, 9), network=network)
    assert ranges.masked == ("sum",)
    for method in ranges.amax:
        scales = scales_from(network, ranges, method)
        assert "sum" in scales.missing
        assert scales.scales["scores"] * 127 == pytest.approx(ranges.amax[method]["scores"], 1e-6)


def test_a_mask_that_masked_nothing_while_it_was_calibrated_still_masks(tmp_path: Path) -> None:
    path = attention(tmp_path / "mask.onnx", LOWEST)
    model = load(path)
    network = layers(model)
    scales = scales_from(network, measure(model, feeds(8, TOKENS), network=network), "minmax")
    assert "bias" in scales.missing
    plan = plan_of(place_all(network, "int8", lambda index: 0))
    runner = Runner(build_reference(cut_segments(model, network, plan), scales))
    reference = session(model)
    for feed in feeds(3, 5, seed=2):
        (real,) = reference.run(["y"], feed)
        error = runner.run(feed)["y"] - real
        assert 10 * np.log10(real.var() / (error**2).mean()) > 20


def test_a_cache_with_a_masks_scale_of_tensorrt_is_read_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    path = attention(tmp_path / "mask.onnx", LOWEST)
    cache = tmp_path / "calib.cache"
    edgekit.calibrate(path, cache, **BOARD)
    # (3.4e38 / 127) as float32: what TensorRT's calibrator writes
    theirs = cache.read_text().replace("bias: 0\n", "bias: 7c010204\n")
    cache.write_text(theirs)
    assert load_cache(cache).scales["bias"] == 0
    plan = edgekit.plan(path, calibration={"cache": str(cache)}, **BOARD)
    assert any("'bias' (2.68e+36" in note for note in plan.notes)
    assert next(x for x in plan.layers if x.name == "bias").precision != "int8"


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), 1e-50, 2.68e36, 1e300])
def test_what_is_no_scale_is_none_for_every_command(scale: float) -> None:
    assert not is_scale(scale)
    with pytest.raises(UsageError, match="cannot be"):
        edit(make_cache({"x": 1.0}, "8.6"), amax={"x": scale * 127})
    if scale:
        with pytest.raises(DataError, match="has the scale"):
            make_cache({"x": scale}, "8.6")
