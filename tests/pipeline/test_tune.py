"""tune finds what is known to be best, keeps what it cannot beat, and carries on where it was."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit import targets
from edgekit.cli._tune_text import tune_text
from edgekit.dla import judge
from edgekit.errors import BoardError, DataError, EnvironmentLack
from edgekit.network import Network, layers, load
from edgekit.pipeline._tune import Tuning
from edgekit.pipeline._tune_document import tune_document
from edgekit.pipeline._tune_pins import pins_of
from edgekit.pipeline._tune_values import better_by, cost_of, spoken
from edgekit.pipeline._tune_wish import Wish
from edgekit.placement import Ask, Options, Pin, read_profile
from edgekit.placement._trial_pieces import signature
from edgekit.placement._trial_space import Space
from tests.pipeline.nets import small_net
from tests.pipeline.tune_world import World, best_mix, every_plan, world_of

ORIN = targets.get("jetson-agx-orin-64gb")
GPU = {"*": 1.0, "conv1": 90.0, "conv2": 60.0, "pool": 9.0, "fc": 70.0, "softmax": 10.0}
DLA = {"*": 1.0, "conv1": 20.0, "conv2": 200.0, "pool": 40.0, "fc": 12.0}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Network:
    path = tmp_path_factory.mktemp("tune") / "small.onnx"
    small_net(path)
    return layers(load(path))


def asked(net: Network, objective: str = "latency", **options: Any) -> Ask:
    verdicts = judge(net, ORIN, precision="fp16")
    return Ask(net, verdicts, ORIN, "fp16", None, Options(objective=objective, **options))


def tuned(ask: Ask, world: Any, **more: Any) -> Tuning:
    wish = {"objective": ask.options.objective, "rounds": 16, **more.pop("wish", {})}
    tuning = Tuning(ask, ask.plan(), world, Wish(**wish), **more)
    tuning.run()
    return tuning


def least(ask: Ask, world: World) -> float:
    return min(world.cost(plan, ask.options.objective) for plan in every_plan(ask))


@pytest.mark.parametrize(
    ("objective", "more"),
    [
        ("latency", {"switch_us": 15.0, "noise": 0.02}),
        ("period", {"together": 1.9}),
        ("energy", {"noise": 0.02, "power": True}),
    ],
)
def test_the_best_of_all_plans_is_found(net: Network, objective: str, more: Any) -> None:
    ask = asked(net, objective)
    world = world_of(ask, GPU, DLA, **more)
    found = tuned(ask, world)
    best = least(ask, world)
    assert world.cost(found.start, objective) > 1.1 * best
    assert world.cost(found.winner.plan, objective) <= 1.02 * best
    assert found.duel is not None
    assert found.duel["better"]
    assert found.first.key == signature(found.start)
    assert len(set(world.measured)) < 9  # of 16


def test_the_best_mix_is_found_where_working_together_costs(net: Network) -> None:
    """All plans measured at first are bound by the DLA: they do not tell what the GPU can do."""
    ask = asked(net, "throughput", dla_cores=(0, 1))
    world = world_of(ask, GPU, DLA, together=1.9, noise=0.02)
    found = tuned(ask, world, wish={"tolerance": 0.04, "turns": 5})
    best = best_mix(ask, world, 2)
    assert world.cost(found.start, "throughput") > 1.5 * best
    # it stops where nothing promises more than the tolerance: six worlds end 0.4 to 6.2 % off
    assert world.cost(found.winner.plan, "throughput") <= 1.07 * best
    assert len(found.winner.plan.plans) > 1


def test_predictions_that_are_wrong_by_five_either_way(net: Network) -> None:
    ask = asked(net)
    prior = Space(ask.prepared()).prior_us
    random = np.random.default_rng(5)
    times = {
        name: {"*": 0.5} | {
            layer.name: 10 * us * 5.0 ** random.choice([-1, 1]) * (6 if name == "DLA" else 1)
            for layer, us in zip(net.layers, prior[name], strict=True) if us > 0
        }
        for name in ("GPU", "DLA")
    }  # fmt: skip
    world = world_of(ask, times["GPU"], times["DLA"], noise=0.01)
    found = tuned(ask, world)
    assert world.cost(found.winner.plan, "latency") <= 1.02 * least(ask, world)


@pytest.mark.parametrize(("objective", "board"), [("latency", 2), ("latency", 8), ("energy", 2)])
def test_a_layer_that_is_far_off_is_seen_beside_the_best(
    net: Network, objective: str, board: int
) -> None:
    """Layers' times lie up to 55 times apart: the search alone does not see the best here.

    Of 40 such boards (20 for each objective) it ends within 2 % of the best on 39, and 5 % off on
    one, where nothing is doubted enough for a sweep. These three need one.
    """
    ask = asked(net, objective)
    prior = Space(ask.prepared()).prior_us
    random = np.random.default_rng([7, board])
    times = {
        name: {"*": 0.5} | {
            layer.name: 10 * us * float(np.exp(random.uniform(-2, 2))) * (6 if name == "DLA" else 1)
            for layer, us in zip(net.layers, prior[name], strict=True) if us > 0
        }
        for name in ("GPU", "DLA")
    }  # fmt: skip
    world = world_of(ask, times["GPU"], times["DLA"], noise=0.02, power=True, switch_us=15.0,
                     seed=board)  # fmt: skip
    found = tuned(ask, world, wish={"rounds": 12})
    assert world.cost(found.winner.plan, objective) <= 1.02 * least(ask, world)
    assert 0 < sum(trial.origin == "sweep" for trial in found.trials) <= 6
    few = tuned(ask, world, wish={"rounds": 3})
    assert len(few.trials) <= 3


def test_the_gpu_s_part_of_a_hybrid_engine_is_seen(net: Network) -> None:
    """It is one segment that is named after its DLA; before, the GPU seemed to do nothing."""
    ask = asked(net, "gpu_time")
    plan = Space(ask.prepared()).alone("DLA")
    assert plan is not None
    names = [layer.name for layer in plan.layers]
    run: dict[str, Any] = {
        "clock": "board-measured",
        "segments": [{"lane": 0, "index": 0, "device": "DLA0", "layers": names,
                      "latency_ms": {"median": 0.5}}],
    }  # fmt: skip
    assert {layer.device for layer in plan.layers} == {"GPU", "DLA0"}
    with pytest.raises(BoardError, match="no gpu_time"):
        cost_of(run, "gpu_time", plan)  # nothing tells its devices apart
    on_dla = [layer.name for layer in plan.layers if layer.device != "GPU"]
    run["nodes"] = [
        {"lane": 0, "index": 0, "node": f"{{ForeignNode[{on_dla[0]}...{on_dla[-1]}]}}",
         "mean_us": 300.0},
        *({"lane": 0, "index": 0, "node": name, "mean_us": 25.0}
          for name in names if name not in on_dla),
    ]  # fmt: skip
    gpu = 25.0 * (len(names) - len(on_dla))
    assert cost_of(run, "gpu_time", plan) == pytest.approx(500 * gpu / (300 + gpu))


def test_a_plan_that_leaves_the_gpu_alone_costs_it_nothing(net: Network) -> None:
    ask = asked(net, "gpu_time")
    # what no DLA runs takes no time
    world = world_of(
        ask, {name: us for name, us in GPU.items() if name != "softmax"} | {"*": 0.0}, DLA
    )
    found = tuned(ask, world)
    assert world.cost(found.start, "gpu_time") > 0.0 == world.cost(found.winner.plan, "gpu_time")
    assert found.duel is not None
    assert found.duel["better"]
    document = tune_document(found, name="small", files={"profile": "p", "snippet": "s"})
    assert (document["winner"]["measured"], document["bound"]) == (0.0, None)
    text = "\n".join(tune_text(document))
    assert "is better in GPU time: " in text
    assert "beyond" not in text


def test_the_start_stays_where_nothing_is_really_better(net: Network) -> None:
    ask = asked(net)
    # equal on both devices, and very noisy: whatever looks better is luck
    world = world_of(ask, {"*": 20.0}, {"*": 20.0}, switch_us=0.0, noise=0.2)
    found = tuned(ask, world, wish={"rounds": 4})
    assert found.winner is found.first
    assert found.status in ("converged", "rounds")
    runs = [len(trial.runs) for trial in found.trials]
    assert found.best is found.first or runs[0] == 6


def test_a_plan_that_does_not_build_is_dropped_and_the_search_goes_on(net: Network) -> None:
    ask = asked(net)
    world = world_of(ask, GPU, DLA, fails=frozenset({"fc"}))
    found = tuned(ask, world, wish={"rounds": 12, "tolerance": 0.02})
    dropped = [trial for trial in found.trials if trial.dropped]
    assert dropped
    assert all("build.failed" in trial.dropped for trial in dropped)
    assert found.winner.counts
    costs = [world.cost(plan, "latency") for plan in every_plan(ask)
             if all(x.device == "GPU" for x in plan.layers if x.name == "fc")]  # fmt: skip
    assert world.cost(found.winner.plan, "latency") <= 1.02 * min(costs)
    only = world_of(ask, GPU, DLA, clock="cpu-measured")
    only.measure = lambda plan: (_ for _ in ()).throw(BoardError("no", code="x"))  # type: ignore[method-assign]
    with pytest.raises(BoardError):
        tuned(ask, only)


def test_the_documents(net: Network, tmp_path: Path) -> None:
    ask = asked(net)
    world = world_of(ask, GPU, DLA, switch_us=15.0)
    found = tuned(ask, world)
    files = {"profile": "p", "snippet": "s"}
    document = json.loads(json.dumps(tune_document(found, name="small", files=files),
                                     allow_nan=False))  # fmt: skip
    assert document["schema"] == "edgekit.tune/1"
    assert document["clock"] == "board-measured"
    assert document["winner"]["measured"] < document["start"]["measured"]
    by_kind = {(row["device"], row["kind"]): row for row in document["learnt"]["by_kind"]}
    convolutions = by_kind["GPU", "CONVOLUTION"]
    assert convolutions["learnt_us"] == pytest.approx(220, rel=0.1)
    assert convolutions["factor"] == pytest.approx(
        convolutions["learnt_us"] / convolutions["predicted_us"], rel=1e-3
    )
    # what a sum of layers took is no layer's time: it is called learnt, and has a doubt
    single = {(row["device"], row["layers"][0]) for row in found.table()["rows"]
              if len(row["layers"]) == 1}  # fmt: skip
    names = {layer.name for layer in net.layers if layer.kind == "CONVOLUTION"}
    apart = {("GPU", name) for name in names} <= single
    assert (convolutions["measured_us"] is not None) == apart
    assert any(row["measured_us"] is None for row in by_kind.values())
    assert all(row["learnt_sd_us"] > 0 for row in by_kind.values())
    assert document["proven"] is True
    moved = {name for change in document["changes"] for name in change["layers"]}
    before = {layer.name: layer.device for layer in found.start.layers}
    after = {layer.name: layer.device for layer in found.winner.plan.layers}
    assert moved == {name for name in before if before[name] != after[name]}
    text = "\n".join(tune_text(document))
    assert "board-measured" in text
    # the percentage is that of the two figures beside it
    turns = document["turns"]
    assert turns["fraction"] == pytest.approx(1 - turns["ours"] / turns["theirs"], abs=1e-4)
    better = (
        f"plan {found.winner.number} is better in latency: {spoken(turns['ours'])}, the starting "
        "plan "
    )
    assert "Tried, latency measured:" in text
    assert f"{better}{spoken(turns['theirs'])}, medians of 5 turns; {turns['fraction']:.1%}" in text
    assert text.count(f"{len(found.trials)} plans") == 1
    assert not re.search(r"\d us|\de[+-]\d|(?<![.\d])1 \w+s\b", text), text
    # the table that it leaves makes a plan of the same times
    path = tmp_path / "tuned.profile.json"
    path.write_text(json.dumps(found.table()))
    again = ask.plan(replace(ask.options, profile=read_profile(path)))
    assert signature(again) == found.winner.key
    assert again.predicted.latency_us == pytest.approx(world.cost(again, "latency"), rel=0.2)
    assert again.measured is not None
    assert again.measured["fraction"] > 0.8
    pins = tuple(Pin(pin["layers"], pin["device"]) for pin in pins_of(found.winner.plan))
    assert signature(ask.plan(replace(ask.options, pins=pins))) == found.winner.key


def test_a_cpus_times_stay_a_cpus(net: Network, tmp_path: Path) -> None:
    ask = asked(net)
    slow = {name: {k: 900 * us for k, us in row.items()}
            for name, row in (("g", GPU), ("d", DLA))}  # fmt: skip
    world = world_of(ask, slow["g"], slow["d"], clock="cpu-measured", switch_us=0.0)
    found = tuned(ask, world)
    assert world.cost(found.winner.plan, "latency") <= 1.02 * least(ask, world)
    document = tune_document(found, name="small", files={})
    assert "say nothing about the board" in document["note"]
    path = tmp_path / "tuned.profile.json"
    path.write_text(json.dumps(found.table()))
    with pytest.raises(DataError) as refused:
        read_profile(path)
    assert refused.value.code == "profile.clock"


def test_rounds_budget_and_bounds(net: Network) -> None:
    ask = asked(net)
    few = tuned(ask, world_of(ask, GPU, DLA), wish={"rounds": 2})
    assert (few.status, len(few.trials)) == ("rounds", 2)
    ticks = iter(range(0, 100_000, 10))
    short = tuned(ask, world_of(ask, GPU, DLA), wish={"budget_s": 30.0},
                  clock=lambda: next(ticks))  # fmt: skip
    assert short.status == "budget"
    assert "the budget of 30 s is spent" in short.why
    assert short.duel is not None
    bound = asked(net, bounds={"latency_us": 250.0})
    held = tuned(bound, world_of(bound, GPU, DLA, switch_us=0.0), wish={"rounds": 2})
    assert all(t.breaks for t in held.trials if t.cost("latency") > 250)
    assert not held.winner.breaks


def test_what_a_measurement_is_worth() -> None:
    document = {"samples_ms": [1.0, 3.0, 2.0], "throughput_qps": 400.0,
                "pipelined": {"throughput_qps": 800.0}}  # fmt: skip
    assert cost_of(document, "latency") == 2000.0
    assert cost_of(document, "throughput") == 1250.0
    with pytest.raises(EnvironmentLack) as lack:
        cost_of(document, "energy")
    assert lack.value.code == "tune.no-power"
    on_dla = {"segments": [{"device": "DLA0", "latency_ms": {"median": 1.0}}]}
    assert cost_of(on_dla, "gpu_time") == 0.0
    with pytest.raises(BoardError):
        cost_of({"segments": []}, "gpu_time")
    assert better_by([0.0] * 5, [1.0] * 5)["better"]
    assert not better_by([1.0] * 5, [0.0] * 5)["better"]
    sure = better_by([9.0, 9.1, 9.0, 8.9, 9.0], [10.0, 10.1, 9.9, 10.0, 10.0])
    assert sure["better"]
    assert sure["low"] < 0.1 < sure["high"]
    assert not better_by([9.0, 9.0], [10.0, 10.0])["better"]
    assert not better_by([9.0, 11.0, 9.0, 11.0, 9.9], [10.0] * 5)["better"]
