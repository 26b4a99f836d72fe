"""Pages and one Chromium for all tests of the page in a browser."""

import pytest

from edgekit.reports.html.page import write_report
from tests.reports import large_run
from tests.reports.chromium_pipe import Browser


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    write_report(large_run.monitored(), folder / "board.html")
    write_report(large_run.monitored(layers=8), folder / "small.html")
    write_report(large_run.large(), folder / "large.html")
    write_report(large_run.hostile(), folder / "hostile.html")
    return folder


@pytest.fixture(scope="session")
def browser(folder):
    with Browser(folder) as found:
        yield found


@pytest.fixture
def opened(browser, folder):
    """Returns a function that opens a page; nothing may be complained about or fetched."""

    def show(name, width=1200, fragment="", **settings):
        browser.open((folder / f"{name}.html").as_uri() + fragment, width, **settings)
        return browser

    yield show
    assert browser.complaints() == []
    assert browser.requests() == []
