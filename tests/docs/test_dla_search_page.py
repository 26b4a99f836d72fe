"""docs/dla-support-search.html in a real browser: the question, search, filters and the address."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.reports.chromium_pipe import CHROMIUM, Browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dla-support-search.html"
AXE = ROOT / "tests" / "data" / "vendor" / "axe-core" / "axe.min.js"
Opened = Callable[..., Browser]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("search")) as found:
        yield found


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Returns a function that opens the page; it may complain about and fetch nothing."""

    def show(fragment: str = "", width: int = 1200, *, dark: bool = False) -> Browser:
        browser.open(PAGE.as_uri() + fragment, width, dark=dark)
        return browser

    yield show
    assert browser.complaints() == []
    assert browser.requests() == []


def chosen(page: Browser, **values: str) -> None:
    """Sets fields as a user does."""
    for key, value in values.items():
        field = f"document.getElementById('{key}')"
        page.js(
            f"{field}.value = {json.dumps(value)};"
            f"{field}.dispatchEvent(new Event('{'input' if key == 'q' else 'change'}'))"
        )


def text(page: Browser, name: str) -> str:
    return str(page.js(f"document.getElementById('{name}').innerText"))


def rows(page: Browser, table: str) -> list[str]:
    """The first cell of each row that a table shows."""
    found: list[str] = page.js(
        f"[...document.querySelectorAll('#{table} tbody th')].map(one => one.textContent)"
    )
    return [one.replace("\u200b", "") for one in found]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("board", "jetpack", "word", "why", "source"),
    [
        (
            "jetson-agx-orin-64gb",
            "6.2",
            "Yes",
            "TensorRT 10.3.0 supports 2 DLA cores",
            "JetPack, J",
        ),
        ("jetson-agx-orin-64gb", "7.2", "No", "TensorRT 10.16.2 does not support", "release notes"),
        ("jetson-agx-orin-64gb", "7.2.2", "Yes", "INT8 from Q/DQ nodes", "TensorRT docu"),
        ("jetson-agx-orin-64gb", "7.2.1", "Not known", "is unknown", "JetPack, J"),
        ("jetson-orin-nano-8gb", "6.2", "No", "This module has no DLA", "operator matrix"),
        ("jetson-agx-thor", "7.1", "No", "This module has no DLA", "AGX Thor"),
    ],
)
def test_does_my_module_have_a_dla_that_my_release_can_use(
    opened: Opened, board: str, jetpack: str, word: str, why: str, source: str
) -> None:
    page = opened()
    assert text(page, "answer") == "Choose your module and its JetPack."
    chosen(page, board=board, jetpack=jetpack)
    answer = text(page, "answer")
    assert answer.splitlines()[0] == word
    assert why in answer
    page.js("document.querySelector('#answer details').open = true")
    assert source in text(page, "answer")
    # and the address leads there again
    fragment = str(page.js("location.hash"))
    page = opened(fragment)
    assert text(page, "answer") == answer


def test_a_release_that_is_not_for_a_module_is_not_offered(opened: Opened) -> None:
    page = opened("#board=jetson-agx-orin-64gb&jetpack=6.2")
    chosen(page, board="jetson-agx-thor")
    assert page.js("document.getElementById('jetpack').value") == ""
    offered = page.js("[...document.getElementById('jetpack').options].map(one => one.value)")
    assert offered == ["", "7.0", "7.1", "7.2", "7.2.1", "7.2.2"]
    assert text(page, "answer").startswith("It has no DLA")


def test_does_my_module_run_my_operator(opened: Opened) -> None:
    page = opened()
    chosen(page, board="jetson-orin-nx-16gb", jetpack="7.2", operator="Softmax")
    answer = text(page, "answer")
    assert answer.startswith("DLA usable: no\n")
    assert "So Softmax runs on the GPU." in answer
    assert "What to do: use JetPack 6.1 to 6.2.3 with TensorRT 10.3.0; no newer" in answer
    chosen(page, jetpack="6.2")
    answer = text(page, "answer")
    assert answer.startswith("DLA usable: yes\n")
    assert "Softmax in FP16: within its rules" in answer
    chosen(page, operator="Div")
    assert "Div in FP16: never elementwise.div_int8" in text(page, "answer")
    chosen(page, board="jetson-agx-orin-64gb", jetpack="7.2")
    assert "What to do: update to JetPack 7.2.2 or later" in text(page, "answer")


