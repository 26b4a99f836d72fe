"""Modules that tables name by strings: they are there, and they close no cycle.

import-linter (``pyproject.toml``) sees imports only; these edges are added to its graph here.
"""

from __future__ import annotations

import ast
import contextlib
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import edgekit
from edgekit.cli.main import COMMANDS

ROOT = Path(edgekit.__file__).parents[1]


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("edgekit", "edgekit_device")


def named(module: str) -> set[str]:
    """The modules that strings of a module's code name, whole or as ``package.module.function``."""
    path = ROOT / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = ROOT / module.replace(".", "/") / "__init__.py"
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        for word in re.findall(r"[a-z_]+(?:\.[a-z_0-9]+)+", node.value):
            for full in (word, f"edgekit_device.{word}"):
                head = full.rpartition(".")[0]
                found |= {name for name in (full, head) if name in graph().modules}
    return found - {"edgekit", "edgekit_device", module}


def table_edges() -> set[tuple[str, str]]:
    """(importer, imported) of every table and child program of the product."""
    edges = {("edgekit.cli.main", f"edgekit.cli.{row[0]}") for row in COMMANDS.values()}
    for importer in (
        "edgekit",
        "edgekit_device",
        "edgekit_device.commands",
        "edgekit_device.job_runner",
        "edgekit_device.runtime.model",
        "edgekit_device.board.monitor",
        "edgekit_device.board.power",
        "edgekit_device.serve.worker",
        "edgekit.solver.cpsat.process",
        "edgekit.solver.cpsat.worker",
    ):
        edges |= {(importer, name) for name in named(importer)}
    return edges


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_table_of_commands_finds_each(name):
    module, attribute, _ = COMMANDS[name]
    assert getattr(import_module(f"edgekit.cli.{module}"), attribute).name == name


def test_tables_close_no_cycle():
    edges = table_edges()
    assert ("edgekit", "edgekit.api") in edges
    assert ("edgekit_device", "edgekit_device.serve.client") in edges
    assert ("edgekit_device.commands", "edgekit_device.store.transfer") in edges
    assert ("edgekit_device.runtime.model", "edgekit_device.tensorrt.backend") in edges
    together = grimp.build_graph("edgekit", "edgekit_device", cache_dir=None)
    for importer, imported in edges:
        together.add_import(importer=importer, imported=imported)
    cycles = [
        (importer, imported)
        for importer, imported in sorted(edges)
        if together.chain_exists(importer=imported, imported=importer)
    ]
    assert cycles == []


def test_names_of_modules_in_texts_are_there():
    """Docstrings, strings and pages name modules and what is in them."""
    lost = []
    pattern = r"(?<![\w./@~-])(edgekit(?:_device)?(?:\.[A-Za-z_]\w*){2,})(?![\w/]|-\w)"
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "pyproject.toml"]
    for folder in ("edgekit", "edgekit_device", "tests", "scripts", "benchmarks", "examples"):
        files += (ROOT / folder).rglob("*.py")
    for file in files:
        if file.name == "CHANGELOG.md":
            continue
        for name in set(re.findall(pattern, file.read_text())):
            if not resolves(name):
                lost.append(f"{file.relative_to(ROOT)}: {name}")
    assert lost == []


@cache
def resolves(name: str) -> bool:
    module, rest = name, ""
    while module:
        with contextlib.suppress(ImportError):
            found = import_module(module)
            for part in filter(None, rest.split(".")):
                if not hasattr(found, part):
                    return False
                found = getattr(found, part)
            return True
        module, _, last = module.rpartition(".")
        rest = f"{last}.{rest}" if rest else last
    return False
