"""Times in build logs: what four generations of builders print."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest

from edgekit.buildlog.timings import TimingParser, Timings
from tests.buildlog import timing_log as tl


def parsed(lines: Iterable[str]) -> Timings:
    parser = TimingParser()
    for line in lines:
        parser.feed(line)
    return parser.result()


def test_a_whole_log() -> None:
    found = parsed(tl.stem())
    loadable, pool = found.units
    assert (loadable.name, loadable.on_dla, pool.on_dla) == (tl.LOADABLE, True, False)
    assert [c.us for c in loadable.combinations] == [150.0, 100.0, 120.0]
    assert pool.combinations[1].reads == (tl.VECTOR,)
    by_tensor = {(r.tensor, r.source, r.goal): r.us for r in found.reformats}
    assert by_tensor["r", tl.VECTOR, tl.HALF] == 15.0
    assert [r.tensor for r in found.reformats if r.outward] == ["score", "score"]
    assert found.nodes[0].inputs == ("image", "w")
    assert dict(found.shapes)["r"] == tl.WIDE
    assert (found.inputs, found.outputs, found.finished) == (("image",), ("score",), True)
    assert [(c.tensor, c.goal) for c in found.chosen] == [
        ("image", tl.DLA_IMAGE),
        ("score", tl.LINEAR_OUT),
    ]
    assert [layer.kind for layer in found.engine] == ["DLA", "CaskPooling"]
    assert found.engine[1].inputs[0].format == "Int8[1,32:32,8,8]"
    assert (found.sms, found.io_formats) == (16, ("fp32:CHW", "fp32:CHW"))


def test_headings_without_names_and_the_builders_cache() -> None:
    """TensorRT 8: the runner has the name; a layer seen before is not timed again."""
    combos = [(["Half(8,1)"], ["Half(8,1)"], 7.0), (["Float(8,1)"], ["Float(8,1)"], 9.0)]
    again = [(reads, writes, None) for reads, writes, _ in combos]
    found = parsed(
        [
            *tl.unit("a + b", "CaskConvolution", combos, heading=False),
            *tl.unit("c + d", "CaskConvolution", again),
        ]
    )
    assert [u.name for u in found.units] == ["a + b", "c + d"]
    assert [[c.us for c in u.combinations] for u in found.units] == [[7.0, 9.0], [7.0, 9.0]]


def test_the_cache_reports_times_from_tensorrt_10_on() -> None:
    """Layers of equal shape are timed once; the others have a line a combination, no heading."""
    one, two, wide = "Half(64,1)", "Half(8:8,1)", "Half(256,1,1,1)"
    cached = (
        f"{tl.V}b [Fc] [{one} -> {one}] got cached result: CaskGemmConvolution, tactic "
        "0x0000000000020794, 0.0384307 ms",
        f"{tl.V}b [Fc] [{one} -> {one}] got cached result: CaskConvolution, tactic "
        "0x00000000000203e8, 0.021 ms",
        f"{tl.V}b [Fc] [{one}, {two} -> {two}] got cached result: CaskGemmConvolution, tactic "
        "0x0000000000020796, 3.40282e+38 ms",
        f"{tl.V}Optimizer Reformat(<in> -> y) [{one} -> {two}] got cached result: Reformat, tactic "
        "0x00000000000003e8, 0.0125619 ms",
        f"{tl.V}Optimizer Reformat(x -> <out>) [{one} -> {wide}] got cached result: Reformat, "
        "tactic 0x00000000000003ea, 0.014 ms",
    )
    found = parsed(
        [
            *tl.header(),
            *tl.unit("a [Fc]", "CaskGemmConvolution", [([one], [one], 40.0)]),
            f"{tl.V}=============== Computing costs for b [Fc]",
            *cached,
        ]
    )
    first, second = found.units
    assert (first.name, second.name) == ("a [Fc]", "b [Fc]")
    assert second.runners == ("CaskGemmConvolution", "CaskConvolution")
    assert [(c.reads, c.writes, c.us) for c in second.combinations] == [
        ((one,), (one,), 21.0),
        ((one, two), (two,), None),
    ]
    assert [(r.tensor, r.outward, r.goal, r.us) for r in found.reformats] == [
        ("y", True, two, 12.5619),
        ("x", False, wide, 14.0),
    ]


def test_several_runners_the_fastest_counts() -> None:
    lines = [
        "[TRT] *** Autotuning format combination: Half(8,1) -> Half(8,1) ***************",
        "[TRT] --------------- Timing Runner: x (PointWise)",
        "[TRT] Fastest Tactic: 0xd15ea5edd15ea5ed Time: inf",
        "[TRT] --------------- Timing Runner: x (CudnnConvolution)",
        "[TRT] Fastest Tactic: 0x0000000000000000 Time: 0.05",
        "[TRT] --------------- Timing Runner: x (CaskConvolution)",
        "[TRT] Fastest Tactic: 0x0000000000000007 Time: 0.03",
        "[TRT] --------------- Timing Runner: x (CublasConvolution)",
        "[TRT] Fastest Tactic: -3360065831133338131 Time: 3.40282e+38",
    ]
    (unit,) = parsed(lines).units
    assert unit.combinations[0].us == 30.0
    assert len(unit.runners) == 4


def test_old_builders_print_no_headings() -> None:
    def one(name: str, us: float, form: str) -> list[str]:
        return [
            f"[TensorRT] VERBOSE: *************** Autotuning format combination: {form} -> {form} "
            "***************",
            f"[TensorRT] VERBOSE: --------------- Timing Runner: {name} (CaskConvolution)",
            f"[TensorRT] VERBOSE: Fastest Tactic: 12 Time: {us / 1e3}",
        ]

    form, half = "Float(1,8,64)", "Half(1,8,64)"
    found = parsed([*one("a", 5, form), *one("a", 4, half), *one("b", 3, form)])
    assert [(u.name, [c.us for c in u.combinations]) for u in found.units] == [
        ("a", [5.0, 4.0]),
        ("b", [3.0]),
    ]


def test_both_layouts_of_the_profile_table() -> None:
    old = [
        "[I]             Layer   Time (ms)   Avg. Time (ms)   Time %",
        "[I]         x to nvm       33.99           0.0852      1.1",
        "[I]            total       34.00           0.0853    100.0",
        "[I] ",
    ]
    new = [
        "[I]    Time(ms)     Avg.(ms)   Median(ms)   Time(%)   Layer",
        "[I]     3.1e+03        7.691        7.680      98.4   y + (Unnamed Layer* 3) [Shuffle]",
        "[I]        0.00        0.000        0.000      -nan   z",
        "[I]   3.1e+03        7.691        7.680     100.0   Total",
        "[I] Total GPU Compute Time: 9 s",
    ]
    assert [(r.name, r.us) for r in parsed(old).table] == [("x to nvm", 85.2)]
    assert [(r.name, r.us) for r in parsed(new).table] == [
        ("y + (Unnamed Layer* 3) [Shuffle]", 7691.0),
        ("z", 0.0),
    ]


def test_tensors_of_old_and_new_engines() -> None:
    lines = [
        "[TRT] [V] Engine Layer Information:",
        "Layer(Cask): a + b, Tactic: 7, (Unnamed Layer* 5) [Pool]_output[Half(16,5,5)], "
        "r (z)[Int8(4)] -> o[Half(120,1,1)]",
        "Layer(DLA): {ForeignNode[a...b]}, Tactic: 0x3, Reformatted Input Tensor 0 to y "
        "(Int8[1,3:4,8]), w (Half[]) -> z (q) (Int8[1,2:32,7])",
    ]
    old, new = parsed(lines).engine
    assert [(t.name, t.format) for t in (*old.inputs, *old.outputs)] == [
        ("(Unnamed Layer* 5) [Pool]_output", "Half(16,5,5)"),
        ("r (z)", "Int8(4)"),
        ("o", "Half(120,1,1)"),
    ]
    assert [(t.name, t.format) for t in (*new.inputs, *new.outputs)] == [
        ("Reformatted Input Tensor 0 to y", "Int8[1,3:4,8]"),
        ("w", "Half[]"),
        ("z (q)", "Int8[1,2:32,7]"),
    ]


def test_the_last_build_with_timings_counts() -> None:
    other = [line.replace("pool/Mean", "pool/Other") for line in tl.stem()]
    assert parsed([*tl.stem(), *other]).units[1].name == "pool/Other"
    assert parsed([*tl.stem(), *tl.header()]).units[1].name == "pool/Mean"


def test_a_log_cut_anywhere_says_less_and_never_fails() -> None:
    text = "\n".join(tl.stem())
    before = 0
    for end in range(0, len(text), 97):
        found = parsed(text[:end].splitlines())
        timed = sum(c.us is not None for u in found.units for c in u.combinations)
        assert timed >= before
        before = timed
    assert before == 5


@pytest.mark.parametrize(
    "piece",
    [
        "*" * 50_000,
        "*** Autotuning format combination: " + "a( -> " * 9_000 + "***",
        "*** Autotuning Reformat: " + " -> " * 12_000 + " ***",
        "x [Conv] inputs: " + "[" * 60_000,
        "x [Conv] inputs: " + "[a -> (" * 9_000,
        "--------------- Timing Runner: " + " (a" * 20_000,
        "Fastest Tactic: " * 4_000,
        "Adding reformat layer: Reformatted Input Tensor 0 to " + "x (y) from " * 5_000,
        "Engine Layer Information:\nLayer(A): x, Tactic: 0x1, " + "a (" * 15_000,
        "Layer   Time (ms)   Avg. Time (ms)\na" + " 1" * 30_000,
        "Time(ms)  Avg.(ms)  Median(ms)\n" + "1 " * 30_000,
        "Adding network input: " + " with dtype: a, dimensions: (" * 2_000,
    ],
)
def test_hostile_lines_cost_linear_time(piece: str) -> None:
    start = time.process_time()
    parsed([f"[TRT] {line}" for line in piece.splitlines()] * 3)
    assert time.process_time() - start < 1


def test_a_long_log_costs_time_but_no_memory() -> None:
    def lines() -> Iterator[str]:
        for number in range(30_000):
            yield f"{tl.V}Tactic Name: sm80_xmma_gemm_{number} Tactic: 0x{number:016x} Time: 0.5"
        yield from tl.stem()

    parsed(lines())
    tracemalloc.start()
    start = time.process_time()
    found = parsed(lines())
    seconds = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.units) == 2
    assert peak < 1 << 20
    assert seconds < 5
