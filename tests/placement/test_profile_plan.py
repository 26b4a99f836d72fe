"""The best formats out of a build log alone, against every choice tried out."""

from __future__ import annotations

import os
import random
import time
from itertools import product
from pathlib import Path

import pytest

from edgekit.errors import DataError
from edgekit.placement.profiles.log_plan import LogPlan, plan_of_log
from edgekit.placement.profiles.reader import read_profile
from tests.buildlog import timing_log as tl


def planned(path: Path, lines: list[str]) -> LogPlan:
    file = path / "build.log"
    file.write_text("\n".join(lines))
    return plan_of_log(read_profile(file))


def test_the_fixture(tmp_path: Path) -> None:
    plan = planned(tmp_path, tl.stem())
    assert plan.latency_us == pytest.approx(tl.STEM_US)
    assert plan.optimal
    assert (plan.units[0].reads, plan.units[0].writes) == ((tl.DLA_IMAGE,), (tl.VECTOR,))
    assert [(r.tensor, r.source, r.goal) for r in plan.reformats] == [
        ("image", tl.LINEAR_IN, tl.DLA_IMAGE), ("score", tl.VECTOR_OUT, tl.LINEAR_OUT),
    ]  # fmt: skip
    assert (plan.agrees, plan.measured, plan.notes) == (True, 1.0, ())
    assert plan.dla_us == pytest.approx(100.0)
    assert plan.gpu_us == pytest.approx(46.0)
    low, high = plan.with_copies_us or (0, 0)
    assert plan.latency_us < low < high
    assert not plan.copies_measured


def test_what_the_builder_chose_is_only_compared(tmp_path: Path) -> None:
    other = [
        line.replace(f"to {tl.DLA_IMAGE}", f"to {tl.DLA_LINEAR}")
        if "Adding reformat" in line
        else line
        for line in tl.stem()
        if not line.startswith("Layer(")
    ]
    found, whole = planned(tmp_path, other), planned(tmp_path, tl.stem())
    assert found.agrees is False
    assert (found.units, found.reformats) == (whole.units, whole.reformats)
    cut = [line for line in tl.stem() if "Adding reformat" not in line and "tactics" not in line]
    assert planned(tmp_path, cut).agrees is None
    assert planned(tmp_path, cut).latency_us == whole.latency_us


def test_without_the_parsers_lines_formats_join_units(tmp_path: Path) -> None:
    bare = [line for line in tl.stem() if "puts: [" not in line and "network input" not in line]
    plan = planned(tmp_path, [line for line in bare if "Marking" not in line])
    assert plan.latency_us == pytest.approx(tl.STEM_US)
    assert "matched by format" in plan.notes[0]
    assert plan.copies_us is None


def test_a_run_in_the_same_log_measures_the_copies(tmp_path: Path) -> None:
    run = [f"{tl.I_}{what}: min = 1 ms, max = 3 ms, mean = {ms} ms, median = 2 ms"
           for what, ms in (("H2D Latency", 0.03), ("D2H Latency", 0.01))]  # fmt: skip
    plan = planned(tmp_path, [*tl.stem(), *run])
    assert plan.copies_us == (40.0, 40.0)
    assert plan.to_json()["host_copies"]["clock"] == "measured"


def test_a_unit_without_a_time_is_no_part_of_what_is_measured(tmp_path: Path) -> None:
    """Neither free nor measured, and nothing is proved of it."""
    lines = tl.stem()
    at = next(i for i, line in enumerate(lines) if "Computing costs for pool" in line)
    unknown = tl.unit("pool/More", "CaskPooling", [(["Half(9,1)"], ["Half(7,1)"], None)])
    plan = planned(tmp_path, [*lines[:at], *unknown, *lines[at:]])
    assert plan.latency_us == pytest.approx(tl.STEM_US + 26.0)
    assert plan.measured == pytest.approx(tl.STEM_US / (tl.STEM_US + 26.0), abs=1e-5)
    assert plan.dla_us + plan.gpu_us == pytest.approx(plan.latency_us)
    assert not plan.optimal
    # what is known of the whole counts for what is known of no unit
    whole = planned(tmp_path, [*lines[:at], *unknown, *lines[at:], ran(0.2)])
    assert whole.latency_us == pytest.approx(200.0)
    assert whole.measured == pytest.approx(tl.STEM_US / 200, abs=1e-5)


