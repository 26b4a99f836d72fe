"""Signatures of pybind11 docstrings, and arguments checked against them."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

_REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """One parameter: `positional` where the bindings gave it no name (arg0)."""

    name: str
    type: str
    default: str | None
    positional: bool


@dataclass(frozen=True)
class Signature:
    """One overload: its parameters without `self`, and the text it was read from."""

    text: str
    parameters: tuple[Parameter, ...]
    returns: str


def _split(text: str) -> list[str]:
    """`text` at its top-level commas."""
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        if char in "([{<":
            depth += 1
        elif char in ")]}" or (char == ">" and text[at - 1] != "-"):
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


@cache
def parse(text: str, method: bool = True) -> Signature:
    """The signature written as "1. name(self: Owner, a: int = 0) -> int"."""
    body = re.sub(r"^\d+\.\s*", "", text)
    opened, closed = (
        body.index("("),
        body.rindex(")") if "->" not in body else body.rindex(")", 0, body.rindex("->")),
    )
    parameters = []
    for number, part in enumerate(_split(body[opened + 1 : closed])):
        head, equals, default = part.partition(" = ")
        name, _, kind = head.partition(":")
        if number == 0 and method and name.strip() in ("self", "arg0"):
            continue
        positional = re.fullmatch(r"arg\d+", name.strip()) is not None
        parameters.append(
            Parameter(name.strip(), kind.strip(), default if equals else None, positional)
        )
    returns = body.rsplit("->", 1)[1].strip() if "->" in body else "None"
    return Signature(text, tuple(parameters), returns)


def bind(
    signature: Signature,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    fits: Callable[[str, Any], bool],
    default: Callable[[str, str], Any],
) -> dict[str, Any] | str:
    """The arguments by parameter name, or why they do not fit."""
    if len(arguments) > len(signature.parameters):
        return f"takes {len(signature.parameters)} arguments, got {len(arguments)}"
    left = dict(named)
    bound: dict[str, Any] = {}
    for number, parameter in enumerate(signature.parameters):
        given: Any = _REQUIRED
        if number < len(arguments):
            given = arguments[number]
            if parameter.name in left:
                return f"{parameter.name} is given twice"
        elif parameter.name in left and not parameter.positional:
            given = left.pop(parameter.name)
        if given is _REQUIRED:
            if parameter.default is None:
                return f"misses {parameter.name}"
            bound[parameter.name] = default(parameter.type, parameter.default)
        elif (given is None and parameter.default == "None") or fits(parameter.type, given):
            bound[parameter.name] = given
        else:
            return f"{parameter.name} is a {parameter.type}, not {given!r}"
    return f"has no parameter {', '.join(left)}" if left else bound


def literal(text: str) -> Any:
    """A default's value where it is a literal, else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
