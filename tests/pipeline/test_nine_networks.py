"""All nine networks that the onnx package ships go the whole way, for four kinds of board."""

import pytest

from edgekit.config import parse_config
from edgekit.network import builtin_names
from edgekit.pipeline import STEPS, Cache, Pipeline

pytestmark = [pytest.mark.slow, pytest.mark.boards]

BOARDS = {
    "orin-int8": ("jetson-agx-orin-64gb", "int8", "gpu_time"),
    "orin-fp16": ("jetson-agx-orin-64gb", "fp16", "gpu_time"),
    "xavier-fp16": ("jetson-agx-xavier", "fp16", "gpu_time"),
    "nano-fp16": ("jetson-orin-nano-8gb", "fp16", "latency"),
}
# against FP32 over the synthetic inputs; a random network is harsher on INT8 than a trained one
COSINE = {"int8": 0.95, "fp16": 0.995}


@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("net", builtin_names())
def test_goes_the_whole_way(net, board, tmp_path, shared_cache):
    target, precision, objective = BOARDS[board]
    text = (
        f"version: 1\nname: {net.replace('_', '-')}\nmodel: {{builtin: {net}}}\n"
        f"target: {target}\nprecision: {precision}\ncalibration: {{count: 2}}\n"
        f"placement: {{objective: {objective}}}\n"
        "bench: {warmup_ms: 0, duration_s: 0, iterations: 1}\n"
    )
    config = parse_config(text, "net.yaml", tmp_path)
    with Pipeline(config, out=tmp_path / "out", cache=Cache(shared_cache)) as pipeline:
        document = pipeline.run().document
    assert [step["name"] for step in document["steps"]] == list(STEPS)
    assert document["refit"]["bit_equal"] is True
    assert document["accuracy"]["cosine"] >= COSINE[precision]
    bundle = document["bundle"]
    assert bundle["stripped_bytes"] <= 0.1 * bundle["bytes"]
    if net == "light_resnet50":
        assert bundle["stripped_bytes"] <= 0.03 * bundle["bytes"]
    devices = {layer["device"] for layer in document["plan"]["layers"]}
    if board == "nano-fp16":
        assert devices == {"GPU"}
    else:
        assert "DLA0" in devices
    if board == "xavier-fp16":
        softmax = [v for v in pipeline.work.network.layers if v.kind == "SOFTMAX"]
        placed = {layer["name"]: layer["device"] for layer in document["plan"]["layers"]}
        assert {placed[layer.name] for layer in softmax} <= {"GPU"}
