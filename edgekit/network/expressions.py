"""Sizes of a plugin's outputs as expressions of its inputs' sizes and its node's attributes, such
as ``x0[2] // stride[0]``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import add, floordiv, mod, mul, sub
from typing import Any

_LONGEST = 256
_INPUT = re.compile(r"x(0|[1-9][0-9]?)")
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}
_FORM = (
    "an expression has whole numbers, x0[2] (a size of an input), attributes, + - * // %, min, max "
    "and parentheses"
)


@dataclass(frozen=True)
class SizeExpression:
    """A parsed expression.

    Attributes:
        text: The user's text.
        tree: The parsed syntax tree.
    """

    text: str
    tree: ast.expr

    def value(self, shapes: Sequence[Sequence[int]], attributes: Mapping[str, Any]) -> int:
        """Computes the expression's value.

        Args:
            shapes: The inputs' sizes, by position.
            attributes: The node's attributes by name.

        Raises:
            ValueError: The node lacks a name, an index is out of range, or a division by zero.
        """
        return _Evaluation(shapes, attributes).number(self.tree)


def parse_size(text: str) -> SizeExpression:
    """Parses an expression without computing it.

    Raises:
        ValueError: The text is not a valid expression; the message has the reason.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"an expression has up to {_LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"{text!r} is no expression; {_FORM}") from None
    _check_syntax(tree, text)
    return SizeExpression(text, tree)


def _check_syntax(tree: ast.expr, text: str) -> None:
    """Raises ValueError for unsupported syntax, and for an input without an index."""
    match tree:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return
        case ast.Name(id=name):
            if _INPUT.fullmatch(name):
                raise ValueError(f"{name} is an input in {text!r}: write {name}[0] for a size")
        case ast.Subscript(value=ast.Name(), slice=index):
            _check_syntax(index, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check_syntax(left, text)
            _check_syntax(right, text)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check_syntax(operand, text)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as values, keywords=[]) if (
            name in _FUNCTIONS
        ):
            for value in values:
                _check_syntax(value, text)
        case _:
            raise ValueError(f"{ast.unparse(tree)} is not allowed in {text!r}; {_FORM}")


class _Evaluation:
    """Computes parts of an expression for a node."""

    def __init__(self, shapes: Sequence[Sequence[int]], attributes: Mapping[str, Any]) -> None:
        self._shapes = shapes
        self._attributes = attributes

    def number(self, tree: ast.expr) -> int:
        """Returns a part's value."""
        match tree:
            case ast.Constant(value=int() as value):
                return value
            case ast.Name(id=name):
                return self._attribute(name)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._item(name, self.number(index))
            case ast.BinOp(left=left, op=op, right=right):
                divisor = self.number(right)
                if not divisor and isinstance(op, ast.FloorDiv | ast.Mod):
                    raise ValueError(f"{ast.unparse(tree)} divides by zero")
                return _OPERATORS[type(op)](self.number(left), divisor)
            case ast.UnaryOp(op=op, operand=operand):
                value = self.number(operand)
                return -value if isinstance(op, ast.USub) else value
            case ast.Call(func=ast.Name(id=name), args=values):
                return _FUNCTIONS[name](*map(self.number, values))
        raise AssertionError("parse_size refuses all other expressions")

    def _attribute(self, name: str) -> int:
        value = self._attributes.get(name)
        if isinstance(value, int):
            return value
        if value is None:
            raise ValueError(f"it has no attribute {name!r}; {self._describe_numbers()}")
        if isinstance(value, list):
            raise ValueError(f"its attribute {name!r} is a list: write {name}[0]")
        raise ValueError(f"its attribute {name!r} is no whole number")

    def _item(self, name: str, index: int) -> int:
        values: Any
        if _INPUT.fullmatch(name):
            number = int(name[1:])
            if number >= len(self._shapes):
                raise ValueError(f"it has {len(self._shapes)} inputs, so there is no {name}")
            values = self._shapes[number]
        else:
            values = self._attributes.get(name)
            if values is None:
                raise ValueError(f"it has no attribute {name!r}; {self._describe_numbers()}")
            if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
                raise ValueError(f"its attribute {name!r} is no list of whole numbers")
        if not -len(values) <= index < len(values):
            raise ValueError(f"{name} has {len(values)} values, so there is no {name}[{index}]")
        return int(values[index])

    def _describe_numbers(self) -> str:
        numbers = [
            name
            for name, value in self._attributes.items()
            if isinstance(value, int)
            or (isinstance(value, list) and all(isinstance(item, int) for item in value))
        ]
        return f"its whole numbers are {', '.join(numbers)}" if numbers else "it has none"
