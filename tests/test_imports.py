"""Modules that tables name by strings are there and close no cycle; no needless late import.

import-linter (``pyproject.toml``) sees imports only; the tables' edges are added to its graph here.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import grimp
import pytest

import edgekit
import edgekit_device
from edgekit.cli.main import COMMANDS
from edgekit_device import commands
from edgekit_device.job_runner import JOBS
from edgekit_device.runtime.model import BACKENDS

ROOT = Path(edgekit.__file__).parents[1]


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("edgekit", "edgekit_device")


@cache
def modules() -> frozenset[str]:
    return frozenset(graph().modules)  # grimp makes the set anew each time


@cache
def tree(module: str) -> ast.Module:
    path = ROOT / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = ROOT / module.replace(".", "/") / "__init__.py"
    return ast.parse(path.read_text())


def named(module: str) -> set[str]:
    """The modules that strings of a module's code name, whole or as ``package.module.function``."""
    parents = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(tree(module)) if isinstance(node, parents)]
    docstrings = {
        id(node.body[0].value)
        for node in documented
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    found = set()
    for node in ast.walk(tree(module)):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if id(node) in docstrings:
            continue
        for word in re.findall(r"[a-z_]+(?:\.[a-z_0-9]+)+", node.value):
            for full in (word, f"edgekit_device.{word}"):
                head, _, attribute = full.rpartition(".")
                if full in modules():
                    found.add(full)
                elif head in modules() and attribute in functions(head):
                    found.add(head)
    return found - {"edgekit", "edgekit_device", module}


@cache
def functions(module: str) -> set[str]:
    return {node.name for node in tree(module).body if isinstance(node, ast.FunctionDef)}


def table_edges() -> set[tuple[str, str]]:
    """(importer, imported) of every table and child program of the product."""
    edges = {("edgekit.cli.main", f"edgekit.cli.{row[0]}") for row in COMMANDS.values()}
    for importer in modules():
        edges |= {(importer, name) for name in named(importer)}
    return edges


def test_every_row_of_the_board_s_tables_is_there(monkeypatch):
    homes = []
    monkeypatch.setattr(commands, "_import_and_call", homes.append)
    commands.make_parser()
    rows = [f"edgekit_device.{home}" for home in homes]
    rows += [f"edgekit_device.{home}.{name}" for name, home in edgekit_device._HOMES.items()]
    rows += [f"{module}.run" for module in JOBS.values()]
    assert len(homes) > 20
    for row in rows:
        module, _, name = row.rpartition(".")
        assert callable(getattr(import_module(module), name)), row
    for module in BACKENDS.values():
        import_module(module)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_table_of_commands_finds_each(name):
    module, attribute, _ = COMMANDS[name]
    assert getattr(import_module(f"edgekit.cli.{module}"), attribute).name == name


@pytest.mark.whole
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


def imports(node: ast.AST, late: bool = False) -> Iterator[tuple[str, bool]]:
    """(own module, whether in a function) of all imports below a node but the type-only ones."""
    late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        each = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in modules() else str(node.module) for name in each]
    elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
        return
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                yield from imports(child, late)
        return
    yield from ((name, late) for name in names if name in modules())


@pytest.mark.whole
def test_an_import_in_a_function_spares_something():
    """What a module loads when it is imported is not imported in its functions."""
    found = {module: set(imports(tree(module))) for module in modules()}

    @cache
    def loaded(module: str) -> frozenset[str]:
        direct = {name for name, late in found[module] if not late}
        return frozenset(direct).union(*(loaded(name) for name in direct))

    needless = [
        f"{module}: {name}"
        for module in sorted(found)
        for name, late in sorted(found[module])
        if late and name in loaded(module)
    ]
    assert needless == []


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
