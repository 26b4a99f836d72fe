"""``edgekit history`` and ``edgekit compare`` on a history of a test's own."""

import contextlib
import csv
import io
import json
import multiprocessing
import sqlite3
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

import edgekit
from edgekit.cli import main
from edgekit.errors import EnvironmentLack
from edgekit.results.recording import record
from edgekit.results.store import VERSION, ResultStore
from tests.results.measurements import bench, bench_json, energy, times


@pytest.fixture(autouse=True)
def path(tmp_path, monkeypatch):
    chosen = tmp_path / "history.sqlite"
    monkeypatch.setenv("EDGEKIT_HISTORY", str(chosen))
    monkeypatch.chdir(tmp_path)
    return chosen


@pytest.fixture
def run(capsys):
    def call(*arguments, code=0):
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments])
        captured = capsys.readouterr()
        assert code is None or caught.value.code == code, captured.err
        return captured.out

    return call


def keep(middle, seed, *, release=None, **changes):
    return record(bench(times(200, middle, seed=seed), **changes), release=release)


def keep_repeated():
    """Keeps five runs of one release, which show how much runs differ."""
    release = SimpleNamespace(digest="ab" * 32, release="000001-abababababab", hello=None)
    for seed in range(100, 105):
        keep(2.0 + seed / 1e4, seed, release=release)


def test_a_regression_ends_with_1(run):
    for seed, middle in enumerate((2.0, 2.3, 2.0)):
        keep(middle, seed)
    reported = run("compare", "last~2", "last~1")
    assert "cannot tell, +1" in reported
    assert "Only one run on each side" in reported
    run("compare", "last~2", "last~1", "--strict", code=1)
    keep_repeated()
    reported = run("compare", "1", "2", code=1)
    assert "slower, +1" in reported
    assert "a regression of more than 5.0 %" in reported
    assert run("compare", "1", "2", "--threshold", "25%").startswith("latency.median: slower")
    assert json.loads(run("compare", "1", "3", "--json"))["verdict"] == "no difference"
    run("mark", code=2)
    run("history", "mark", "1", "release")
    assert json.loads(run("compare", "baseline:release", "2,2", "--json", code=1))["regression"]
    run("compare", "1", "9", code=2)
    run("compare", "1", "nothing", code=2)
    run("compare", "1", "2", "--threshold", "5", code=2)


def test_a_cell_without_a_value_has_a_dash(run):
    keep(2.0, 1)
    keep(2.0, 2)
    run("history", "mark", "1", "release")
    head, second, first = run("history").splitlines()[:3]
    assert head.split()[-1] == "marks"
    assert (second.split()[-1], first.split()[-1]) == ("-", "release")


def test_what_is_not_alike_is_refused(run):
    keep(2.0, 1)
    keep(2.0, 2, power_mode="15W")
    run("compare", "1", "2", code=2)
    assert "forced: the power mode" in run("compare", "1", "2", "--force")


def test_revisions_mean_all_clean_results_of_the_commit(run, tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True
        )

    class Project:
        folder = tmp_path

    git("init", "-qb", "main")
    for number, middle in enumerate((2.0, 1.5)):
        (tmp_path / "net.yaml").write_text(str(number))
        git("add", "net.yaml")
        git("commit", "-qm", str(number))
        for seed in range(2):
            record(bench(times(50, middle, seed=10 * number + seed)), config=Project())
    (tmp_path / "net.yaml").write_text("changed")
    record(bench(times(50, 9.0, seed=99)), config=Project())
    found = json.loads(run("compare", "main~1", "main", "--json"))
    assert [run["id"] for run in found["a"]["runs"]] == [2, 1]
    assert [run["id"] for run in found["b"]["runs"]] == [4, 3]
    assert found["verdict"] == "faster"


def test_files_next_to_the_history(run, tmp_path):
    keep_repeated()
    for name, middle in (("a", 2.0), ("b", 1.8)):
        (tmp_path / f"{name}.json").write_text(json.dumps(bench_json(times(100, middle, seed=1))))
    assert json.loads(run("compare", "a.json", "b.json", "--json"))["verdict"] == "faster"


def test_without_an_interval_only_strict_ends_with_1(run, tmp_path):
    for number in (1, 2):
        record(bench(times(100, 2.0, seed=number), energy=energy(900.0 + number)))
    found = json.loads(run("compare", "1", "2", "--metric", "energy", "--json"))
    assert (found["verdict"], found["regression"]) == ("cannot tell", False)
    run("compare", "1", "2", "--metric", "energy", "--strict", code=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"samples_ms": [1.0, 10**400]},
        {"samples_ms": [1.0, 1e300]},
        {"latency_ms": {"p99": []}},
        {"verdict": {"status": "INVALID", "reasons": [[1]]}},
        {"samples_ms": ["1"]},
    ],
)
def test_files_that_no_bench_wrote_are_refused(run, tmp_path, changes):
    (tmp_path / "a.json").write_text(json.dumps(bench_json([1.0] * 9)))
    (tmp_path / "b.json").write_text(json.dumps(bench_json([1.0] * 9) | changes))
    said = json.loads(run("compare", "a.json", "b.json", "--json", code=2))
    assert said["error"]["code"] == "compare.file"


