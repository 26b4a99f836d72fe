"""What people read of hand-made runs, plans, measurements and checks: golden texts.

The first of each is whole; of every other only the lines that differ from the first are stored.
"""

from __future__ import annotations

import difflib
import html
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from edgekit.benchmark.document import Bench, BoardName, bench_document
from edgekit.benchmark.trace.tegrastats import read_tegrastats
from edgekit.dla.memory import LoadableMemory
from edgekit.placement.check_document import SparsityCheck
from edgekit.placement.plan import (
    BuilderGroups,
    Constraints,
    MeasuredPart,
    Pin,
    Plan,
    Reformat,
    Share,
)
from edgekit.quantize.scales import Change
from edgekit.reports.comparison import with_baseline
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html
from edgekit.reports.markdown import markdown
from edgekit.reports.schema import Report
from edgekit.reports.terminal.check import check_layers, sparsity_text, summary_check
from edgekit.reports.terminal.measurement import bench_text
from edgekit.reports.terminal.summary import summary_plan, terminal_summary
from edgekit.results.comparison import compare
from edgekit.targets.loader import get
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.protocol.codec import read, write
from tests.benchmark import handmade_plan
from tests.benchmark.test_verdict import idle, power, sample
from tests.contracts.conftest import Golden
from tests.reports import handmade_run
from tests.reports.handmade_check import (
    NO_SPARSITY,
    POOLS,
    document,
    fix,
    layer,
    loadable,
    raw,
    sparse_layer,
)
from tests.reports.shown import shown
from tests.results.measurements import times
from tests.results.test_compare import STEADY, result

ORIN = get("jetson-agx-orin-64gb")
LOG = Path(__file__).parents[1] / "data/orin_jp62_trt103/teg_pm_MAXN_dla_int8.log"
LONG = "/backbone/stage_with_a_long_name/" * 4 + "Conv"
Texts = dict[str, list[str]]


def stored(variants: Mapping[str, Texts]) -> dict[str, Any]:
    """The first variant's lines, and what each other has instead of them."""
    (name, first), *others = variants.items()
    found: dict[str, Any] = {name: {key: whole(lines) for key, lines in first.items()}}
    for name, texts in others:
        found[name] = {
            key: whole([x for x in difflib.ndiff(first.get(key, []), lines) if x[0] in "+-"])
            for key, lines in texts.items()
        }
    return found


def whole(lines: list[str]) -> list[list[str]]:
    """Lines by the ten: a golden document has a digest of a longer list."""
    return [lines[at : at + 10] for at in range(0, len(lines), 10)]


def page(report: Report) -> list[str]:
    """The page's texts by row, item and paragraph; the first rows of tables and lists."""
    text = render_html(report).partition("<body")[2].partition(">")[2]
    text = re.sub("<(svg|script).*?</\\1>", "", text, flags=re.DOTALL)
    for tag, most in (("tr", 6), ("li", 12)):
        row = rf"<{tag}\b(?:(?!</{tag}>).)*</{tag}>\s*"
        rows = rf"((?:{row}){{{most}}})(?:{row})+"
        text = re.sub(rows, r"\1", text, flags=re.DOTALL)
    text = re.sub(r"</(?:tr|p|li|h\d|dd|caption|summary|div|section)>", "\v", text)
    text = html.unescape(re.sub("<[^>]*>", " ", text))
    return [" ".join(line.split()) for line in text.split("\v") if line.strip()]


def texts_of(report: Report) -> Texts:
    out = io.StringIO()
    terminal_summary(report, Console(file=out, width=80))
    terminal = out.getvalue().splitlines()
    assert max(map(len, terminal)) <= 80
    paper, _, layers = markdown(report).partition("Layers, slowest first")
    answers = [f"{one.question}: {one.ok}" for one in report.answer]
    gates = [f"{one.gate}: {one.passed}" for one in report.verdict.gates]
    return {
        "terminal": terminal,
        "markdown": [*paper.splitlines(), *layers.splitlines()[:9]],
        "page": page(report),
        "document": [report.headline, *answers, *gates],
    }


