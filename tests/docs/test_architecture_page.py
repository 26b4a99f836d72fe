"""The page that a newcomer reads first is short, and what it and other pages name is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from edgekit.pipeline.run import STEP_NAMES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = sorted((ROOT / "edgekit").glob("*/__init__.py"))
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def is_callable(name: str) -> bool:
    """Whether a dotted name is a function or a class of a module, or a method."""
    module, _, attribute = name.rpartition(".")
    owner, _, kind = module.rpartition(".")
    found = getattr(import_module(owner), kind) if kind[:1].isupper() else import_module(module)
    return callable(getattr(found, attribute, None))


def test_every_layer_of_the_imports_has_a_line():
    tables = re.findall(r"^\| (`[^|]*) \|", PAGE.read_text(), re.M)
    named = {name for cell in tables for name in re.findall(r"`([\w.]+)`", cell)}
    tomllib = pytest.importorskip("tomllib")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for contract in contracts["contracts"]:
        for layer in contract.get("layers", ()):
            assert set(re.findall(r"\w+", layer)) - {"__main__"} <= named, layer


def test_what_to_start_with_is_there():
    text = PAGE.read_text()
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| `([\w.]+)` \|$", text, re.M)
    functions = re.findall(r"^\| `([\w.]+\.\w+)` \|", text, re.M)
    assert len(rows) > 15
    assert len(functions) >= 10
    for name in (*(f"{package}.{start}" for package, start in rows), *functions):
        assert is_callable(f"edgekit.{name}"), name


def test_the_functions_of_a_run_are_there():
    section = PAGE.read_text().partition("## One run, walked through")[2].partition("\n## ")[0]
    names = re.findall(r"`([a-z]\w*(?:\.\w+)+)`", section)
    assert len(names) > 30
    for name in names:
        assert is_callable(f"edgekit.{name}"), name
    rows = re.findall(r"^\| ([a-z, -]+) \|", section, re.M)[1:]
    assert tuple(name for row in rows for name in row.split(", ")) == STEP_NAMES


@pytest.mark.parametrize("package", PACKAGES, ids=lambda file: file.parent.name)
def test_each_package_says_where_to_start(package):
    found = re.findall(r"``?(\w+)``?\s+in\s+``?([\w.]+)``?", package.read_text())
    assert found
    for name, module in found:
        assert is_callable(f"edgekit.{package.parent.name}.{module}.{name}"), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in heads}, (
                link
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_of_the_packages_that_pages_name_are_there(page):
    for name in re.findall(
        r"`((?:edgekit|edgekit_device|scripts|tests|benchmarks)/[\w./-]+)`", page.read_text()
    ):
        assert (ROOT / name).exists(), name