def test_list_show_export_and_prune(run, path):
    assert "nothing was measured" in run("history")
    for seed in range(4):
        keep(2.0 + seed, seed, name="net" if seed < 3 else "=other")
    assert len(run("history", "net").splitlines()) == 4
    assert [
        one["id"] for one in json.loads(run("history", "--json", "--limit", "2"))["results"]
    ] == [4, 3]
    assert "remote" not in run("history")
    shown = json.loads(run("history", "show", "2", "--json"))
    assert len(shown["samples_ms"]) == 200
    assert "median" in run("history", "show", "2")
    shown = json.loads(run("history", "show", "last", "--name", "net", "--json"))
    assert shown["history"]["id"] == 3
    rows = list(csv.DictReader(io.StringIO(run("history", "export", "--format", "csv"))))
    assert [row["name"] for row in rows] == ["'=other", "net", "net", "net"]
    assert len(json.loads(run("history", "export", "1-2"))["results"]) == 2
    assert "2 results in two.csv" in run("history", "export", "1-2", "-o", "two.csv")
    written = edgekit.export_history("again.CSV", "1-2")
    assert [len(row.document.samples_ms) for row in written.results] == [200, 200]
    assert Path("again.CSV").read_text() == Path("two.csv").read_text()
    run("history", "mark", "1", "first")
    run("history", "prune", code=2)
    assert json.loads(run("history", "prune", "--keep", "1", "--json"))["removed"] == [2]
    with ResultStore() as store:
        assert [one.id for one in store.results()] == [4, 3, 1]
    assert keep(5.0, 77) == 5


def test_a_damaged_file_is_reported_and_moved_aside_only_when_requested(run, path):
    for seed in range(30):
        keep(2.0, seed)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    assert json.loads(run("history", "--repair", "--json"))["repair"]["repaired"]
    (aside,) = path.parent.glob("history.sqlite.damaged-*")
    assert aside.read_bytes() == data
    with ResultStore() as store:
        retained = store.results()
    assert 10 < len(retained) < 30
    assert all(len(one.samples) == 200 for one in retained)
    path.write_bytes(b"this is no database, but it is long enough to look at" * 99)
    assert "damaged" in json.loads(run("history", "--json", code=3))["error"]["message"]
    assert path.read_bytes().startswith(b"this is no database")
    repaired = json.loads(run("history", "--repair", "--json"))
    assert repaired["repair"]["kept"] == 0
    assert "intact" in run("history", "--repair")


def test_a_newer_history_is_left_alone(run, path):
    keep(2.0, 1)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
    db.close()
    before = path.read_bytes()
    assert "newer" in json.loads(run("history", "--repair", "--json", code=3))["error"]["message"]
    assert path.read_bytes() == before


def test_a_history_that_is_refused_is_closed(path, monkeypatch):
    keep(2.0, 1)
    opened = []
    connect = sqlite3.connect

    def remembered(*args, **kwargs):
        opened.append(connect(*args, **kwargs))
        return opened[-1]

    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
    monkeypatch.setattr("edgekit.results.store.sqlite3.connect", remembered)
    with pytest.raises(EnvironmentLack):
        ResultStore()
    (refused,) = opened
    with pytest.raises(sqlite3.ProgrammingError):
        refused.execute("SELECT 1")


def _write(path, first):
    for number in range(10):
        record(bench([1.0, 1.0 + first + number]), path=path)


@pytest.mark.whole
def test_writers_at_once_lose_nothing(path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, 100 * n)) for n in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    with ResultStore() as store:
        assert sorted(one.id for one in store.results()) == list(range(1, 21))