def on_gpu(plan: Plan, **changes: Any) -> Plan:
    layers = tuple(replace(one, device="GPU", segment=0) for one in plan.layers)
    plan = replace(plan, layers=layers, plans=(Share(1.0, layers),), loadables=(), pools={})
    return replace(plan, transitions=0, **changes)


def accuracy(**changes: Any) -> dict[str, Any]:
    found = handmade_run.facts().accuracy
    assert found is not None
    return {**found.to_json(), **changes}


def measurement(**changes: Any) -> dict[str, Any]:
    found = handmade_run.facts().bench
    assert found is not None
    return {**found.to_json(), **changes}


def group(channels: list[list[int]], snr: float | None, **changes: Any) -> dict[str, Any]:
    worst = {"channel": channels[0][0], "snr_db": snr, **changes}
    given = {"output": "dets", "channels": channels, "range": 640.0, "cosine": 0.9999}
    return {**given, "snr_db": snr, "worst": worst, "collapsed": False, **changes}


def segment(lane: int, index: int, device: str) -> dict[str, Any]:
    """A segment of a measurement."""
    row = {"min": 0.1, "mean": 0.2, "median": 0.2, "p99": 0.3, "max": 0.4}
    return {"lane": lane, "index": index, "device": device, "layers": [], "latency_ms": row}


def judged(lane: int, index: int, device: str) -> dict[str, Any]:
    """A segment of an accuracy."""
    figures = {"cosine": 0.9, "cosine_min": 0.9, "snr_db": 7.0, "exact": False, "max_abs": 0.1}
    return {"lane": lane, "segment": index, "device": device, "tensor": "y", "constant": False} | (
        figures
    )


SEGMENTS = [(lane, i, device) for lane in (0, 1) for i, device in enumerate(("GPU", "DLA0"))]
NONE = dict.fromkeys(("scales", "accuracy", "bundle", "refit", "bench", "board"))


def traced(change: Callable[[dict[str, Any]], None] = lambda given: None, **more: Any) -> Report:
    facts, given = handmade_run.facts(), handmade_plan.measurement()
    change(given)
    trace = handmade_plan.trace(facts.plan, given, dla_cores=2, network=facts.network)
    return report_document(handmade_run.facts(trace=trace, **more))


def unbooked(given: dict[str, Any]) -> None:
    nodes = given["nodes"]
    nodes.insert(3, {"lane": 0, "index": 0, "node": "reorder", "op": "Reorder", "median_us": 23.0})
    nodes.insert(4, nodes.pop(1))


def slow_on_board(given: dict[str, Any]) -> None:
    light = min(handmade_run.facts().plan.layers, key=lambda placed: placed.predicted_us).name
    for node in given["nodes"]:
        if node["node"] == f"node/{light}":
            node["median_us"] = 5000.0


def hybrid() -> Report:
    """Two frames of an engine: a layer in two pieces, a loadable, and a copy that is no layer's."""
    rows = report_document(handmade_run.facts()).layers
    alone, members = rows[0].name, [row.name for row in rows[3:6]]
    clock = "board-measured"

    def event(cat: str, name: str, us: float, frame: int, **known: Any) -> dict[str, Any]:
        args = {"clock": clock, "segment": 1, "frame": frame, **known}
        if cat == "layer":
            args = {"device": "GPU", "measured_us": us, **args}
        at = {"ph": "X", "cat": cat, "pid": 1, "tid": 1, "ts": 1000.0 * frame, "dur": us}
        return {**at, "name": name, "args": args}

    events = []
    for frame in (0, 1):
        loadable = f"{{ForeignNode[{members[0]}...{members[-1]}]}}"
        events += [
            event("segment", "segment 1", 500.0, frame),
            event("layer", alone, 10.0, frame, layer=alone),
            event("layer", alone, 20.0 + 4 * frame, frame, layer=alone),
            event("layer", "x to nvm", 7.0, frame),
            event(
                "layer",
                loadable,
                105.0,
                frame,
                device="DLA0",
                layer=" + ".join(members),
                layers=members,
            ),
        ]
    other = {"schema": "edgekit.trace/1"}
    trace = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}
    return report_document(handmade_run.facts(trace=trace, bench=measurement(clock=clock)))


