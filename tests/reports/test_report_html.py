import base64
import dataclasses
import hashlib
import html.parser
import re

from edgekit.dla.verdicts import LayerVerdict
from edgekit.error_document import VerdictReason
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html, write_report
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


def test_the_page_is_the_same_every_time_and_written_whole(tmp_path):
    document = report_document(handmade_run.facts())
    path = tmp_path / "out" / "report.html"
    write_report(document, path)
    assert path.read_text("utf-8") == render_html(document)
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_navigation_and_headings_say_the_same_and_notes_come_after_the_prediction():
    text = render_html(report_document(handmade_run.facts()))
    nav = dict(re.findall(r'<li><a href="#([\w-]+)">([^<]*)</a></li>', text))
    heads = dict(re.findall(r'<h2 id="([\w-]+)-title">([^<{]*)', text))
    assert nav == {name: title.strip() for name, title in heads.items()}
    assert list(nav).index("notes") > list(nav).index("prediction")
