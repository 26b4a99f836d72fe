import copy
import json

import pytest

from edgekit.errors import DataError
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html
from edgekit.reports.schema import parse_report, read_report
from tests.reports import handmade_run, large_run


@pytest.fixture
def document():
    return report_document(handmade_run.facts()).to_json()


def test_every_kind_of_report_reads_as_it_was_written():
    for one in (
        report_document(handmade_run.facts()),
        large_run.monitored(),
        large_run.large(300),
        large_run.hostile(),
    ):
        assert parse_report(json.loads(json.dumps(one.to_json(), allow_nan=False))) == one


def test_an_older_document_is_shown_without_the_parts_that_it_lacks(document):
    older = {
        key: value
        for key, value in document.items()
        if key not in ("verdict", "graph", "power", "baseline", "trace", "built")
    }
    older["timeline"] = {k: v for k, v in document["timeline"].items() if k != "measured"}
    found = parse_report(older)
    assert found.verdict.status == "NOT MEASURED"
    assert found.power is None
    page = render_html(found)
    assert 'id="graph-data"' not in page
    assert "stage5/block2/conv_c" in page


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("layers", 0, "predicted_us"), "fast", "layers[0].predicted_us"),
        (("layers", 0, "predicted_us"), float("nan"), "layers[0].predicted_us"),
        (("predicted", "rows"), [], "predicted.rows"),
        (("timeline",), None, "timeline"),
        (("schema",), "edgekit.plan/1", "edgekit.plan/1"),
        (("layers", 0, "colour"), "red", "layers[0]: unknown: 'colour'"),
        (("rewrites", 0, "spam"), -1, "rewrites[0]: unknown: 'spam'"),
        (("placement", "devices", 0, "busy"), 1.0, "placement.devices[0]: unknown: 'busy'"),
    ],
)
def test_what_does_not_fit_is_named(document, path, value, message):
    broken = copy.deepcopy(document)
    place = broken
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(DataError) as error:
        parse_report(broken)
    assert error.value.code == "report.schema"
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"schema": NaN}', "[]", "\ud800"])
def test_a_file_that_is_no_report_is_an_error(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DataError) as error:
        read_report(path)
    assert str(path) in str(error.value.where)
    with pytest.raises(DataError):
        read_report(tmp_path / "absent.json")