def test_prune_requests_before_everything_goes(run, monkeypatch):
    for seed in range(3):
        keep(2.0, seed)
    run("history", "mark", "1", "first")

    def ids():
        with ResultStore() as store:
            return [one.id for one in store.results()]

    said = json.loads(run("history", "prune", "--keep", "0", "--json", code=2))
    assert said["error"]["code"] == "history.prune-all"
    assert "2 results would be deleted" in run("history", "prune", "--keep", "0", "--dry-run")
    terminal = io.StringIO("n\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    run("history", "prune", "--keep", "0", code=2)
    assert ids() == [3, 2, 1]
    run("history", "prune", "--keep", "0", "--yes")
    assert ids() == [1]


def test_the_table_reports_clocks_and_the_settings_that_differ(run):
    keep(2.0, 1)
    keep(2.0, 2, clock="cpu-measured", settings={"streams": 2, "graph": False, "spin": False})
    table = run("history")
    newest, oldest = table.splitlines()[1:]
    assert "cpu-measured" in newest
    assert "board-measured" in oldest
    assert "streams 2" in newest
    assert "streams 1" in oldest
    assert "graph" not in table


def test_an_empty_answer_names_what_was_looked_for(run):
    keep(2.0, 1, name="other")
    said = json.loads(run("compare", "last", "last", "--name", "net", "--json", code=2))
    assert "no result last of net" in said["error"]["message"]


def test_last_is_no_trial_of_a_tuning_unless_it_is_named(run):
    keep(2.0, 1)
    for seed in (2, 3):
        keep(3.0, seed, name="net-tune-0a1b2c")
    keep(2.0, 4)
    found = json.loads(run("compare", "last~1", "last", "--json"))
    assert [one["id"] for side in "ab" for one in found[side]["runs"]] == [1, 4]
    trial = json.loads(run("compare", "last~1", "last", "--name", "net-tune-0a1b2c", "--json"))
    assert [one["id"] for side in "ab" for one in trial[side]["runs"]] == [2, 3]
    listed = run("history").splitlines()[1:]
    assert ["trial of edgekit tune" in line for line in listed] == [False, True, True, False]
    rows = json.loads(run("history", "--json"))["results"]
    assert [row["trial"] for row in rows] == [False, True, True, False]


def test_percentiles_of_few_frames_are_marked_and_the_median_stands_once(run):
    latency = {"median": 2.0, "p50": 2.0, "p90": 2.1, "p99": 2.2, "p999": 2.3, "max": 2.3}
    keep(2.0, 1, iterations=368, latency_ms=latency)
    (line,) = [one for one in run("history", "show", "1").splitlines() if "latency" in one]
    assert "p50" not in line
    assert "p90 2.10 ms," in line
    assert "p99 2.20 ms*," in line
    assert "p999 - (* fewer than 20 frames beyond)" in line
    assert "2.20 ms*" in run("history")


def test_all_tunings_of_a_configuration_are_pruned_as_one(run):
    for seed, name in enumerate(("net", "net-tune-0a1b2c", "net-tune-ffffff", "net-tune-0a1b2c")):
        keep(2.0, seed, name=name)
    assert json.loads(run("history", "prune", "--keep", "1", "--json"))["removed"] == [3, 2]


def test_values_are_no_python(run):
    keep(2.0, 1, settings={"graph": False, "spin": None, "transfers": True})
    keep(2.0, 2, settings={"graph": True, "spin": False, "transfers": True})
    shown = run("history", "show", "1")
    assert "graph off, transfers on" in shown
    table = run("history")
    reported = run("compare", "1", "2", "-v")
    assert "settings: graph: off -> on" in reported
    assert not any(word in shown + table + reported for word in ("True", "False", "None", "[]"))


def test_what_is_not_alike_is_listed_once(run, capsys):
    keep(2.0, 1)
    keep(2.0, 2, power_mode="15W", target="jetson-orin-nano-8gb")
    with pytest.raises(SystemExit):
        main.main(["compare", "1", "2"])
    said = capsys.readouterr().err
    assert "more)" not in said
    both = json.loads(run("compare", "1", "2", "--json", code=2))["reasons"]
    assert len(both) == 2
    assert said.count("the target differs") == said.count("the power mode differs") == 1


@pytest.mark.parametrize(
    ("middle", "threshold", "verdict", "code"),
    [(2.3, "5%", "slower", 1), (2.3, "25%", "slower", 0), (1.7, "5%", "faster", 0)],
)
@pytest.mark.parametrize("metric", ["latency.median", "latency.p90", "throughput"])
def test_the_threshold_decides_on_the_status_of_every_metric(
    run, metric, middle, threshold, verdict, code
):
    keep_repeated()
    for seed, level in enumerate((2.0, middle)):
        keep(level, seed)
    options = ("--metric", metric, "--threshold", threshold, "--json")
    found = json.loads(run("compare", "last~1", "last", *options, code=code))
    assert (found["verdict"], found["regression"]) == (verdict, bool(code))
    # a rate is better where a time is worse
    assert (found["ratio"]["estimate"] > 1) == ((metric == "throughput") == (middle < 2))


def test_more_confidence_is_a_wider_interval_and_the_api_says_the_same(run):
    for seed in range(10):
        keep(2.0 + seed / 100, seed)
    widths = []
    for confidence in (0.5, 0.9, 0.99):
        option = ("--confidence", str(confidence), "--json")
        found = json.loads(run("compare", "1-5", "6-10", *option, code=None))
        assert found == edgekit.compare("1-5", "6-10", confidence=confidence).to_json()
        widths.append(found["ratio"]["high"] - found["ratio"]["low"])
    assert 0 < widths[0] < widths[1] < widths[2]


def test_a_mark_moves_to_the_newer_result_and_compares_with_what_came_after(run):
    for seed, level in enumerate((9.0, 2.0, 2.0)):
        keep(level, seed)
    run("history", "mark", "1", "release")
    run("history", "mark", "2", "release")
    found = json.loads(run("compare", "baseline:release", "last", "--json"))
    assert [row["id"] for side in "ab" for row in found[side]["runs"]] == [2, 3]
    marks = {row["id"]: row["marks"] for row in json.loads(run("history", "--json"))["results"]}
    assert marks == {1: [], 2: ["release"], 3: []}
