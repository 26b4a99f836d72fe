"""The page in a real browser: it renders, its script runs, and nothing is complained about."""

import re
import shutil
import subprocess

import pytest

from edgekit.report import report_document, write_report
from tests.report import handmade_run

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
# the browser talks to nobody: every name resolves to nothing
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--enable-logging=stderr", "--v=0", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
PROBE = """<!doctype html><meta charset="utf-8"><title>probe</title>
<iframe id="page" src="report.html" style="width: WIDTHpx; height: 2000px; border: 0"></iframe>
<pre id="found"></pre><script>
document.getElementById("page").addEventListener("load", (event) => {
  const page = event.target.contentDocument;
  const found = document.getElementById("found");
  const say = (name, value) => { found.textContent += name + "=" + value + ";"; };
  const search = page.getElementById("layer-search");
  const shown = () => page.querySelectorAll("#layer-table tbody tr:not([hidden])").length;
  say("width", page.documentElement.scrollWidth);
  say("rows", shown());
  search.value = "softmax gpu";
  search.dispatchEvent(new Event("input"));
  say("found", shown());
  search.value = "";
  search.dispatchEvent(new Event("input"));
  const time = page.querySelector("#layer-table thead th:last-child button");
  time.click(); time.click();
  say("sort", page.querySelector("#layer-table thead th:last-child").getAttribute("aria-sort"));
  say("first", page.querySelector("#layer-table tbody td:last-child").dataset.value);
  say("background", page.defaultView.getComputedStyle(page.body).backgroundColor);
});
</script>
"""


def chromium(tmp_path, page, *options):
    """Runs headless Chromium on a file and returns what it printed and logged."""
    done = subprocess.run(
        [CHROMIUM, *QUIET, f"--user-data-dir={tmp_path / 'profile'}", *options, page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, complaints


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.html"
    write_report(report_document(handmade_run.facts()), path)
    return path


def probe(tmp_path, width, *options):
    """Returns what the probe read out of the page at a width in pixels."""
    page = tmp_path / "probe.html"
    page.write_text(PROBE.replace("WIDTH", str(width)), encoding="utf-8")
    dom, complaints = chromium(
        tmp_path, page, "--allow-file-access-from-files", "--virtual-time-budget=5000",
        "--dump-dom", *options,
    )  # fmt: skip
    assert complaints == []
    found = re.search(r'<pre id="found">([^<]*)</pre>', dom)
    assert found, dom[:500]
    return dict(item.split("=") for item in found[1].strip(";").split(";"))


def test_it_renders_without_a_complaint(tmp_path, report):
    dom, complaints = chromium(tmp_path, report, "--dump-dom")
    assert complaints == []
    # set by the script: the policy let it run
    assert '<html lang="en" class="scripted">' in dom
    assert "123 of 123 layers" in dom


def test_complaints_would_be_seen(tmp_path, report):
    text = report.read_text("utf-8").replace('"use strict";', '"use strict"; // changed')
    report.write_text(text, encoding="utf-8")
    dom, complaints = chromium(tmp_path, report, "--dump-dom")
    assert any("Content Security Policy" in line for line in complaints)
    # and the page is complete without its script
    assert 'class="scripted"' not in dom
    assert "stage5/block2/conv_c" in dom


def test_search_and_sort_work_on_a_phones_width(tmp_path, report):
    found = probe(tmp_path, 390)
    assert int(found["width"]) == 390
    assert found["rows"] == "123"
    assert found["found"] == "1"
    assert found["sort"] == "descending"
    assert float(found["first"]) == 41.3


def test_dark_is_dark(tmp_path, report):
    light = probe(tmp_path, 1200)
    dark = probe(tmp_path, 1200, "--blink-settings=preferredColorScheme=0")
    brightness = [
        sum(map(int, re.findall(r"\d+", found["background"])[:3])) for found in (light, dark)
    ]
    assert brightness[0] > 650
    assert brightness[1] < 150


def test_it_can_be_drawn_and_printed(tmp_path, report):
    picture, paper = tmp_path / "page.png", tmp_path / "page.pdf"
    _, complaints = chromium(tmp_path, report, f"--screenshot={picture}", "--window-size=1200,1600")
    assert complaints == []
    _, complaints = chromium(tmp_path, report, f"--print-to-pdf={paper}")
    assert complaints == []
    assert picture.stat().st_size > 40_000
    assert paper.read_bytes().startswith(b"%PDF")