def ran(ms: float) -> str:
    times = f"min = {ms} ms, max = {ms} ms, mean = {ms} ms, median = {ms} ms"
    return f"{tl.I_}GPU Compute Time: {times}"


def test_a_measured_whole_bounds_the_sum_of_its_units(tmp_path: Path) -> None:
    plan = planned(tmp_path, [*tl.stem(), ran(0.1)])
    assert plan.latency_us == pytest.approx(100.0)
    assert plan.dla_us + plan.gpu_us == pytest.approx(100.0)
    assert plan.measured <= 1.0
    assert "whole engine" in plan.notes[-1]
    assert planned(tmp_path, [*tl.stem(), ran(0.3)]).latency_us == pytest.approx(tl.STEM_US)


def test_parts_of_a_subgraph_that_was_timed_are_not_added(tmp_path: Path) -> None:
    shape, form = (1, 8, 4), "Half(32,4,1)"
    chain = [("first", "MatMul", "x", "a"), ("soft", "Softmax", "a", "b"),
             ("second", "MatMul", "b", "y"), ("end", "Relu", "y", "z")]  # fmt: skip
    units = [("{ForeignNode[first...second]}", "Myelin", 30.0), ("soft", "CaskSoftMaxV2", 80.0),
             ("end", "PointWiseV2", 5.0)]  # fmt: skip
    plan = planned(tmp_path, [
        *tl.header(),
        *tl.network({"x": shape}, [(n, k, {r: shape}, {w: shape}) for n, k, r, w in chain], ["z"]),
        *(line for name, kind, us in units for line in tl.unit(name, kind, [([form], [form], us)])),
    ])  # fmt: skip
    assert [unit.name for unit in plan.units] == [units[0][0], "end"]
    assert plan.gpu_us == pytest.approx(35.0)


def random_log(seed: int) -> tuple[list[str], float]:
    """Units in a branching graph with random times, and the least sum by trying everything."""
    rng = random.Random(seed)
    count = rng.randint(2, 5)
    shape = (1, 4, 2, 2)
    inputs: list[list[int]] = []  # by unit, tensors: -1 is the network's, else the writer
    for v in range(count):
        inputs.append(sorted(rng.sample(range(-1, v), min(v + 1, rng.randint(1, 2)))))
    read = {t for tensors in inputs for t in tensors}
    leaves = [v for v in range(count) if v not in read]

    def form(tensor: int, which: int) -> str:
        return f"{('Float', 'Half', 'Int8')[which]}({16 + tensor},4,2,1)"

    units = []
    for tensors in inputs:
        v = len(units)
        combos = []
        for _ in range(rng.randint(1, 3)):
            reads = [form(t, rng.randrange(3)) for t in tensors]
            combos.append((reads, [form(v, rng.randrange(3))], float(rng.randint(5, 40))))
        units.append(combos)
    price = {
        (t, a, b): float(rng.randint(1, 30))
        for t in range(-1, count) for a in range(3) for b in range(3) if a != b
    }  # fmt: skip
    lines = tl.header(
        *tl.network(
            {"t-1": shape},
            [(f"n{v}", "Op", {f"t{t}": shape for t in tensors}, {f"t{v}": shape})
             for v, tensors in enumerate(inputs)],
            [f"t{v}" for v in leaves],
        )
    )  # fmt: skip
    for v, combos in enumerate(units):
        lines += tl.unit(f"n{v}", "CaskConvolution", combos)
    for t in range(-1, count):
        pairs = {(form(t, a), form(t, b)): us for (u, a, b), us in price.items() if u == t}
        into = {pair: us for pair, us in pairs.items() if t >= 0 or pair[0] == form(t, 0)}
        lines += tl.reformats(f"t{t}", into)
        if t in leaves:
            ends = {pair: us for pair, us in pairs.items() if pair[1] == form(t, 0)}
            lines += tl.reformats(f"t{t}", ends, outward=True)
    by_text = {(form(t, a), form(t, b)): us for (t, a, b), us in price.items()}
    best = float("inf")
    for choice in product(*units):
        paid = set()
        for v, (reads, _, _) in enumerate(choice):
            for t, goal in zip(inputs[v], reads, strict=True):
                paid.add((form(-1, 0) if t < 0 else choice[t][1][0], goal))
        paid |= {(choice[v][1][0], form(v, 0)) for v in leaves}
        total = sum(us for *_, us in choice)
        best = min(best, total + sum(by_text[pair] for pair in paid if pair[0] != pair[1]))
    return lines, best


