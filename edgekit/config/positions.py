"""YAML with the position of each value, and without YAML's traps (ambiguous scalars, merge keys,
very deep or very large documents).
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.composer import Composer

from edgekit.errors import ConfigError, Problem

# ${NAME} in braces and not in quotes, whose brace YAML reads as a mapping's
_BARE_VARIABLE = re.compile(r"\{[^\"']*\$\{")
LARGEST_YAML = 64 << 20  # bytes of a file
_MAX_DEPTH = 40
_MOST_DIGITS = 100  # of a number; Python reads none of more than 4,300
_MAX_NODES = 20_000  # an alias bomb grows past this long before memory does
# looks like a number in YAML 1.1 but not in 1.2: octal, sexagesimal, underscores
_AMBIGUOUS = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+|[0-9]+_[0-9_]*)$")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")


@dataclass(frozen=True)
class YamlDocument:
    """A parsed file: plain values, the position of each by its path, and problems found.

    ``given`` are the paths of options that won over the file, ``file`` then its own values.
    """

    name: str
    value: Any
    positions: dict[tuple[str | int, ...], tuple[int, int]]
    problems: tuple[Problem, ...]
    given: frozenset[tuple[str | int, ...]] = frozenset()
    file: Any = None

    def where(self, path: tuple[str | int, ...]) -> str:
        """Returns ``file:line:column`` of the nearest known part of ``path``.

        A value in ``given`` is not from the file: its place is the option.
        """
        # the nearest option above the key
        for end in range(len(path), 0, -1):
            if path[:end] in self.given:
                return f"option {'.'.join(map(str, path[:end]))}"
        if not self.positions:  # a model, without a file
            return self.name
        while path and path not in self.positions:
            path = path[:-1]
        line, column = self.positions.get(path, (1, 1))
        return f"{self.name}:{line}:{column}"

    def given_keys(self, section: str) -> frozenset[str]:
        """Returns the keys of a section that options gave."""
        return frozenset(str(path[1]) for path in self.given if path[0] == section and path[1:])

    def knows(self, path: tuple[str | int, ...]) -> bool:
        """Returns True if the file or an option has a value at ``path`` or below it."""
        return path in self.positions or any(g[: len(path)] == path for g in self.given)


class _Composer(Composer):
    """Only builds the node tree, up to a maximum number of nodes; scalars keep their text."""

    def __init__(self, name: str, most: int) -> None:
        Composer.__init__(self)
        self._name = name
        self._left = most

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Stops at the first node above the maximum: a tree of 10 MB of text takes minutes."""
        self._left -= 1
        if self._left < 0:
            mark = self.peek_event().start_mark  # type: ignore[attr-defined]
            raise _too_large(f"{self._name}:{mark.line + 1}:{mark.column + 1}")
        return super().compose_node(parent, index)


class _PythonLoader(_Composer, yaml.SafeLoader):
    def __init__(self, text: str, name: str, most: int) -> None:
        yaml.SafeLoader.__init__(self, text)
        _Composer.__init__(self, name, most)


if yaml.__with_libyaml__:

    class _CLoader(_Composer, yaml.CSafeLoader):
        def __init__(self, text: str, name: str, most: int) -> None:
            yaml.CSafeLoader.__init__(self, text)
            _Composer.__init__(self, name, most)


def _tree(text: str, name: str, most: int) -> yaml.Node | None:
    """Returns the document's nodes; with libyaml, if available, in a tenth of the time."""
    if yaml.__with_libyaml__:
        with contextlib.suppress(yaml.YAMLError):  # Python's error has a better message
            return _CLoader(text, name, most).get_single_node()
    return _PythonLoader(text, name, most).get_single_node()


def _too_large(where: str) -> ConfigError:
    problem = Problem("too large or nested too deeply for a configuration", where)
    return ConfigError([problem], code="config.syntax")


