"""Which TensorRT names the board's code uses: read from its syntax trees.

`trt.X.Y` names its class. Of any other attribute the tree does not show the class, so
tests/data/tensorrt_api/used.yaml declares them, and undeclared ones are found here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Uses", "collect", "sources"]

_PATTERNS = (
    "benchmark/fixed_addresses.py",
    "board/identity.py",
    "build/*.py",
    "cuda/memory.py",
    "tensorrt/bindings.py",
    "tensorrt/engine.py",
    "tensorrt/refit.py",
    "tensorrt/runtimes.py",
)
# names that hold the module
_MODULES = {"trt", "module"}


@dataclass
class Uses:
    """The names of the module that the code uses.

    Attributes:
        chains: "Builder", "BuilderFlag.FP16", ...: attributes of the module itself -> places.
        members: Names of attributes of other objects -> places.
        calls: (name, keywords, positional arguments) of calls of attributes -> places.
        overrides: (class of the module, method, arguments) of classes derived from it -> places.
    """

    chains: dict[str, list[str]] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    calls: dict[tuple[str, tuple[str, ...], int], list[str]] = field(default_factory=dict)
    overrides: dict[tuple[str, str, int], list[str]] = field(default_factory=dict)


def sources(root: Path) -> list[Path]:
    """The files that hold TensorRT objects, and any other that names the module."""
    folder = root / "edgekit_device"
    found = {path for pattern in _PATTERNS for path in folder.glob(pattern)}
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text())
        if any(isinstance(node, ast.Name) and node.id == "trt" for node in ast.walk(tree)):
            found.add(path)
    return sorted(found)


def collect(root: Path) -> Uses:
    """All uses in the board's code of checkout `root`."""
    uses = Uses()
    for path in sources(root):
        for tree, shift in _parse_trees(ast.parse(path.read_text())):
            place = path.relative_to(root / "edgekit_device").as_posix()
            _note_uses(tree, f"{place}:{{}}", shift, uses)
    return uses


def _parse_trees(tree: ast.Module) -> Iterator[tuple[ast.AST, int]]:
    """The file's tree, and those of programs that it keeps as text."""
    yield tree, 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "trt." in node.value:
            try:
                yield ast.parse(node.value), node.lineno - 1
            except SyntaxError:
                continue


def _note_uses(tree: ast.AST, place: str, shift: int, uses: Uses) -> None:
    aliases = dict(_find_aliases(tree))
    for node in ast.walk(tree):
        where = place.format(getattr(node, "lineno", 0) + shift)
        if isinstance(node, ast.Attribute):
            chain = _attribute_chain(node, aliases)
            if chain is not None:
                uses.chains.setdefault(chain, []).append(where)
            else:
                uses.members.setdefault(node.attr, []).append(where)
        elif isinstance(node, ast.Call):
            _note_call(node, where, uses, aliases)
        elif isinstance(node, ast.ClassDef):
            _note_overrides(node, where, uses)


def _find_aliases(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Variables that hold a class of the module: `flags = trt.SerializationFlag`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name) and isinstance(value, ast.Attribute):
                chain = _attribute_chain(value, {})
                if chain is not None and not chain.startswith("_"):
                    yield target.id, chain


def _note_overrides(defined: ast.ClassDef, where: str, uses: Uses) -> None:
    for base in defined.bases:
        chain = _attribute_chain(base, {}) if isinstance(base, ast.Attribute) else None
        for method in defined.body if chain else ():
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                key = (str(chain), method.name, len(method.args.args) - 1)
                uses.overrides.setdefault(key, []).append(where)


def _attribute_chain(attribute: ast.Attribute, aliases: dict[str, str]) -> str | None:
    """ "X.Y" of `trt.X.Y`; None of another object's attribute."""
    parts = [attribute.attr]
    value = attribute.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if isinstance(value, ast.Name) and value.id == "trt":
        return ".".join(reversed(parts))
    if isinstance(value, ast.Name) and value.id in aliases:
        return ".".join([aliases[value.id], *reversed(parts)])
    return None


def _note_call(call: ast.Call, where: str, uses: Uses, aliases: dict[str, str]) -> None:
    function = call.func
    if isinstance(function, ast.Name) and function.id in ("getattr", "hasattr"):
        target, name = call.args[0], call.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            if isinstance(target, ast.Name) and target.id in _MODULES:
                uses.chains.setdefault(name.value, []).append(where)
            elif isinstance(target, ast.Name) and target.id in aliases:
                chain = f"{aliases[target.id]}.{name.value}"
                uses.chains.setdefault(chain, []).append(where)
            elif isinstance(target, ast.Attribute) and (outer := _attribute_chain(target, aliases)):
                uses.chains.setdefault(f"{outer}.{name.value}", []).append(where)
            else:
                uses.members.setdefault(name.value, []).append(where)
    if isinstance(function, ast.Attribute) and not any(
        isinstance(arg, ast.Starred) for arg in call.args
    ):
        keywords = tuple(sorted(word.arg for word in call.keywords if word.arg))
        if not any(word.arg is None for word in call.keywords):
            uses.calls.setdefault((function.attr, keywords, len(call.args)), []).append(where)
