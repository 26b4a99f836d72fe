"""Lowered real networks beside their emulation, kernel by kernel.

Each kernel of the emulated build runs on the Q/DQ file's own tensors. From end to end a deep
network with random weights tells nothing: a value between two codes rounds either way with the
order of float sums, and every layer multiplies such codes (see test_qdq_ort.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from edgekit.dla import precision
from edgekit.network.lowering import layers as layers_module
from edgekit.network.synthetic import synthetic_inputs
from edgekit.network.writing import save
from edgekit.network.zoo import builtin
from edgekit.placement.segments import cut_segments
from edgekit.quantize.calibration.calibrate import calibrate
from edgekit.quantize.qdq.to_explicit import to_qdq
from edgekit.quantize.qdq.to_implicit import from_qdq
from edgekit.reference.build import build_reference, full_engine
from tests.quantize.qdq_nets import run, snr_db
from tests.reference.toy_nets import place_all, plan_of

SOFTMAX_DB = 40.0  # FP16 in the build, FP32 in the file


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("name", ["light_squeezenet", "light_resnet50"])
def test_kernels_give_the_codes_of_the_file(name, tmp_path):
    model = builtin(name, 0)
    layers = layers_module.layers(model)
    feeds = [dict(feed) for feed in synthetic_inputs(model, 2, 0)]
    scales = calibrate(model, layers, feeds)
    made = to_qdq(model, layers, scales.scales, float16=False)
    lowering = precision.plan_lowering(layers, scales.scales)
    back = from_qdq(made)
    for tensor in lowering.tensors:
        assert back.scales[tensor] == np.float32(scales.scales[tensor])
    for weight, value in model.weights.items():
        np.testing.assert_array_equal(back.model.weights[weight], value)
    save(made, tmp_path / "qdq.onnx")

    # a layer begins a kernel unless it reads what never leaves one
    number, segments = -1, []
    for layer in layers.layers:
        inner = {layers.views.get(n, n) for n in layer.inputs} - set(lowering.tensors)
        number += not (inner and lowering.precisions[layer.name] == "int8")
        segments.append(number)
    placed = place_all(layers, "int8", segment=lambda i: segments[i], device=lambda _n: "DLA0")
    typed = replace(scales, quantised=frozenset(lowering.tensors))
    built = build_reference(cut_segments(model, layers, plan_of(placed)), typed)

    written = {out for node in made.proto.graph.node for out in node.output}
    parts = built.lanes[0][1]
    wanted = {t for part in parts for t in (*part.inputs, *part.outputs)} - set(feeds[0])
    file_name = {t: f"{t}_dequantized" if f"{t}_dequantized" in written else t for t in wanted}
    names = [t for t in wanted if file_name[t] in written]
    values = dict(
        zip(names, run(tmp_path / "qdq.onnx", feeds[0], *map(file_name.get, names)), strict=True)
    )
    values |= feeds[0]
    ratios = {}
    for part in parts:
        if set(part.inputs) | set(part.outputs) <= set(values):
            engine = onnx.load_from_string(full_engine(built, part.engine))
            results = run(engine, {tensor: values[tensor] for tensor in part.inputs})
            for tensor, result in zip(part.outputs, results, strict=True):
                ratios[tensor] = snr_db(values[tensor], result)
    int8 = {tensor: ratio for tensor, ratio in ratios.items() if tensor in lowering.tensors}
    assert set(int8) == set(lowering.tensors) - set(feeds[0])
    assert min(int8.values()) > 50
    assert sum(ratio == float("inf") for ratio in int8.values()) > len(int8) / 3
    assert min(ratios.values()) > SOFTMAX_DB
