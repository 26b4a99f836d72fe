"""What a board built, as artefacts: weights by the names that each engine has for them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from edgekit.errors import BuildError
from edgekit.placement.segments import cut_segments
from edgekit.reference.weights import weight_digest
from edgekit.tensorrt.artefacts import read_artefacts, read_golden
from edgekit.tensorrt.requests import BuildOptions, build_request, requested_lanes
from edgekit_device.build.request import Attempt, NetworkSpec, NetworkTensor
from tests.reference.toy_nets import model_of, network_of, node, place_all, plan_of
from tests.tensorrt.results import build_result

NORM = ("scale", "bias", "mean", "var")
NAMES = ("tmp_batch_norm_weight", "tmp_batch_norm_weight_0")
WEIGHT = {"dtype": "float32", "shape": None, "count": 0}


def built(stripped=True, refit="identical", names=NAMES):
    """Two GPU segments around a loadable, each with a BatchNormalization of its own."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 8, 1, 1)).astype(np.float32)}
    for which in "ab":
        for name in NORM:
            weights[f"{which}.{name}"] = rng.uniform(0.5, 1.5, 8).astype(np.float32)
    a, b = (" ".join(f"{which}.{name}" for name in NORM) for which in "ab")
    model = model_of(
        [
            node("BatchNormalization", f"x {a}", "n"),
            node("Conv", "n w", "c"),
            node("BatchNormalization", f"c {b}", "y"),
        ],
        weights,
        {"x": [1, 8, 6, 6]},
        ["y"],
    )
    network = network_of(model)
    lanes = requested_lanes(
        cut_segments(model, network, plan_of(place_all(network, "fp16", lambda i: i))), "split", {}
    )
    attempts = {kind: [Attempt((), "")] for kind in ("plan", "loadable")}
    x, y = (NetworkTensor(name, "float32", (1, 8, 6, 6)) for name in "xy")
    request = build_request(
        "toy",
        lanes,
        BuildOptions("10.3", "weak"),
        attempts=attempts,
        network=NetworkSpec((x,), (y,)),
    )
    engines = []
    blobs = {}
    for spec in request.document["engines"]:
        data = spec["key"].encode()
        blobs[hashlib.sha256(data).hexdigest()] = data
        plan = spec["kind"] == "plan"
        io = [
            {
                "name": t["name"],
                "mode": mode[:-1],
                "dtype": t["dtype"],
                "shape": t["shape"],
                "format": "LINEAR",
                "strides": [],
                "scale": None,
            }
            for mode in ("outputs", "inputs")
            for t in spec[mode]
        ]
        engines.append(
            {
                "key": spec["key"],
                "kind": spec["kind"],
                "tensorrt": "10.3.0.30",
                "engine": hashlib.sha256(data).hexdigest(),
                "io": io,
                "stripped": plan and stripped,
                "version_compatible": False,
                "lean_embedded": False,
                "refit": refit if plan else "none",
                "dla_core": None if plan else 0,
                "weights": dict.fromkeys(names, WEIGHT) if plan and refit != "none" else {},
            }
        )
    result = {
        "engines": engines,
        "fingerprint": {"backend": "tensorrt", "tensorrt": "10.3.0.30"},
        "tensorrt": "10.3.0.30",
        "notes": [],
        "golden": [],
    }
    return request, result, lanes, lambda digests: {d: blobs[d] for d in digests}, weights


def test_a_name_that_a_parser_made_up_is_another_weight_in_each_engine():
    request, result, lanes, fetch, weights = built()
    made = read_artefacts(request, build_result(**result), lanes, fetch)
    first, _, last = (segment.engine for segment in made.lanes[0][1])
    assert not made.entries[first].weights
    renamed = made.entries[last].weights
    assert set(renamed) == {"tmp_batch_norm_weight", "tmp_batch_norm_weight_0"}
    for which, engine in (("a", first), ("b", last)):
        scale, _, _, var = (weights[f"{which}.{name}"] for name in NORM)
        names = made.entries[engine].weights
        key = names.get("tmp_batch_norm_weight", "tmp_batch_norm_weight")
        value = made.values[made.weights[key].digest]
        np.testing.assert_allclose(value, scale / np.sqrt(var + 1e-5), rtol=1e-6)
        node = {"a": "n", "b": "y"}[which]
        assert made.weights[key].transform == f"batch-norm-scale:{node}"
    for weight in made.weights.values():
        assert weight_digest(made.values[weight.digest]) == weight.digest


