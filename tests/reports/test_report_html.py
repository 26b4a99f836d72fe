import base64
import dataclasses
import hashlib
import html.parser
import re

import pytest

from edgekit.benchmark.document import bench_document
from edgekit.dla.verdicts import LayerVerdict
from edgekit.error_document import VerdictReason
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html, write_report
from tests.benchmark import handmade_plan
from tests.reports import handmade_run

HOSTILE = "<script>alert(1)</script>\"'&{{7*7}}\u202e\x1b[31m"
VOID = {"meta", "link", "input", "br"}


class Page(html.parser.HTMLParser):
    """Reads the page: text by element, attributes, and whether elements nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page(**changes):
    return Page(render_html(report_document(handmade_run.facts(**changes))))


def hostile_facts():
    facts = handmade_run.facts()
    evil = HOSTILE + "/conv"
    layers = tuple(
        dataclasses.replace(p, name=evil) if p.name == "prob" else p for p in facts.plan.layers
    )
    plan = dataclasses.replace(
        facts.plan,
        layers=layers,
        plans=(dataclasses.replace(facts.plan.plans[0], layers=layers),),
        loadables=(dataclasses.replace(facts.plan.loadables[0], layers=(evil,)),),
        notes=(HOSTILE,),
        model_error=HOSTILE,
    )
    network = dataclasses.replace(
        facts.network,
        layers=tuple(
            dataclasses.replace(layer, name=evil) if layer.name == "prob" else layer
            for layer in facts.network.layers
        ),
    )
    reason = VerdictReason(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    verdicts = {**facts.judgement.verdicts, evil: LayerVerdict(False, "certain", (reason,))}
    judgement = dataclasses.replace(facts.judgement, verdicts=verdicts)
    return handmade_run.facts(
        name=HOSTILE, model=HOSTILE, plan=plan, network=network, judgement=judgement,
        config_text=HOSTILE, environment={HOSTILE: {HOSTILE: [HOSTILE]}}, files={HOSTILE: HOSTILE},
        board={"name": HOSTILE, "kind": HOSTILE}, notes=(HOSTILE,),
        rewrites=({
            "name": HOSTILE, "rewrite": HOSTILE, "reason": HOSTILE, "anchor": HOSTILE,
            "nodes": [HOSTILE], "new_nodes": [], "max_error": None, "max_error_float64": None,
            "runs": 0, "seed": 0,
        },),
        steps=({"name": HOSTILE, "status": "done", "seconds": 0.0, "detail": HOSTILE},),
        bundle={"path": HOSTILE, "bytes": 1, "stripped_bytes": 1, "digest": "0" * 64},
        accuracy={"cosine": 1.0, "data": HOSTILE, "min": 0.5,
                  "segments": [{"segment": 0, "device": "GPU", "tensor": HOSTILE, "cosine": 1.0,
                                "cosine_min": 1.0, "snr_db": None, "exact": True, "max_abs": 0.0,
                                "constant": False}],
                  "groups": [{"output": HOSTILE, "channels": [[0, 0]], "range": 1.0, "cosine": 1.0,
                              "snr_db": None, "worst": {"channel": 0, "snr_db": None},
                              "collapsed": False}],
                  "scores": [{"output": HOSTILE, "above": 1, "kept": 1}]},
    )  # fmt: skip


def test_the_page_nests_and_names_its_language_and_title():
    found = page()
    assert found.open == []
    assert found.all("html")[0]["lang"] == "en"
    assert "resnet50" in found.text


def test_nothing_is_fetched():
    text = render_html(report_document(handmade_run.facts()))
    found = Page(text)
    for _, attrs in found.elements:
        for key in ("src", "href", "action", "srcset", "poster", "data"):
            assert attrs.get(key, "#").startswith(("#", "data:,"))
    assert "url(" not in text
    assert "@import" not in text
    assert "http:" not in text.replace("http-equiv", "")


def test_policy_allows_only_the_pages_own_script_and_style():
    text = render_html(report_document(handmade_run.facts()))
    policy = next(m["content"] for m in Page(text).all("meta") if "http-equiv" in m)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, count in (("script", 2), ("style", 1)):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        assert len(bodies) == count
        for body in bodies:
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy


def test_no_inline_style_or_handler_that_the_policy_would_block():
    for _, attrs in page().elements:
        assert not any(key == "style" or key.startswith("on") for key in attrs)


def test_hostile_names_stay_text():
    text = render_html(report_document(hostile_facts()))
    found = Page(text)
    assert found.open == []
    # two that run, and the graph's data
    assert [attrs.get("type") for attrs in found.all("script")] == [None, "application/json", None]
    assert "<script>alert" not in text
    assert "<script>alert(1)</script>" in found.text
    assert "{{7*7}}" in found.text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_tables_have_header_cells_and_pictures_have_words():
    found = page()
    assert all(attrs.get("scope") in ("col", "row") for attrs in found.all("th"))
    for attrs in found.all("svg"):
        assert attrs.get("aria-label") or attrs.get("aria-hidden") == "true"
    assert len(found.all("main")) == len(found.all("header")) == len(found.all("h1")) == 1
    assert all(attrs.get("aria-labelledby") for attrs in found.all("section"))
    ids = [attrs["id"] for _, attrs in found.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    targets = [a["href"][1:] for a in found.all("a")]
    assert set(targets) <= set(ids)


def test_it_says_what_is_measured_and_what_is_predicted():
    text = page().text
    assert "not a board time" in text
    assert "Predictions of edgekit's cost model, not measurements: predicted" in text
    for words in (
        "2.41 ms",
        "618 µs",
        "TensorRT automatic DLA",
        "not possible here",
        "0.99873",
        "26.1 MiB",
        "403 KiB",
        "equal bit for bit",
        "16 synthetic inputs, seed 0",
        "SoftMax over 1000 elements is not for the DLA",
        "edgekit-out/resnet50/trace.json",
        "objective: gpu_time",
    ):
        assert words in text, words


def test_an_invalid_measurement_shows_why():
    short = handmade_plan.measured(iterations=3)
    bench = bench_document(short, handmade_plan.plan(), config="my net.yaml")
    text = page(bench=bench).text
    assert "INVALID" in text
    assert "Remedy: run edgekit bench 'my net.yaml' --iterations" in text


def test_absent_parts_are_reported():
    text = page(accuracy=None, bundle=None, refit=None, bench=None, board=None, scales=None).text
    for words in ("Not compared", "Nothing was measured", "No bundle was made"):
        assert words in text


@pytest.mark.parametrize(
    ("snr", "max_abs", "shown"),
    [
        (None, 0.0, "SNR exact"),
        (None, 0.1, "SNR unknown"),
        (-999.0, 1.0, "SNR unknown"),
        (31.24, 0.1, "SNR 31.2 dB"),
    ],
)
def test_an_snr_is_a_figure_or_said_in_words(snr, max_abs, shown):
    accuracy = {"cosine": 1.0, "snr_db": snr, "max_abs": max_abs, "top1_agreement": 1.0}
    group = {
        "output": "y",
        "channels": [[1, 2]],
        "range": 1.0,
        "snr_db": snr,
        "cosine": 1.0,
        "exact": max_abs == 0,
        "collapsed": False,
        "worst": {"channel": 1, "snr_db": snr, "exact": max_abs == 0},
    }
    text = page(accuracy={**accuracy, "groups": [group]}).text
    assert shown in text
    assert f"1 ({shown.removeprefix('SNR ')})" in text
    assert "999" not in text


def test_the_page_is_the_same_every_time_and_written_whole(tmp_path):
    document = report_document(handmade_run.facts())
    path = tmp_path / "out" / "report.html"
    write_report(document, path)
    assert path.read_text("utf-8") == render_html(document)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize("variants", [1, 2])
def test_plans_that_share_frames(variants):
    text = page(plan=handmade_plan.plan(variants)).text
    assert ("Plan 2, 50.0 % of the frames" in text) == (variants == 2)
    assert ("one of the most used plans has" in text) == (variants == 2)
    assert ("2 plans share the frames" in text) == (variants == 2)
    assert ("Timeline one frame of each plan" in text) == (variants == 2)


def test_the_answer_leads_and_a_cpus_verdict_is_a_footnote():
    facts = handmade_run.facts()
    again = "edgekit bench net.yaml"
    reason = {"code": "x", "message": "too short", "remedy": again}
    verdict = {"status": "INVALID", "command": again, "reasons": [reason]}
    bench = {**facts.bench.to_json(), "verdict": verdict}
    text = page(bench=bench).text
    head = text[: text.index("Placement")]
    assert (
        head.index("Predicted to fit")
        < head.index("Predicted latency")
        < head.index("Checks what this run verified")
    )
    assert "not judged Measurement INVALID: too short" in head
    assert "CPU latency" not in head
    assert text.rindex("INVALID") > text.index("CPU time")
    assert "Measure again: edgekit bench net.yaml" in text
    # a board's verdict stands where its time is quoted
    text = page(bench={**bench, "clock": "board-measured"}).text
    assert text.index("INVALID: too short") < text.index("Checks INVALID")


def test_navigation_and_headings_say_the_same_and_notes_come_after_the_prediction():
    text = render_html(report_document(handmade_run.facts()))
    nav = dict(re.findall(r'<li><a href="#([\w-]+)">([^<]*)</a></li>', text))
    heads = dict(re.findall(r'<h2 id="([\w-]+)-title">([^<{]*)', text))
    assert nav == {name: title.strip() for name, title in heads.items()}
    assert list(nav).index("notes") > list(nav).index("prediction")


def test_a_device_without_work_takes_no_lane():
    text = render_html(report_document(handmade_run.facts()))
    lanes = re.findall(r'class="lanename"[^>]*>([^<]*)', text)
    tracks = re.findall(r'<dl class="tracks">(.*?)</dl>', text, re.S)
    assert lanes
    assert "DLA1" not in lanes
    assert tracks
    assert not any("DLA1" in one for one in tracks)