def runs() -> dict[str, Report]:
    plan = handmade_plan.plan()
    own = replace(plan.predicted, latency_us=1200.0, throughput_qps=2400.0, energy_uj=120.0)
    own = replace(own, gpu_us=40.0)
    alone = replace(plan.predicted, latency_us=1000.0, throughput_qps=1000.0, energy_uj=200.0)
    alone = replace(alone, gpu_us=1e3)
    judgement = handmade_run.facts().judgement
    refused = replace(judgement.verdicts["relu1"], ok=False, reasons=(handmade_run.SHUFFLE,))
    scales = handmade_run.facts().scales
    assert scales is not None
    rule = "concatenation.int8_ranges"
    changes = tuple(
        Change(f"t{n}<b>", 0.125, 0.125 * 2 ** (3 - n / 10), rule, ("join", f"l{n}"))
        for n in range(25)
    )
    failed = {"name": "build", "status": "failed", "seconds": 1.0, "detail": ""}
    hot = {"status": "INVALID", "command": "edgekit bench net.yaml"}
    hot |= {"reasons": [{"code": "x", "message": "too hot", "remedy": "cool it"}]}
    back = {"release": "000002-bbb", "at": "2026-01-02T03:04:05Z", "reason": "false alarms"}
    nan = {"output": "y", "what": "NaN", "inputs": 1, "since": None, "message": "'y' has NaN"}
    still = {"output": "y", "variation": 0.001, "message": "output 'y' differs by 0.1 %"}
    parts = accuracy()["segments"]
    monitor = read_tegrastats(LOG, interval_ms=500)
    board = handmade_plan.measured(
        backend="tensorrt",
        clock="board-measured",
        monitor=write(replace(monitor, idle=monitor.samples[:4])),
        runtime={"library": "libnvinfer.so.10", "flags": {"dla_core": 0, "spin": False}},
    )
    facts: dict[str, dict[str, Any]] = {
        "plain": {},
        "12 frames": {"bench": measurement(iterations=12)},
        "2000 frames": {"bench": measurement(iterations=2000)},
        "a CPU's invalid time": {"bench": measurement(verdict=hot)},
        "a board's invalid time": {"bench": measurement(verdict=hot, clock="board-measured")},
        "another release": {
            "bench": measurement(
                taken_back=back, environment={"release": "000001-aaa"}, clock="board-measured"
            )
        },
        "host work": {
            "bench": measurement(
                phases_ms={"host": dict.fromkeys(("mean", "median", "max"), 0.268)}
            )
        },
        "a board's monitor": {
            "bench": bench_document(board, plan, name="resnet50", target=ORIN),
            "backend": "tensorrt",
        },
        "segments of two plans": {
            "plan": handmade_plan.plan(2),
            "accuracy": {"segments": [judged(*one) for one in SEGMENTS]},
        },
        "NaN": {"accuracy": accuracy(computed="emulated on a CPU", nonfinite=[nan])},
        "channel groups": {
            "accuracy": accuracy(
                groups=[group([[0, 3]], 41.26), group([[4, 83], [90, 90]], 24.13)],
                scores=[{"output": "dets", "above": 314, "kept": 309}],
                failures=[],
            )
        },
        "exact and unknown SNR": {
            "accuracy": accuracy(
                snr_db=-999.0,
                groups=[group([[0, 1]], None, exact=True), group([[2, 3]], None)],
            )
        },
        "constant outputs": {
            "accuracy": accuracy(
                cosine=1.0,
                constant=[still],
                segments=[{**one, "constant": one["segment"] > 2} for one in parts],
            )
        },
        "random weights": {"accuracy": accuracy(data="random weights and 16 synthetic images")},
        "below the gate": {
            "accuracy": {"cosine": 0.5, "metric": "cosine", "min": 0.99, "passed": False},
            "refit": {"bit_equal": False},
            "steps": (failed,),
        },
        "stopped early": {**NONE, "steps": (), "rewrites": (), "files": {}, "notes": ()},
        "built": {"built": (handmade_run.BUILT,)},
        "changed scales": {"scales": replace(scales, changes=changes)},
        "two plans": {"plan": handmade_plan.plan(2)},
        "no DLA": {"plan": on_gpu(plan), "target": get("jetson-orin-nano-8gb")},
        "all on the GPU": {"plan": on_gpu(plan)},
        "pinned": {"plan": on_gpu(plan, constraints=Constraints(pins=(Pin("*", "GPU"),)))},
        "no core": {"plan": on_gpu(plan, constraints=Constraints(dla_cores=()))},
        "FP32": {"plan": on_gpu(plan, precision="fp32")},
        "too large": {"plan": replace(plan, constraints=Constraints(pools={"local_dram": 4096}))},
        "a further refusal": {
            "judgement": replace(judgement, verdicts={**judgement.verdicts, "relu1": refused})
        },
        "notes": {
            "plan": replace(plan, notes=("of the plan",)),
            "notes": ("a scale", "of the plan", "else"),
            "note_groups": {"accuracy": ["a scale"]},
        },
        **{
            f"objective {name}": {
                "plan": replace(plan, objective=name, predicted=own, baselines={"gpu_only": alone})
            }
            for name in ("gpu_time", "energy", "throughput", "latency")
        },
    }
    found = {name: report_document(handmade_run.facts(**one)) for name, one in facts.items()}
    found["a measured frame"] = traced()
    found["time of no layer"] = traced(unbooked)
    found["slow on the board"] = traced(slow_on_board, bench=measurement(clock="board-measured"))
    found["a hybrid engine"] = hybrid()
    old, new = (result(times(99, level, seed=1), f"#{level}") for level in (2.0, 2.5))
    found["slower than the baseline"] = with_baseline(found["plain"], [old], [new], STEADY)
    found["one measurement before"] = with_baseline(found["plain"], [old], [new])
    return found


