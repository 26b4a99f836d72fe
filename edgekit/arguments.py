"""Checks the arguments of public functions: names and types, by the function's annotations. A wrong
argument raises a ``UsageError`` with its place.

Checked types: text, numbers, paths, lists, mappings, functions, choices. Values annotated with
other classes pass unchecked; the function itself reports their errors. The names of configuration
keys are checked here, their values by the loader of the configuration.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from typing import ParamSpec, TypeVar

from edgekit.errors import EdgekitError, UsageError

_P = ParamSpec("_P")
_R = TypeVar("_R")
# methods that identify a class of an annotation without an import of its module
_METHODS = {"Progress": ("begin", "update", "end", "note"), "TextIO": ("write",)}
_CLASSES = ("Config", "TuningRequest", "TraceFiles", "Console", "ModelPart")
# numbers whose least value the command line states, too
_LEAST = {"fail_under": 0, "keep": 0, "limit": 1, "older_than_days": 0}
_SHOWN = 60


@dataclass(frozen=True)
class _Kind:
    """A kind of argument: the test of a value, and the kind's name in messages."""

    holds: Callable[[object], bool]
    words: str


@functools.cache
def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Returns a function that checks its arguments, and then calls ``function``.

    The new function raises a UsageError ("api.argument") for a missing, unknown or repeated
    argument, and for an argument of another type than its annotation; and a ConfigError for an
    unknown key of a configuration. An error without a place gets the function's name.
    """
    name = f"edgekit.{function.__name__}"
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise _binding_error(name, signature, str(error), kwargs) from None
        for key, value in given.items():
            parameter = signature.parameters[key]
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                from edgekit.config.loader import refuse_unknown

                # the loader of the configuration checks the values
                refuse_unknown(value)
                continue
            several = parameter.kind is inspect.Parameter.VAR_POSITIONAL
            for item in value if several else (value,):
                _check_type(name, key, str(parameter.annotation), item)
        try:
            return function(*args, **kwargs)
        except EdgekitError as error:
            error.where = error.where or name
            raise

    return called


def _binding_error(
    name: str, signature: inspect.Signature, why: str, given: Mapping[str, object]
) -> UsageError:
    known = list(signature.parameters)
    for key in given:
        if key not in known:
            return _unknown_argument(name, key, known)
    return UsageError(
        f"{name}: {why}", code="api.argument", where=name, hint=f"help({name}) lists the arguments"
    )


def _unknown_argument(name: str, key: str, known: Sequence[str]) -> UsageError:
    near = get_close_matches(key, known, 1)
    return UsageError(
        f"{name} has no argument {key!r}",
        code="api.argument",
        where=f"{name}({key})",
        hint=f"did you mean {near[0]}?" if near else f"help({name}) lists the arguments",
    )


def _check_type(name: str, key: str, annotation: str, value: object) -> None:
    kind, least = _kind(annotation), _LEAST.get(key)
    # not `value < least`, which is False for NaN
    if isinstance(value, int | float) and least is not None and not value >= least:
        kind, shown = _Kind(lambda _: False, f"{least} or more"), repr(value)
    elif isinstance(value, str | os.PathLike) and "\0" in os.fsdecode(value):
        kind, shown = _Kind(lambda _: False, "text without a NUL character"), repr(value)
    elif kind is None or kind.holds(value):
        return
    else:
        shown = repr(value)
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}..."
    raise UsageError(
        f"{key} is {shown}, but {name} takes {kind.words}",
        code="api.argument",
        where=f"{name}({key})",
        hint=f"give {key} as {kind.words}",
    )


@functools.cache
def _kind(annotation: str) -> _Kind | None:
    """Returns the kind that an annotation states; None where it states none in full."""
    # as text: get_type_hints would import the modules of all annotated classes
    return _parse_kind(ast.parse(annotation, mode="eval").body)


_PLAIN = {
    "str": _Kind(lambda value: isinstance(value, str), "text"),
    "bool": _Kind(lambda value: isinstance(value, bool), "True or False"),
    "int": _Kind(
        # Integral and Real include NumPy's scalars
        lambda value: isinstance(value, Integral) and not isinstance(value, bool),
        "a whole number",
    ),
    "float": _Kind(
        lambda value: isinstance(value, Real) and not isinstance(value, bool), "a number"
    ),
    "Path": _Kind(lambda value: isinstance(value, os.PathLike), "a path"),
    "None": _Kind(lambda value: value is None, "None"),
}


def _name_kind(name: str) -> _Kind | None:
    """Returns the kind of a plain type or of a class."""
    if name in _METHODS:
        methods = _METHODS[name]
        words = f"an object with {', '.join(methods)}"
        return _Kind(lambda value: all(hasattr(value, method) for method in methods), words)
    if name in _CLASSES:
        return _Kind(
            lambda value: any(base.__name__ == name for base in type(value).__mro__), f"a {name}"
        )
    return _PLAIN.get(name)


def _parse_kind(node: ast.expr) -> _Kind | None:
    if isinstance(node, ast.BinOp):
        return _union_kind(_parse_kind(node.left), _parse_kind(node.right))
    if isinstance(node, ast.Constant) and node.value is None:
        return _PLAIN["None"]
    if isinstance(node, ast.Name):
        return _name_kind(node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return _subscript_kind(node.value.id, inner)
    return None


def _union_kind(one: _Kind | None, other: _Kind | None) -> _Kind | None:
    # a union with an unchecked class takes anything
    if one is None or other is None:
        return None
    words = f"{one.words} or {other.words}"
    return _Kind(lambda value: one.holds(value) or other.holds(value), words)


def _subscript_kind(name: str, inner: Sequence[ast.expr]) -> _Kind | None:
    if name == "Literal":
        choices = [ast.literal_eval(choice) for choice in inner]
        return _Kind(
            # identity first: an array's == is an array, without a truth value
            lambda value: any(value is choice or value == choice for choice in choices),
            " or ".join(map(repr, choices)),
        )
    if name == "Callable":
        return _Kind(callable, "a function")
    if name == "Sequence":
        each = _parse_kind(inner[0])
        return _Kind(
            lambda value: (
                isinstance(value, Sequence)
                and not isinstance(value, str | bytes)
                and (each is None or all(map(each.holds, value)))
            ),
            "a list" if each is None else f"a list ({each.words} each)",
        )
    if name == "Mapping":
        keys, values = map(_parse_kind, inner)
        return _Kind(
            lambda value: (
                isinstance(value, Mapping)
                and (keys is None or all(map(keys.holds, value)))
                and (values is None or all(map(values.holds, value.values())))
            ),
            "a mapping" if values is None else f"a mapping ({values.words} each)",
        )
    return None
