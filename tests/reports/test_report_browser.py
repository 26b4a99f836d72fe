"""The page in a real browser: it renders, its script runs, and nothing is complained about."""

import json

import pytest

from tests.reports.chromium_pipe import CHROMIUM

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
# rows that are on the screen, and those that would be on paper
SHOWN = "document.querySelectorAll('#layer-table tbody tr:not([hidden], .off)').length"
RETAINED = "document.querySelectorAll('#layer-table tbody tr:not([hidden])').length"
WIDTH = "document.documentElement.scrollWidth"


def typed(page, words):
    """Searches the layer table and returns how many rows are found."""
    return page.js(
        "(() => { const one = document.getElementById('layer-search'); "
        f"one.value = {json.dumps(words)}; one.dispatchEvent(new Event('input')); "
        f"return {RETAINED}; }})()"
    )


def test_complaints_would_be_seen(browser, folder):
    text = (folder / "board.html").read_text("utf-8")
    broken = folder / "broken.html"
    broken.write_text(text.replace("// The layer table", "// changed"), encoding="utf-8")
    browser.open(broken.as_uri())
    assert any("Content Security Policy" in line for line in browser.complaints())
    # and the page is complete without its script
    assert browser.js("document.getElementById('layer-table').tBodies[0].rows.length") == 123
    assert browser.js("getComputedStyle(document.querySelector('.still svg')).display") == "block"


def test_search_filters_order_and_links_on_a_phones_width(opened):
    page = opened("board", 360)
    assert page.js(WIDTH) == 360
    assert page.js(SHOWN) == 100
    assert page.js(RETAINED) == 123
    assert typed(page, "softmax gpu") == 1
    assert page.js("document.getElementById('layer-found').textContent") == "1 of 123 layers"
    # a link to a row that is filtered away shows it
    page.js("location.hash = '#layer-120'; new Promise(done => setTimeout(done))")
    assert page.js("document.activeElement.getAttribute('href')") == "#layer-120"
    assert page.js("document.getElementById('layer-120').offsetHeight") > 0
    page.js("document.querySelector('#layer-tools').reset()")
    for name, value, rows in (("device", "GPU", 5), ("rule", "softmax.orin-axis", 1)):
        changed = f"document.getElementById('layer-{name}')"
        page.js(f"{changed}.value = '{value}'; {changed}.dispatchEvent(new Event('change'))")
        assert page.js(RETAINED) == rows
    page.js("document.querySelector('#layer-tools').reset()")
    page.js("document.querySelector('#why-not [data-rule]').closest('details').open = true")
    page.js("document.querySelector('#why-not [data-rule]').click()")
    assert page.js(RETAINED) == 1
    page.js("document.querySelector('#layer-tools').reset()")
    time = "document.querySelectorAll('#layer-table thead th')[8]"
    page.js(f"{time}.querySelector('button').click(), {time}.querySelector('button').click()")
    assert page.js(f"{time}.getAttribute('aria-sort')") == "descending"
    values = page.js(
        "Array.from(document.querySelectorAll('#layer-table tbody tr'),"
        " row => Number(row.cells[8].dataset.value))"
    )
    assert values == sorted(values, reverse=True)
    assert values[0] == 41.3


def test_links_lead_somewhere(opened):
    page = opened("board", fragment="#layer-121")
    assert page.js("document.getElementById('layer-121').offsetHeight") > 0
    assert (
        page.js(
            "Array.from(document.querySelectorAll('a[href]'), a => a.getAttribute('href'))"
            ".filter(href => !document.getElementById(href.slice(1)))"
        )
        == []
    )
    page.js("location.hash = '#segment-3'; new Promise(done => setTimeout(done))")
    assert page.js("document.getElementById('segment-3').offsetHeight") > 0
    # the slots of the timeline, predicted and measured, lead to their segments, and these to layers
    slots = "document.querySelectorAll('svg.track a')"
    assert page.js(f"{slots}.length") == 10
    page.js(f"{slots}[9].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    assert page.js("location.hash") == page.js(f"{slots}[9].getAttribute('href')")
    page.js("document.querySelector('[data-segment=\"1\"]').click()")
    assert page.js(RETAINED) == 117