class _PositionReader:
    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self.most = most
        self.positions: dict[tuple[str | int, ...], tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self.nodes = 0

    def place(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def read(self, node: yaml.Node, path: tuple[str | int, ...]) -> Any:
        self.nodes += 1
        if self.nodes > self.most or len(path) > _MAX_DEPTH:
            raise _too_large(self.place(node))
        # the key's own position was stored by the mapping that holds it
        self.positions.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, (*path, i)) for i, child in enumerate(node.value)]
        return self.scalar(node)

    def mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...]) -> dict[str, Any]:
        result = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem("a key must be a plain name", self.place(key_node)))
                continue
            key = str(key_node.value)
            # most YAML libraries silently keep the last value
            if key in result:
                self.problems.append(
                    Problem(
                        f"duplicate key '{key}'; the first is on line {lines[key]}",
                        self.place(key_node),
                        "keep one of the two",
                    )
                )
                continue
            lines[key] = key_node.start_mark.line + 1
            mark = key_node.start_mark
            self.positions[(*path, key)] = (mark.line + 1, mark.column + 1)
            result[key] = self.read(value_node, (*path, key))
        return result

    def scalar(self, node: yaml.Node) -> Any:
        text = str(node.value)
        # quotes or a block make it a text
        if getattr(node, "style", None) or node.tag == "tag:yaml.org,2002:binary":
            return text
        if text in ("", "~", "null"):
            return None
        # only these: YAML 1.1's yes, no, on and off are texts here, as in YAML 1.2
        if text in ("true", "false"):
            return text == "true"
        if _AMBIGUOUS.match(text):
            self.problems.append(
                Problem(
                    f"'{text}' is a number only in some YAML versions",
                    self.place(node),
                    f"put it in quotes ('{text}') if it is text, or write a plain decimal number",
                )
            )
            return RefusedScalar(text)
        if _INT.match(text) and len(text) <= _MOST_DIGITS:
            return int(text)
        if _INT.match(text) or (_FLOAT.match(text) and len(text) > 10 * _MOST_DIGITS):
            self.problems.append(
                Problem(
                    f"a number of {len(text):,} digits",
                    self.place(node),
                    "no key accepts a number this long",
                )
            )
            return RefusedScalar(text)
        if _FLOAT.match(text):
            return float(text)
        return text


class RefusedScalar(str):
    """The text of a value with a reported problem: the schema's errors for it are left out."""

    __slots__ = ()


def parse_yaml(text: str, name: str, *, most: int = _MAX_NODES) -> YamlDocument:
    """Parses ``text`` with a maximum number of values; ``name`` is the file's name in positions.

    Raises:
        ConfigError: The text is not YAML (code ``config.syntax``).
    """
    try:
        # a key is a node, too
        root = _tree(text, name, 2 * most)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else f"{name}:1:1"
        why = error.problem or error.context or "cannot be read"
        hint = ""
        if "<stream end>" in why:
            why = "the file ends before a } or ]"
        if "'\\t'" in why:
            why, hint = "a tab in the indentation", "indent with spaces"
        line = text.splitlines()[mark.line : mark.line + 1] if mark else []
        if line and _BARE_VARIABLE.search(line[0]):
            hint = 'inside { } put a text with ${NAME} in quotes: {key: "${NAME}"}'
        raise ConfigError(
            [Problem(f"not valid YAML: {why}", where, hint)], code="config.syntax"
        ) from None
    except yaml.YAMLError as error:
        message = f"not valid YAML: {str(error).splitlines()[0]}"
        raise ConfigError([Problem(message, f"{name}:1:1")], code="config.syntax") from None
    except RecursionError:
        problem = Problem("nested too deeply for a configuration", f"{name}:1:1")
        raise ConfigError([problem], code="config.syntax") from None
    if root is None:
        return YamlDocument(name, None, {(): (1, 1)}, ())
    reader = _PositionReader(name, most)
    value = reader.read(root, ())
    return YamlDocument(name, value, reader.positions, tuple(reader.problems))