def test_a_dispute_names_both_sides(opened: Opened) -> None:
    page = opened("#operator=Flatten")
    box = "[...document.querySelectorAll('#operators details')].find(one => "
    box += "one.textContent.startsWith('Disputed'))"
    page.js(f"{box}.open = true")
    shown = page.js(f"[...{box}.querySelectorAll('p')].map(one => one.textContent)")
    assert shown == [
        "SHUFFLE layers run: TensorRT Developer Guide 10.7, Working with DLA",
        "TensorRT does not expose the operator on the DLA: NVIDIA DLA operator matrix (Orin)",
    ]


@pytest.mark.whole
def test_search_and_filters(opened: Opened) -> None:
    page = opened()
    database = json.loads((PAGE.parent / "data" / "dla-support.json").read_text("utf-8"))
    assert len(rows(page, "operators")) == len(database["operators"])
    assert len(rows(page, "rules")) == len(database["rules"])
    assert len(rows(page, "matrix")) == len(database["matrix"])
    assert database["version"] in text(page, "version")
    chosen(page, q="softmax")
    assert rows(page, "operators") == ["LogSoftmax", "Softmax"]
    assert "softmax.axis" in rows(page, "rules")
    chosen(page, q="", operator="Div")
    assert rows(page, "operators") == ["Div"]
    assert "elementwise.div_int8" in rows(page, "rules")
    # in force from 8.6.12 on
    chosen(page, tensorrt="8.5.2")
    assert "elementwise.div_int8" not in rows(page, "rules")
    chosen(page, tensorrt="", board="jetson-agx-orin-64gb", jetpack="6.2", precision="fp16")
    assert "never elementwise.div_int8" in text(page, "operators")
    chosen(page, precision="int8")
    assert "within its rules" in text(page, "operators")
    chosen(page, operator="", rule="convolution.kernel")
    assert rows(page, "rules") == ["convolution.kernel"]
    assert rows(page, "operators") == ["Conv", "Gemm", "MatMul"]
    assert "1..32 elements" in text(page, "rules")
    page.js("document.getElementById('clear').click()")
    assert page.js("location.hash") == ""
    assert len(rows(page, "rules")) == len(database["rules"])


def test_the_address_keeps_the_filters_and_a_link_to_a_rule_keeps_the_module(
    opened: Opened,
) -> None:
    page = opened("#board=jetson-agx-orin-64gb&jetpack=6.2&operator=Conv")
    assert rows(page, "operators") == ["Conv"]
    page.js(
        "document.querySelector('#operators details').open = true;"
        "[...document.querySelectorAll('#operators details a')]"
        ".find(one => one.textContent === 'convolution.stride').click();"
        "new Promise(done => setTimeout(done))"
    )
    assert rows(page, "rules") == ["convolution.stride"]
    assert text(page, "answer").startswith("Yes")


@pytest.mark.whole
@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True), (1200, True)])
def test_it_fits_a_phone_and_the_dark(opened: Opened, width: int, *, dark: bool) -> None:
    page = opened("#board=jetson-agx-orin-64gb&jetpack=7.2.2&q=resize", width, dark=dark)
    assert page.js("document.documentElement.scrollWidth") == width
    page.js("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.js("document.documentElement.scrollWidth") == width
    page.js(AXE.read_text("utf-8") + "; 1")
    found = page.js(
        "axe.run({preload: false, resultTypes: ['violations']}).then(found => found.violations"
        ".filter(one => ['serious', 'critical'].includes(one.impact))"
        ".map(one => [one.id, one.nodes.map(node => node.html.slice(0, 200))]))"
    )
    assert found == []