def test_tensors_of_an_engine_stand_in_the_order_that_was_requested():
    request, result, lanes, fetch, _ = built()
    made = read_artefacts(request, build_result(**result), lanes, fetch)
    for engine in lanes[0].engines:
        digest = hashlib.sha256(engine.key.encode()).hexdigest()
        entry = made.entries[digest]
        assert [t.name for t in entry.inputs] == [t.name for t in engine.inputs]
        assert (entry.kind, entry.tensorrt) == (engine.kind, "10.3.0.30")


def test_engines_with_their_weights_have_none_to_send():
    request, result, lanes, fetch, _ = built(stripped=False)
    made = read_artefacts(request, build_result(**result), lanes, fetch)
    assert made.weights == {}
    assert made.backend == "tensorrt"


def test_a_weight_that_is_not_in_the_model_is_reported():
    request, result, lanes, fetch, _ = built()
    result["engines"][0]["weights"]["tmp_weight_7"] = WEIGHT
    with pytest.raises(BuildError) as caught:
        read_artefacts(request, build_result(**result), lanes, fetch)
    assert caught.value.code == "build.weights"
    assert "tmp_weight_7" in caught.value.message
    assert "strip" in caught.value.hint


@pytest.mark.parametrize("refit", ["any", "individual"])
def test_engines_that_take_other_weights_have_theirs_in_the_bundle(refit):
    request, result, lanes, fetch, _ = built(stripped=False, refit=refit)
    made = read_artefacts(request, build_result(**result), lanes, fetch)
    assert set(NAMES) < set(made.weights)
    assert {entry.refit for entry in made.entries.values()} == {refit, "none"}
    # one that has a weight which no name leads to keeps those that it was built with
    names = (*NAMES, "tmp_weight_7")
    request, result, lanes, fetch, _ = built(stripped=False, refit=refit, names=names)
    made = read_artefacts(request, build_result(**result), lanes, fetch)
    assert made.weights == {}
    assert {entry.refit for entry in made.entries.values()} == {"none"}
    assert any("tmp_weight_7" in note for note in made.notes)


@pytest.mark.parametrize("cores", [(0, 1), (None, 1)])
def test_equal_bytes_for_two_devices_are_one_engine(cores):
    request, result, lanes, fetch, _ = built()
    (lane,) = lanes
    engine = lane.engines[-1]
    other = replace(engine, key="engine9", device="DLA1")
    engines = (*request.job.engines, replace(request.job.engines[-1], key="engine9"))
    request = replace(request, job=replace(request.job, engines=engines))
    one = {**result["engines"][-1], "dla_core": cores[0]}
    two = {**one, "key": "engine9", "dla_core": cores[1]}
    result["engines"] = [*result["engines"][:-1], one, two]
    lanes = [lane, replace(lane, engines=(*lane.engines[:-1], other))]
    made = read_artefacts(request, build_result(**result), lanes, fetch)
    assert [segments[-1].device for _, segments in made.lanes] == [engine.device, "DLA1"]
    assert made.entries[one["engine"]].dla_core == next(c for c in cores if c is not None)
    # each weight is in the bundle once, under the name that the engine's entry leads to
    renamed = made.entries[one["engine"]].weights
    assert set(renamed.values()) < set(made.weights)
    assert not any(name.startswith("engine9/") for name in made.weights)


def test_an_answer_without_an_engine_is_refused():
    request, result, lanes, fetch, _ = built()
    result["engines"] = result["engines"][1:]
    with pytest.raises(BuildError) as caught:
        read_artefacts(request, build_result(**result), lanes, fetch)
    assert caught.value.code == "build.result"


def test_golden_outputs_are_arrays():
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    digest = hashlib.sha256(value.tobytes()).hexdigest()
    outputs = {"y": {"digest": digest, "dtype": "float32", "shape": [2, 3]}}
    result = build_result(golden=[{"seed": 7, "lane": None, "outputs": outputs}])
    (case,) = read_golden(result, lambda digests: dict.fromkeys(digests, value.tobytes()))
    np.testing.assert_array_equal(case.outputs["y"], value)