@pytest.mark.parametrize("seed", range(12))
def test_every_choice_tried_out(tmp_path: Path, seed: int) -> None:
    lines, best = random_log(seed)
    plan = planned(tmp_path, lines)
    assert plan.latency_us == pytest.approx(best)
    assert plan.optimal


@pytest.mark.whole
def test_formats_of_their_own_in_every_unit_take_no_time_of_their_own(
    tmp_path: Path,
) -> None:
    """Units of several inputs share no formats: what only one has is no start for all of them."""
    count, shape = 90, (1, 64, 8, 8)
    forms = ("Float(4096,64,8,1)", "Half(4096,64,8,1)", "Half(512,64:8,8,1)", "Int8(128,64:32,8,1)")
    nodes = [
        (f"n{v}", "Add", {f"t{v}": shape, f"t{max(0, v - 2)}": shape}, {f"t{v + 1}": shape})
        for v in range(count)
    ]
    lines = tl.header(*tl.network({"t0": shape}, nodes, [f"t{count}"]))
    for v in range(count):
        combos = [
            ((a, b), (a,), 20.0 + (7 * v + 3 * i + j) % 5)
            for i, a in enumerate(forms)
            for j, b in enumerate(forms[: 2 if v else 1])
        ]
        lines += tl.unit(f"n{v}", "Cask", combos)
        pairs = {(a, b): 9.0 for a in forms for b in forms if a != b}
        lines += tl.reformats(f"t{v}", pairs)
    file = tmp_path / "build.log"
    file.write_text("\n".join(lines))
    began = time.process_time()
    profile = read_profile(file)
    reading = time.process_time() - began
    plan = plan_of_log(profile)
    planning = time.process_time() - began - reading
    assert plan.optimal
    assert len(plan.units) == count
    assert planning < 25 * reading


def test_a_log_cut_anywhere_gives_a_plan_or_a_reason(tmp_path: Path) -> None:
    text = "\n".join(tl.stem())
    latencies, codes = [], set()
    for end in range(200, len(text), 611):
        try:
            latencies.append(planned(tmp_path, text[:end].splitlines()).latency_us)
        except DataError as error:
            codes.add(error.code)
    assert codes == {"profile.no_times"}
    assert latencies[-1] == pytest.approx(tl.STEM_US)


def test_only_a_log_knows_every_format(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text('[{"name": "a", "timeMs": 1.0}]')
    with pytest.raises(DataError) as caught:
        plan_of_log(read_profile(file))
    assert caught.value.code == "profile.no_log"


@pytest.mark.skipif("EDGEKIT_LOGS" not in os.environ, reason="needs the log itself")
def test_resnet50_within_two_percent_of_its_run() -> None:
    folder = Path(os.environ["EDGEKIT_LOGS"])
    (log,) = folder.rglob("dla_int8_verbose.log")
    plan = plan_of_log(read_profile(log))
    assert plan.latency_us == pytest.approx(1278.58, rel=0.02)  # GPU compute time of dla_int8.log
    assert plan.agrees
    assert plan.units[0].reads == ("Int8(50176,1:4,224,1)",)
    assert plan.units[0].writes == plan.units[1].reads == ("Int8(3136,49:32,7,1)",)
    assert plan.units[-1].writes == ("Float(1000,1)",)


@pytest.mark.skipif("EDGEKIT_LOGS" not in os.environ, reason="needs the logs themselves")
@pytest.mark.parametrize(("name", "us"), [("fp16", 398640.0), ("int8_implicit", 78475.6)])
def test_detr_within_two_percent_of_its_run(name: str, us: float) -> None:
    """The median GPU compute time of detr_dla_*.log: most of its units are in the cache."""
    for log in Path(os.environ["EDGEKIT_LOGS"]).rglob(f"detr_dla_{name}_verbose.log"):
        plan = plan_of_log(read_profile(log))
        assert plan.latency_us == pytest.approx(us, rel=0.02)
        assert plan.measured > 0.99
