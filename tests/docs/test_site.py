"""The site is built strictly, loads nothing from elsewhere, and shows what GitHub shows."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import click
import pytest
from markdown_it import MarkdownIt

from edgekit.errors import ConfigError
from tests.cli.test_help import parse

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.whole
@pytest.mark.slow
def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in PAGES:
        text = (site / f"{page.stem.lower()}.html").read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="([^"]+)"', text)
        assert loaded
        assert [name for name in loaded if "//" in name] == [], page.name


@pytest.mark.whole
@pytest.mark.slow
def test_the_list_for_tools_links_to_what_is_there(site: Path) -> None:
    for folder in (site, ROOT / "docs"):
        links = re.findall(r"\]\(([^)]+)\)", (folder / "llms.txt").read_text(encoding="utf-8"))
        assert len(links) >= len(PAGES) - 1
        assert [link for link in links if not (folder / link).is_file()] == []


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lists_tables_and_blocks_are_those_of_github(site: Path, page: Path) -> None:
    github = MarkdownIt("commonmark").enable("table").render(page.read_text(encoding="utf-8"))
    shown = (site / f"{page.stem.lower()}.html").read_text(encoding="utf-8")
    article = shown.partition("<article")[2].partition("</article>")[0]
    for element in ("li", "pre", "tr", "h2", "h3"):
        opened = rf"<{element}[ >]"
        assert len(re.findall(opened, article)) == len(re.findall(opened, github)), element


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "README.md", ROOT / "configs/README.md"], ids=lambda page: page.name
)
def test_every_command_of_a_page_is_one(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that need more than a file are run by the page's own test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "frames.npz").touch()
    text = page.read_text(encoding="utf-8").replace("\\\n", "")
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.S):
        for line in block.splitlines():
            program, *arguments = shlex.split(line.removeprefix("$ "), comments=True) or [""]
            if program == "edgekit":
                with contextlib.suppress(click.exceptions.Exit):  # of --help
                    parse(arguments)
                configs = [word for word in arguments if word.startswith("configs/")]
                assert all((ROOT / name).exists() for name in configs), line
    # within a sentence it may lack its arguments
    for line in re.findall(r"`edgekit ([a-z][^`]*)`", re.sub(r"```.*?```", "", text, flags=re.S)):
        try:
            parse(shlex.split(line))
        except (click.exceptions.Exit, click.MissingParameter, IndexError):
            pass
        except ConfigError as error:
            assert error.code == "config.missing"  # noqa: PT017
        except click.BadOptionUsage as error:
            assert "requires an argument" in str(error)  # noqa: PT017


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_commands_of_contributors_are_there(page: str) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    for line in block.splitlines():
        words = [word for word in shlex.split(line, comments=True) if word != ".venv/bin/python"]
        assert [word for word in words if word[0] != "-" and not (ROOT / word).exists()] == []


def test_the_example_of_the_api_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    exec(re.findall(r"```python\n(.*?)```", text, re.S)[0], {})
    assert "dla_layers" in capsys.readouterr().out


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts/make_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.whole
@pytest.mark.parametrize("name", ["terminal", "cuts"])
def test_the_recording_is_what_its_commands_print(pictures: ModuleType, name: str) -> None:
    """scripts/make_pictures.py NAME makes it anew."""
    svg = (ROOT / f"docs/images/{name}.svg").read_text(encoding="utf-8")
    shown = "".join(html.unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).split())
    for command in pictures.COMMANDS[name]:
        printed = "".join((command + pictures.run_command(command)).split())
        assert printed in shown
    assert not re.search(r"(?:href=|src=|src:|url\()\W*http", svg)


def test_the_report_is_of_an_example(pictures: ModuleType) -> None:
    assert pictures.CONFIGURATION.exists()
    assert (ROOT / "docs/images/report.png").stat().st_size < 200_000
