"""``edgekit bench BENCH.json --tegrastats LOG``: a session of a board, measured by its author."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgekit.benchmark.document import Bench
from edgekit.benchmark.energy import energy
from edgekit.benchmark.trace.tegrastats import monitor_of_log, read_tegrastats
from edgekit.cli.main import app
from edgekit.errors import DataError, EdgekitError, UsageError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.tegrastats_log import monitor_from_log, with_tegrastats
from edgekit.results.recording import record
from edgekit.results.store import ResultStore
from edgekit.targets.loader import get
from tests.benchmark import handmade_plan

DATA = Path(__file__).parents[1] / "data/orin_jp62_trt103"
LOG = DATA / "teg_conc_solo_dla0.log"
TARGET = "jetson-agx-orin-64gb"


@pytest.fixture
def bench_json(tmp_path):
    said = json.loads((DATA / "conc_solo_dla0.json").read_text("utf-8"))
    seconds = float(said["duration_s"])
    sent = handmade_plan.measurement()
    document = {key: sent[key] for key in sent if key in Bench.model_fields} | {
        "schema": "edgekit.bench/1",
        "name": "app",
        "clock": "board-measured",
        "target": TARGET,
        "power_mode": "MAXN",
        "warmup_ms": 500.0,
        "duration_s": seconds,
        "energy": None,
        "iterations": round(said["aggregate_throughput_qps"] * seconds),
        "monitor": None,
    }
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document))
    return path


def test_a_log_gives_a_measurement_its_energy(bench_json, capsys):
    assert app(["bench", str(bench_json), "--tegrastats", str(LOG), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    written = json.loads(bench_json.read_text())
    assert written == reported
    said = json.loads((DATA / "conc_solo_dla0.json").read_text("utf-8"))
    own = 1e6 / reported["energy"]["total"]["uj_per_inference"]
    assert own == pytest.approx(said["aggregate_inf_per_s_per_w"], rel=0.03)
    # the first load is the warm-up's
    assert reported["monitor"]["busy_from_s"] == -0.5
    first = next(s for s in reported["monitor"]["samples"] if s["t_s"] >= -0.5)
    assert first["t_s"] == pytest.approx(-0.5, abs=0.05)
    assert reported["latency_ms"] == handmade_plan.measurement()["latency_ms"]
    # a log may take another one's place, but not that of what was sampled meanwhile
    assert app(["bench", str(bench_json), "--tegrastats", str(LOG), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["energy"] == reported["energy"]
    reported["monitor"].pop("log")
    bench_json.write_text(json.dumps(reported))
    with pytest.raises(UsageError, match="--no-monitor"):
        app(["bench", str(bench_json), "--tegrastats", str(LOG)])


def test_a_log_stays_with_its_run_in_cache_and_history(bench_json, tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    cache = Cache(tmp_path / "cache")
    document = Bench.model_validate_json(bench_json.read_text())
    short = document.model_copy(update={"samples_ms": [1.0]})
    release = SimpleNamespace(digest="ab" * 32, release="000001-abababababab", hello=None)
    ids = [record(one, release=release) for one in (document, short)]
    assert monitor_from_log(cache, document) is None
    found = with_tegrastats(bench_json, LOG, cache)
    assert not found.notes
    assert monitor_from_log(cache, document) == found.monitor
    assert monitor_from_log(cache, short) is None
    with ResultStore() as store:
        other, own = store.results()
    assert [own.id, other.id] == ids
    assert own.energy_uj == found.energy.total.uj_per_inference
    assert own.verdict == found.verdict.status
    assert list(own.samples) == document.samples_ms
    assert own.bundle == release.digest
    assert other.energy_uj is None
    # a run that nobody recorded
    bench_json.write_text(json.dumps(document.to_json() | {"samples_ms": [2.0]}))
    assert "no entry" in with_tegrastats(bench_json, LOG, cache).notes[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"clock": "cpu-measured"}, "cpu-measured"),
        ({"schema": "x"}, "not a bench document"),
        ({"target": "toaster"}, "toaster"),
        ({"target": None}, "None"),
    ],
)
def test_what_no_log_goes_with_is_reported_and_stays(changed, said, bench_json):
    bench_json.write_text(json.dumps(json.loads(bench_json.read_text()) | changed))
    before = bench_json.read_bytes()
    with pytest.raises(EdgekitError, match=said):
        app(["bench", str(bench_json), "--tegrastats", str(LOG)])
    assert bench_json.read_bytes() == before


XAVIER_NX = (
    "RAM 2171/6855MB (lfb 2x4MB) CPU [0%@1420,0%@1420,0%@1420,0%@1420,0%@1420,0%@1420] EMC_FREQ 0% "
    "GR3D_FREQ 0% AUX@40C CPU@41.5C\n"
)
XAVIER = (
    "RAM 2086/15825MB (lfb 2800x4MB) CPU [0%@2265,33%@2265,0%@2265,0%@2265,0%@2265,0%@2265,0%@2265,"
    "0%@2265] GR3D_FREQ 0%@905 GPU 463/463 CPU 1236/1236 SOC 2318/2318 CV 0/0 SYS5V 2934/2934\n"
)


def changed_lines(change):
    lines = LOG.read_text("ascii").splitlines(keepends=True)
    return "".join(change(lines))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (changed_lines(lambda own: own + 3 * [XAVIER_NX]), "tegrastats.mixed", "6855 MB"),
        (
            changed_lines(lambda own: own + [x.replace("VDD_CPU_CV", "VDD_C") for x in own]),
            "tegrastats.mixed",
            "VDD_C,",
        ),
        (40 * XAVIER, "tegrastats.board", "it has the rails CPU, CV, GPU, SOC, SYS5V"),
        # an Orin of 32 GB has the same rails
        (
            changed_lines(lambda own: [x.replace("/62841MB", "/30587MB") for x in own]),
            "tegrastats.board",
            "a jetson-agx-orin-32gb has as much",
        ),
    ],
)
def test_a_log_of_another_board_is_refused(text, code, words, bench_json, tmp_path):
    before = bench_json.read_bytes()
    (tmp_path / "other.log").write_text(text)
    with pytest.raises(DataError) as caught:
        app(["bench", str(bench_json), "--tegrastats", str(tmp_path / "other.log")])
    assert (caught.value.code, caught.value.where) == (code, str(tmp_path / "other.log"))
    assert words in caught.value.message
    assert bench_json.read_bytes() == before


def test_what_a_log_s_lines_do_not_agree_on_is_reported_where_it_is_read(
    bench_json, tmp_path, capsys
):
    log = tmp_path / "odd.log"
    odd = ["NV Power Mode: MAXN\n", "0\n", XAVIER_NX]
    log.write_text(
        changed_lines(
            lambda own: (
                own[:60]
                + odd
                + own[60:62]
                + [own[62].replace("08-20-2026", "08-20-2025")]
                + own[63:]
            )
        )
    )
    document = json.loads(bench_json.read_text())
    document |= {
        "precision": "int8",
        "files": {"bench": "b", "trace": "t.json"},
        "segments": [],
        "planned_power_mode": "MAXN",
    }
    bench_json.write_text(json.dumps(document))
    assert app(["bench", str(bench_json), "--tegrastats", str(log)]) == 0
    reported = " ".join(capsys.readouterr().out.split())
    assert "odd.log: 2 lines are none of tegrastats" in reported
    assert "1 line of another board left out" in reported
    assert "the clock goes backwards 1 time" in reported
    assert "the first load in it is used" in reported
    # only what it wrote
    assert f"bench: {bench_json}" in reported
    assert "t.json" not in reported


def test_a_model_is_no_measurement():
    with pytest.raises(UsageError, match=r"bench\.json --tegrastats"):
        app(["bench", "model.onnx", "--tegrastats", str(LOG)])


def test_dates_are_placed_where_the_board_s_time_zone_is_known():
    text = LOG.read_text("utf-8").splitlines(keepends=True)
    rails = get(TARGET).rails
    plain, placed = (monitor_of_log(text, rails=rails, utc_offset_s=o) for o in (None, 7200.0))
    assert {sample.wall for sample in plain.samples} == {None}
    assert plain.started_at is None
    # 2026-08-20 21:13:19 of a zone two hours before UTC
    assert placed.started_at == pytest.approx(1787253199.5, abs=0.5)
    walls = [sample.wall for sample in placed.samples]
    assert walls == sorted(walls)
    # every date is the second in which its sample came, but for the interval's error
    for sample, line in zip(placed.samples, text, strict=False):
        hour, minute, second = map(int, line.split()[1].split(":"))
        at = (hour * 60 + minute) * 60 + second
        assert at - 0.3 <= (sample.wall + 7200) % 86400 <= at + 1.3
    other = read_tegrastats(LOG, rails=rails, utc_offset_s=7200)
    one, same = (energy(log, rails, 100, 2.0) for log in (other, plain))
    assert one == same