def test_runs(golden: Golden) -> None:
    golden("texts/runs", stored({name: texts_of(report) for name, report in runs().items()}))


def test_plans(golden: Golden) -> None:
    plan = handmade_plan.plan()
    alone = plan.baselines["gpu_only"]
    measured = MeasuredPart(
        "build.log", "log", 0.25, {"gpu": 0.25, "dla": 0.25}, 1.0, {}, 9, ("a", "b"), ()
    )
    halves = []
    for layers in (plan.layers, on_gpu(plan).layers):
        types = {one.name: "GPU" if one.device == "GPU" else "DLA" for one in layers}
        halves.append(Share(0.5, layers, 0, plan.predicted, builder=BuilderGroups(types)))
    busy = replace(plan.loadables[0], launch_us=1e6, border_us=2e6)
    on_dla = tuple(replace(one, device="DLA0") for one in plan.layers)
    reformats = (Reformat("x", "a", "b", 7e6),)
    plans = {
        "plain": plan,
        "two": handmade_plan.plan(2),
        "unknown cost": replace(plan, unknown_cost=("a", "b")),
        "bands and measured parts": replace(
            plan,
            objective="latency",
            bands={"latency_us": (500.0, 3000.0)},
            measured=measured,
            reformats=(Reformat("x", "fp32:LINEAR", "int8:CHW32", 31.5, "measured"),),
            builder=BuilderGroups({"a": "DLA", "b": "GPU"}),
        ),
        **{
            f"GPU alone, {name}": on_gpu(
                plan, objective=name, predicted=alone, bands={"throughput_qps": (1e3, 2e3)}
            )
            for name in ("latency", "throughput", "period")
        },
        "a mix": replace(plan, plans=tuple(halves), builder=halves[0].builder),
        "launches and reformats": replace(
            plan,
            loadables=(busy, *plan.loadables[1:]),
            plans=(replace(plan.plans[0], reformats=reformats),),
            baselines_keep={"gpu_only": False, "tensorrt_auto": True},
        ),
        "reformats alone": replace(
            plan, plans=(replace(plan.plans[0], layers=on_dla, reformats=reformats),)
        ),
        "kept off": on_gpu(plan, kept_off=("max_transitions 0",)),
    }
    golden("texts/plans", stored({name: _shown(summary_plan(one)) for name, one in plans.items()}))


