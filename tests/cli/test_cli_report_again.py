"""``edgekit report`` of a report.json: nothing is run."""

import json
from types import SimpleNamespace

import pytest

from edgekit.cli import main
from edgekit.errors import DataError
from edgekit.pipeline.report_page import check_baseline
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html
from edgekit.reports.schema import read_report
from edgekit.results.recording import record
from tests.reports import handmade_run
from tests.results.measurements import bench, times


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main.main(list(map(str, arguments)))
    return ended.value.code


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report_document(handmade_run.facts()).to_json()), encoding="utf-8")
    return path


def test_a_document_is_rendered_again(document, tmp_path, capsys):
    page = tmp_path / "sub" / "page.html"
    assert run("report", document, "-o", page) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert page.read_text("utf-8") == render_html(read_report(document))
    before = document.read_bytes()
    assert run("report", document) == 0
    assert document.with_suffix(".html").exists()
    assert document.read_bytes() == before


def test_what_is_no_report_or_has_no_measurement_is_an_error(document, tmp_path, capsys):
    broken = tmp_path / "broken.json"
    broken.write_text('{"schema": "edgekit.report/1"}', encoding="utf-8")
    assert run("report", broken) != 0
    said = capsys.readouterr().err
    assert "does not fit its schema" in said
    assert "Traceback" not in said
    assert run("report", document, "--baseline", tmp_path / "absent.json") != 0
    assert "Traceback" not in capsys.readouterr().err


def test_last_is_the_run_before_though_the_measurement_was_reused(
    document, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    before, own = (
        bench(times(300, middle, seed=seed), name="resnet50")
        for seed, middle in enumerate((2.0, 2.3))
    )
    # earlier runs of one release show how much runs differ
    release = SimpleNamespace(digest="ab" * 32, release="000001-abababababab", hello=None)
    for seed in range(10, 15):
        record(bench(times(300, 2.0, seed=seed), name="resnet50"), release=release)
    for one in (before, own):
        record(one)
    # the report was moved since: its measurement lies beside it
    (tmp_path / "bench.json").write_text(json.dumps(own.to_json()), encoding="utf-8")
    whole = json.loads(document.read_text("utf-8"))
    whole["files"]["bench"] = "edgekit-out/resnet50/bench.json"
    document.write_text(json.dumps(whole), encoding="utf-8")
    note = tmp_path / "note.md"
    assert run("report", document, "--baseline", "last", "--json", "--markdown", note) == 1
    out, said = capsys.readouterr()
    assert "worse than the baseline by more than 5 %: latency, median +15" in said
    found = json.loads(out)
    assert [one["id"] for one in found["baseline"]["a"]["runs"]] == [6]
    assert found["baseline"]["regression"]
    page = document.with_suffix(".html").read_text("utf-8")
    assert "a regression" in page
    assert "slower, above the threshold" in page
    rows = [line for line in note.read_text("utf-8").splitlines() if line.startswith("| ")]
    answers = {row.split(" | ")[0][2:]: row.split(" | ")[-1] for row in rows}
    assert "slower, above the threshold" in answers["Latency, median"]
    assert "lower, above the threshold" in answers["Throughput"]
    # a note says of which metric it is
    for text in (note.read_text("utf-8"), page):
        assert text.count("Latency, p99: only one run on each side") == 1
    # without a difference a terminal is told that, too
    same = tmp_path / "same.json"
    same.write_text(json.dumps(own.to_json()), encoding="utf-8")
    assert run("report", document, "--baseline", same) == 0
    out, said = capsys.readouterr()
    assert out == f"{document.with_suffix('.html')}\n"
    assert "Latency, median: 2.3" in said
    assert "no difference" in said


def test_a_baseline_that_is_not_alike_loses_no_file(document, tmp_path, capsys):
    own = bench(times(300, 2.0, seed=1), name="resnet50")
    other = {**own.to_json(), "power_mode": "15W"}
    (tmp_path / "other.json").write_text(json.dumps(other), "utf-8")
    (tmp_path / "bench.json").write_text(json.dumps(own.to_json()), encoding="utf-8")
    whole = json.loads(document.read_text("utf-8"))
    whole["files"]["bench"] = str(tmp_path / "bench.json")
    document.write_text(json.dumps(whole), encoding="utf-8")
    note = tmp_path / "report.md"
    requested = ("report", document, "--baseline", tmp_path / "other.json", "--markdown")
    assert run(*requested, note) == 1
    said = capsys.readouterr().err
    assert "not compared: the power mode differs" in said
    assert "compare --force" in said
    assert "Not compared:" in document.with_suffix(".html").read_text("utf-8")
    assert "not compared:" in note.read_text("utf-8")
    # what cannot be written is told before anything is done
    document.with_suffix(".html").unlink()
    assert run(*requested, tmp_path / "none" / "report.md") == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    assert not document.with_suffix(".html").exists()


@pytest.mark.parametrize(
    ("part", "value", "where"),
    [
        ("bench", {"cold": 5}, "bench.cold"),
        ("bench", {"phases_ms": {"compute": [1]}}, "bench.phases_ms"),
        ("baseline", {"ratio": 3, "metric": "x"}, "baseline."),
        ("accuracy", {"segments": [{"cosine": "x"}]}, "accuracy.segments"),
        ("accuracy", {"cosine": {}}, "accuracy.cosine"),
    ],
)
def test_parts_that_nobody_wrote_so_are_reported(document, capsys, part, value, where):
    whole = json.loads(document.read_text("utf-8"))
    whole[part] = {**(whole[part] or {}), **value}
    document.write_text(json.dumps(whole), encoding="utf-8")
    assert run("report", document) == 2
    said = capsys.readouterr().err
    assert f"does not fit its schema: {where}" in said
    assert "Traceback" not in said


def test_the_first_run_has_nothing_to_be_compared_with(document, tmp_path, monkeypatch, capsys):
    """Before, it ended with 2 and no page."""
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    own = bench(times(30, 2.0, seed=1), name="resnet50")
    whole = json.loads(document.read_text("utf-8"))
    whole["files"]["bench"] = "edgekit-out/resnet50/times.json"
    document.write_text(json.dumps(whole), encoding="utf-8")
    # the measurement is nowhere: what is missing is named, and not what nobody asked for
    assert run("report", document, "--baseline", "last") == 2
    said = capsys.readouterr().err
    assert "edgekit-out/resnet50/times.json, was not found" in said
    assert "give a bench.json from" not in said
    (tmp_path / "times.json").write_text(json.dumps(own.to_json()), encoding="utf-8")
    record(own)
    assert run("report", document, "--baseline", "last") == 0
    assert "note: Not compared: the history has no earlier run" in capsys.readouterr().err
    assert "has no earlier run of resnet50" in document.with_suffix(".html").read_text("utf-8")
    for named in ("7", "last~1", "baseline:gone"):
        assert run("report", document, "--baseline", named) == 2
    check_baseline("last", "never-measured")
    with pytest.raises(DataError):
        check_baseline("baseline:gone", "never-measured")
