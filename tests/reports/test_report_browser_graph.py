"""The graph of layers in a real browser: fingers, keyboard, two thousand layers."""

import pytest

from tests.reports.chromium_pipe import CHROMIUM
from tests.reports.test_report_browser import RETAINED, SHOWN, typed

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
OPTIONS = "document.querySelectorAll('svg.live [role=option]').length"
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.mark.whole
def test_two_fingers_zoom_about_their_middle(opened):
    page = opened("board")
    page.js(DRAWN)
    x, y = page.js(
        "(() => { const one = document.querySelector('svg.live'); one.scrollIntoView();"
        " const box = one.getBoundingClientRect(); return [box.x + 300, box.y + 90]; })()"
    )
    matrix = "(() => { const m = document.querySelector('svg.live > g').transform.baseVal"
    matrix += ".consolidate().matrix; return [m.a, m.e, m.f]; })()"
    k, left, _ = page.js(matrix)

    def touch(kind, reach):
        points = [{"x": x + side * reach, "y": y, "id": i} for i, side in enumerate((-1, 1))]
        page.call(
            "Input.dispatchTouchEvent", type=kind, touchPoints=points if kind != "touchEnd" else []
        )

    touch("touchStart", 40)
    for reach in (50, 60, 70, 80):
        touch("touchMove", reach)
    touch("touchEnd", 80)
    page.js(DRAWN)
    wider, moved, _ = page.js(matrix)
    assert wider / k == pytest.approx(2, rel=0.05)
    # what was between the fingers is there still
    assert (300 - moved) / wider == pytest.approx((300 - left) / k, abs=12)
    assert page.js("location.hash") == ""


@pytest.mark.whole
def test_a_turned_phone_has_the_graph_of_its_width(opened):
    state = (
        "(() => { const svg = document.querySelector('svg.live');"
        " return [svg.querySelector('g').getAttribute('transform'), svg.clientHeight,"
        " svg.querySelectorAll('.lane').length]; })()"
    )

    def turned(width):
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=390,
            deviceScaleFactor=1,
            mobile=False,
        )
        page.js(DRAWN)
        return page.js(state)

    found = {}
    for width in (390, 844):
        page = opened("board", width)
        page.js(DRAWN)
        found[width] = page.js(state)
    assert found[390] != found[844]
    page = opened("board", 390)
    page.js(DRAWN)
    assert [turned(844), turned(390)] == [found[844], found[390]]
    # the box that one is at stays the one
    page.js("document.querySelector('svg.live').focus()")
    page.key("ArrowDown")
    page.js(DRAWN)
    at = "document.querySelector('svg.live [aria-selected=true]').getAttribute('aria-label')"
    before = page.js(at)
    assert not before.startswith("Segment 0 ")
    turned(844)
    assert page.js(at) == before


def test_the_keyboard_reaches_everything(opened):
    page = opened("board")
    page.key("Tab")
    assert page.js("document.activeElement.className") == "skip"
    page.key("Enter")
    assert page.js("document.activeElement.id") == "main"
    page.js("document.querySelector('svg.live').focus({focusVisible: true})")
    at = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
    page.js(DRAWN)
    assert page.js(f"{at}.getAttribute('aria-label')").startswith("Segment 0 on GPU: 3 layers")
    page.key("ArrowRight")
    page.js(DRAWN)
    assert page.js(f"{at}.getAttribute('aria-label')").startswith("Segment 1 on DLA0: 117 layers")
    page.key("Enter")
    page.js(DRAWN)
    assert "Segment 1: 117 layers" in page.js("document.getElementById('graph-where').textContent")
    page.key("ArrowDown")
    page.js(DRAWN)
    assert page.js(f"{at}.getAttribute('aria-label')").startswith("stage2/block0/conv_a: CONV")
    page.key("Enter")
    page.js("new Promise(done => setTimeout(done))")
    assert page.js("document.activeElement.closest('tr').id") == "layer-4"
    page.js("document.querySelector('svg.live').focus()")
    page.key("Escape")
    assert "5 segments" in page.js("document.getElementById('graph-where').textContent")


def test_two_thousand_layers_stay_usable(opened, folder):
    page = opened("large")
    assert page.js(SHOWN) == 100
    assert page.js(RETAINED) == 2000
    page.js(DRAWN)
    assert page.js(OPTIONS) <= 34
    page.js("document.querySelector('[data-graph=all]').click()")
    page.js(DRAWN)
    assert page.js(OPTIONS) == 1  # too far away to read: one shape a device
    assert "2,000 layers" in page.js("document.getElementById('graph-where').textContent")
    assert page.js("document.getElementById('layer-found').textContent") == "2,000 of 2,000 layers"
    names = page.js("Array.from(document.querySelectorAll('.farname'), one => one.textContent)")
    assert len(names) > 5
    assert "Segment 0 on GPU" in names
    heights = (
        "Array.from(document.querySelectorAll('.farname'), one => one.getBoundingClientRect())"
    )
    assert min(page.js(f"{heights}.map(one => one.height)")) > 10
    transform = "document.querySelector('svg.live > g').getAttribute('transform')"
    before = page.js(transform)
    page.js(
        "const live = document.querySelector('svg.live'), box = live.getBoundingClientRect();"
        "for (let i = 0; i < 12; i++) live.dispatchEvent(new WheelEvent('wheel', {deltaY: -60,"
        " ctrlKey: true, clientX: box.x + 500, clientY: box.y + 200, cancelable: true}))"
    )
    page.js(DRAWN)
    assert page.js(transform) != before
    assert 10 < page.js(OPTIONS) < 400  # those in the window
    assert typed(page, "conv_1999") == 1
    page.js("document.querySelector('[data-page=all]').click()")
