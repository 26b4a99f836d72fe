"""How the page looks in a real browser: colours, axe, paper, a phone, hostile names."""

import re
from pathlib import Path

import pytest

from tests.reports.chromium_pipe import CHROMIUM
from tests.reports.test_report_browser import RETAINED, SHOWN, typed

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
AXE = Path(__file__).parent.parent / "data" / "vendor" / "axe-core" / "axe.min.js"
WIDTH = "document.documentElement.scrollWidth"
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
# rows that take room, in whatever medium
SPACE = (
    "Array.from(document.querySelectorAll('#layer-table tbody tr'))"
    ".filter(row => row.offsetHeight > 0).length"
)


def resized(page, width):
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    page.js(DRAWN)


def test_colours_follow_the_system_and_the_button(opened):
    def brightness(page):
        colour = page.js("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    page = opened("small")
    assert brightness(page) > 650
    page.media(dark=True)
    assert brightness(page) < 150
    page.js("document.getElementById('theme').click()")
    assert page.js("document.getElementById('theme').textContent") == "Light"
    assert brightness(page) > 650
    # kept for the next page, and taken back for the other tests
    page = opened("small", dark=True)
    assert brightness(page) > 650
    page.js("document.getElementById('theme').click(), document.getElementById('theme').click()")
    assert brightness(page) < 150


def violations(page, rules=""):
    only = f"runOnly: {{type: 'rule', values: {rules}}}, " if rules else ""
    found = page.js(
        f"axe.run({{{only}preload: false, resultTypes: ['violations']}}).then("
        "found => ({passes: found.passes.length,"
        " violations: found.violations.map(one => [one.id, one.impact,"
        " one.nodes.map(node => node.html.slice(0, 200))])}))"
    )
    assert found["passes"] > (1 if rules else 30)
    return [one for one in found["violations"] if one[1] in ("serious", "critical")]


@pytest.mark.whole
def test_axe_finds_nothing_serious(opened):
    page = opened("small")
    page.js("for (const one of document.querySelectorAll('details')) one.open = true")
    page.js(AXE.read_text("utf-8") + "; 1")
    assert violations(page) == []
    # in the dark and on a phone only colours and what scrolls are other than before, and more rows
    # of the same tell nothing new
    page.js(
        "for (const one of document.querySelectorAll('tbody tr:nth-child(n + 4),"
        " dl.facts-list > :nth-child(n + 7), svg.histogram > :nth-child(n + 4)')) one.remove()"
    )
    page.media(dark=True)
    resized(page, 360)
    rules = "['color-contrast', 'scrollable-region-focusable', 'target-size']"
    assert violations(page, rules) == []


@pytest.mark.parametrize("width", [1200, 390])
def test_a_reason_has_no_half_lines(opened, width):
    page = opened("small", width)
    cut = page.js(
        "(() => { const one = document.querySelector('#layer-table .why li');"
        " one.textContent = 'a reason of many words '.repeat(16);"
        " return [one.clientHeight, one.scrollHeight - one.clientHeight]; })()"
    )
    assert cut[0] > 200
    assert cut[1] <= 0


def test_a_phone_shows_which_tables_scroll_and_keeps_rails_whole(opened):
    page = opened("small", 390)
    page.js(f"{DRAWN}.then(() => {DRAWN})")
    shown = (
        "Array.from(document.querySelectorAll('.scroll'))"
        ".filter(one => !one.closest('details:not([open])'))"
    )
    marked = f"{shown}.map(one => one.hasAttribute('data-more'))"
    wide = f"{shown}.map(one => one.scrollWidth > one.clientWidth)"
    assert page.js(marked) == page.js(wide)
    assert any(page.js(wide))
    assert page.js(WIDTH) == 390
    heights = page.js(
        "Array.from(document.querySelectorAll('#power tbody th .inline-clamp, #power tbody th'),"
        " one => one.getBoundingClientRect().height)"
    )
    assert heights
    assert max(heights) < 60
    resized(page, 1200)
    page.js(DRAWN)
    assert page.js(marked) == page.js(wide)


def test_a_phone_says_that_the_sections_go_on_and_has_captions_whole(opened):
    page = opened("small", 390)
    page.js(f"{DRAWN}.then(() => {DRAWN})")
    more = "document.querySelector('nav').hasAttribute('data-more')"
    assert page.js(more)
    page.js("document.querySelector('nav ul').scrollLeft = 9999")
    page.js(f"{DRAWN}.then(() => {DRAWN})")
    assert not page.js(more)
    right = "Array.from(document.querySelectorAll('.scroll caption')).filter(one =>"
    right += " one.offsetHeight).map(one => one.getBoundingClientRect().right)"
    assert page.js(right)
    assert max(page.js(right)) <= 390
    resized(page, 1400)
    page.js(DRAWN)
    assert not page.js(more)


def test_every_section_with_a_heading_is_in_the_navigation(opened):
    page = opened("small")
    links = page.js("Array.from(document.querySelectorAll('nav a'), one => one.hash.slice(1))")
    named = page.js("Array.from(document.querySelectorAll('section:has(> h2)'), one => one.id)")
    assert links == named


def test_a_phone_fits_the_graph(opened):
    page = opened("small", 390)
    page.js(f"{DRAWN}.then(() => {DRAWN})")
    inside = (
        "(() => { const own = document.querySelector('svg.graph.live').getBoundingClientRect();"
        " return Array.from(document.querySelectorAll('svg.graph.live [role=option]'))"
        ".map(one => one.getBoundingClientRect())"
        ".map(one => one.left >= own.left && one.right <= own.right && one.width > 90); })()"
    )
    assert page.js(inside)
    assert all(page.js(inside))
    assert page.js(WIDTH) == 390


def test_paper_has_the_heaviest_rows_that_were_found_and_all_details(opened, folder):
    page = opened("board")
    assert (page.js(SHOWN), page.js(SPACE)) == (100, 100)
    page.media(print_=True)
    assert page.js(SPACE) == 100
    left = "document.getElementById('layer-light')"
    assert "23 more are on the page itself" in page.js(f"{left}.textContent")
    assert page.js(f"{left}.offsetHeight") > 0
    shown = "Array.from(document.querySelectorAll('#layer-table tbody tr'))"
    shown += ".map(row => [row.offsetHeight > 0, Number(row.dataset.weight)])"
    weights = page.js(shown)
    assert min(w for there, w in weights if there) >= max(w for there, w in weights if not there)
    assert page.js("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.js("getComputedStyle(document.querySelector('.still svg')).display") == "block"
    assert typed(page, "prob") == 1
    assert page.js(SPACE) == 1
    assert page.js(RETAINED) == 1
    assert page.js(f"{left}.offsetHeight") == 0
    # all parts are opened on paper: with one row left there are pages of them
    paper = folder / "page.pdf"
    page.paper(paper)
    assert len(re.findall(rb"/Type /Page\b", paper.read_bytes())) >= 3


def test_heads_end_where_their_numbers_end(opened):
    page = opened("small")
    ends = page.js(
        "Array.from(document.querySelectorAll('#layer-table thead th.num'), head => {"
        " const end = node => { const range = document.createRange();"
        " range.selectNodeContents(node); return range.getBoundingClientRect().right; };"
        " const cell = document.querySelector('#layer-table tbody tr').cells[head.cellIndex];"
        " return [end(head.querySelector('button').firstChild), end(cell.firstChild)]; })"
    )
    assert len(ends) == 5
    for head, number in ends:
        assert abs(head - number) < 1.5


def test_hostile_names_break_neither_out_nor_the_layout(opened):
    page = opened("hostile", 360)
    for width in (360, 1200):
        resized(page, width)
        assert page.js(WIDTH) == width
        assert page.js("document.getElementById('layer-1').offsetHeight") < 1000
    assert page.js("document.querySelectorAll('script').length") == 3
    page.js("document.querySelector('[data-graph=all]').click()")
    page.js(DRAWN)
    assert page.js("document.getElementById('graph-box-0').querySelector('text').textContent")