def _shown(text: Any, width: int = 80) -> Texts:
    lines = shown(text, width).splitlines()
    assert max(map(len, lines)) <= width or any(" " not in line.strip() for line in lines)
    return {"terminal": lines}


def rails(draw: int) -> dict[str, Any]:
    return {"VDD_GPU_SOC": {"now": draw}, "VDD_CPU_CV": {"now": 1000}, "VIN_SYS_5V0": {"now": 4000}}


def on_board(quiet_mw: int = 4000, **changes: Any) -> Bench:
    samples = [
        sample(t / 10, rails_mw=rails(9000), temperatures_c={"tj": 50.0 + t}) for t in range(31)
    ]
    quiet = [{**idle()[0], "t_s": -2.0 + t / 10, "rails_mw": rails(quiet_mw)} for t in range(10)]
    measured = {
        **handmade_plan.measurement(),
        "clock": "board-measured",
        "samples_ms": [2.0, 2.001] * 800,
        "iterations": 1600,
        "monitor": {"samples": samples, "idle": quiet, "facts": {}},
        "power": {**power(), "changed": True},
        "phases_ms": {"compute": {"min": 1.5, "median": 1.6, "p999": 1.9, "max": 2.0}},
        "cold": {"open_ms": 812.0, "first_ms": 12.5},
        **changes,
    }
    return bench_document(
        read(Measurement, measured),
        handmade_plan.plan(),
        name="net",
        board=BoardName(name="lab"),
        target=ORIN,
    )


def test_measurements(golden: Golden) -> None:
    short = handmade_plan.measured(iterations=3, duration_s=0.1)
    two = Bench.model_validate(measurement(segments=[segment(*one) for one in SEGMENTS]))
    documents = {
        "a board's": on_board(),
        "150 frames": on_board(iterations=150),
        "20000 frames": on_board(iterations=20_000),
        "streams": on_board(
            streams=[{"stream": n, "iterations": 800, "throughput_qps": 250.0} for n in (0, 1)],
            runtime={"flags": {"graph": False}, "notes": ["left out: graph"]},
            power=power("MODE_30W"),
        ),
        "no energy over idle": on_board(quiet_mw=12_000),
        "an invalid one": on_board(iterations=3, power={**power("MODE_30W"), "locked": False}),
        "a CPU's": bench_document(handmade_plan.measured(), handmade_plan.plan()),
        "a CPU's invalid one": bench_document(short, handmade_plan.plan(), config="my net.yaml"),
        "of a model": bench_document(short, handmade_plan.plan(), config="net.onnx"),
        "of two plans": two,
        "none": bench_document(None, handmade_plan.plan()),
    }
    golden(
        "texts/measurements",
        stored(
            {
                name: {
                    **_shown(bench_text(one), 100),
                    "markdown": markdown(one).splitlines(),
                }
                for name, one in documents.items()
            }
        ),
    )


def test_comparisons(golden: Golden) -> None:
    old = result(times(99, 2.0, seed=1), "a|b`c*d*")
    found = {
        name: {"markdown": markdown(compare([old], [new], past=STEADY)).splitlines()}
        for name, new in (
            ("slower", result(times(99, 3.0, seed=2), "b")),
            ("faster", result(times(99, 1.5, seed=2), "b")),
            ("the same", result(times(99, 2.0, seed=3), "b")),
        )
    }
    golden("texts/comparisons", stored(found))


def test_checks(golden: Golden) -> None:
    predicted = raw()["predicted"]
    limit = {"pool": "global_dram", "rule": "memory.weights", "need": 600 << 20}
    limit |= {"limit": 512 << 20, "documented": 600 << 20, "source": "NvInfer.h", "fix": "cut"}
    refused = loadable(broken=[limit])
    told = read(LoadableMemory, refused).refusal
    need = {"managed_sram": 1 << 20, "local_dram": 8 << 20, "global_dram": 4 << 20}
    other = loadable("a", need={**need, "local_dram": 2 << 20, "global_dram": 64 << 20})
    core = {"need": {**need, "local_dram": 10 << 20, "global_dram": 68 << 20}, "limits": POOLS}
    lost = {"rule": "memory.loadables", "message": "2 layers could run", "found": "2 layers"}
    lost |= {"limit": "16", "source": "the guide", "fix": "mend", "layers": ["a", "b"]}
    fixes = [
        fix("shuffle.batch", gain=None, auto=204.0, loadables=1, candidates=2, share=0.9),
        fix("reduce.function", gain=None, auto=200.0, loadables=2),
    ]
    both = fix("shuffle.flatten", "shuffle.batch", gain=9.0, auto=191.0)
    shuffled = layer("a", ok=False, reasons=[handmade_run.SHUFFLE])
    otherwise = layer("c", ok=False, reasons=[replace(handmade_run.SHUFFLE, fix="do else")])
    rows = [
        layer(LONG),
        layer("slot", placed="GPU"),
        layer("prob", ok=False, certainty="disputed", reasons=[handmade_run.REASON]),
    ]
    checks = {
        "plain": document(),
        "three loadables": document(loadables=3),
        "fixes of legality": document(loadables=2, fixes=fixes, fixes_together=None),
        "fixes together": document(fixes=fixes, fixes_together=both),
        "five fixes": document(
            fixes=[fix(f"a.r{i}", gain=10.0 - i, auto=100.0) for i in range(5)], fixes_together=None
        ),
        "no prediction": document(
            predicted=None, fixes=[fix("shuffle.flatten", gain=None)], fixes_together=None
        ),
        "no DLA": document(
            predicted={**predicted, "dla_us": 0.0, "auto_us": 320.0}, fixes=[], fixes_together=None
        ),
        "faster on the GPU": document(predicted={**predicted, "auto_us": 500.0}),
        "broken limits": document(memory_refused=[refused] * 7, warnings=[told, "of another"]),
        "a core": document(memory=[loadable("a", need=need)], memory_core=core),
        "two on a core": document(
            memory=[loadable("a", need=need), other],
            memory_core=core,
            memory_disputes={"managed_sram": "half of it"},
        ),
        "no slot": document(
            layers=[layer("a", placed="GPU"), layer("b", placed="GPU")],
            without_slot=lost,
            warnings=[lost["message"]],
        ),
        "inserted": document(layers=[{**shuffled, "nodes": []}]),
        "fixes that differ": document(layers=[otherwise, shuffled, {**shuffled, "name": "b"}]),
        "a disputed yes": document(
            layers=[layer("pool", certainty="disputed", reasons=[handmade_run.SHUFFLE])]
        ),
        "hostile": document(
            layers=[layer("\x1b]0;t\x07" + LONG, ok=False, reasons=[handmade_run.REASON])]
        ),
    }
    found = {name: {"terminal": summary_check(one).splitlines()} for name, one in checks.items()}
    for texts in found.values():
        assert max(map(len, texts["terminal"])) <= 80
    golden(
        "texts/checks",
        {
            **stored(found),
            "layers": whole(check_layers(document(layers=rows)).splitlines()),
            "layers in 80 columns": whole(
                check_layers(document(layers=rows), width=80).splitlines()
            ),
            "sparsity": {name: sparsity_text(one).splitlines() for name, one in sparse().items()},
        },
    )


def sparse() -> dict[str, SparsityCheck]:
    reason = {**write(handmade_run.REASON), "rule": "sparsity.channels"}

    head = {key: raw()[key] for key in ("model", "target", "precision", "tensorrt")}
    report = {
        **NO_SPARSITY,
        **head,
        "schema": "edgekit.sparsity/1",
        "convolutions": [
            sparse_layer("conv"),
            sparse_layer("stem", possible=False, share=0.25, macs_saved=0, reasons=[reason]),
        ],
        "possible": 1,
        "present": 1,
        "macs": 2000,
        "macs_saved": 500,
        "seconds_saved": 2e-6,
        "pays": True,
    }
    nothing = {**report, "convolutions": [], "possible": 0, "present": 0}
    variants = {"some": report, "none": nothing, "too little": {**report, "pays": False}}
    return {name: read(SparsityCheck, one) for name, one in variants.items()}
