"""What a rewritten model says about itself, read with distrust: files come from anywhere."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from edgekit.errors import ModelError
from edgekit.rewrite._recorded import KEY, OPERATORS, SCHEMA, Derived, Recipe, Record

if TYPE_CHECKING:
    import numpy as np

    from edgekit.network import Model

__all__ = ["record_of"]

_LARGEST_TEXT = 256 << 20
_LARGEST_CONSTANT = 64 << 20
_LARGEST_RANK = 16
_LARGEST_SIZE = 1 << 40
_DTYPES = frozenset({
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "bfloat16",
})  # fmt: skip
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


def record_of(model: Model) -> Record | None:
    """Returns how a model was rewritten; None for one that was not.

    Raises:
        ModelError: Code "rewrite.record": what stands in its metadata cannot be true.
    """
    from edgekit.network import metadata

    text = metadata(model, KEY)
    if text is None:
        return None
    try:
        return _record(text)
    except ModelError as error:
        error.where = error.where or model.source
        raise


def _record(text: str) -> Record:
    if len(text) > _LARGEST_TEXT:
        _refuse(f"{len(text)} bytes are too many")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        _refuse("it is not JSON")
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        _refuse(f"its schema is not {SCHEMA}")
    original, opset = raw.get("original"), _numbers(raw.get("opset"), "opset", 1 << 16)
    if not isinstance(original, str) or not _DIGEST.match(original):
        _refuse("'original' is no digest")
    if len(opset) != 2:
        _refuse("'opset' is not two numbers")
    originals = {name: _type(item, name) for name, item in _mapping(raw, "originals").items()}
    stations = {name: _type(item, name) for name, item in _mapping(raw, "stations").items()}
    constants = _constants(raw)
    recipes = _recipes(_list(raw.get("recipes"), "recipes"), {*originals, *constants})
    made = {name for recipe in recipes for name in recipe.outputs}
    if not set(stations) <= made:
        _refuse(f"no recipe writes {min(set(stations) - made)!r}")
    weights = {}
    for name, item in _mapping(raw, "weights").items():
        if not isinstance(item, dict):
            _refuse(f"weight {name!r} is no object")
        found = Derived(_texts(item.get("from"), name), _texts(item.get("recipe"), name))
        if not (set(found.recipe) <= made and set(found.sources) <= set(originals)):
            _refuse(f"weight {name!r} comes from what is not there")
        if found.recipe and found.recipe[-1] != name:
            _refuse(f"the recipe of weight {name!r} ends in another one")
        weights[name] = found
    parameters, operators = _mapping(raw, "parameters"), _mapping(raw, "operators")
    if not all(isinstance(item, str) for item in parameters.values()):
        _refuse("'parameters' are no digests")
    _numbers(list(operators.values()), "operators", _LARGEST_SIZE)
    return Record(
        original,
        (opset[0], opset[1]),
        _rounds(raw),
        weights,
        originals,
        stations,
        recipes,
        constants,
        parameters,
        operators,
    )


def _constants(raw: Mapping[str, Any]) -> dict[str, np.ndarray]:
    found, total = {}, 0
    for name, item in _mapping(raw, "constants").items():
        found[name] = _decoded(item, name)
        total += found[name].nbytes
        # runs take little room in the text, however long they are
        if total > _LARGEST_TEXT:
            _refuse("its constants are too large")
    return found


def _rounds(raw: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], ...]:
    steps = [_texts(step, "steps") for step in _list(raw.get("steps"), "steps")]
    counts = _numbers(raw.get("rounds"), "rounds", len(steps))
    if any(len(step) != 2 for step in steps) or sum(counts) != len(steps):
        _refuse("'steps' are not pairs, or not as many as 'rounds' says")
    rounds, start = [], 0
    for count in counts:
        rounds.append(tuple((step[0], step[1]) for step in steps[start : start + count]))
        start += count
    return tuple(rounds)


def _recipes(raw: Sequence[Any], known: set[str]) -> tuple[Recipe, ...]:
    """Reads recipes; each reads only what is known before it, so there are no cycles."""
    found = []
    for item in raw:
        op = item.get("op") if isinstance(item, dict) else None
        if not isinstance(op, str) or op not in OPERATORS:
            _refuse(f"{str(op)[:80]!r} is no operator that derives weights")
        inputs, outputs = (
            _texts(item.get("inputs"), "inputs"),
            _texts(item.get("outputs"), "outputs"),
        )
        lacking = [name for name in inputs if name and name not in known]
        if lacking:
            _refuse(f"a recipe reads {lacking[0][:80]!r}, which is not known before it")
        written = [name for name in outputs if name]
        if not written or len(set(written)) < len(written) or known & set(written):
            _refuse(f"a recipe writes nothing or writes again: {str(written)[:80]}")
        attributes = item.get("attributes")
        if not isinstance(attributes, dict) or not all(map(_is_attribute, attributes.values())):
            _refuse("an attribute of a recipe is neither a number nor a text nor a list of them")
        known |= set(written)
        found.append(Recipe(op, inputs, outputs, attributes))
    return tuple(found)


def _is_attribute(value: object) -> bool:
    # a bool is an int of Python's, and none of ONNX's
    if isinstance(value, list):
        kinds = {type(part) for part in value}
        return len(kinds) == 1 and kinds <= {int, float, str} and all(map(_is_attribute, value))
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is str or (type(value) is int and abs(value) < 1 << 63)


def _decoded(item: Any, name: str) -> np.ndarray:
    import ml_dtypes  # noqa: F401  (registers bfloat16 with NumPy)
    import numpy as np

    dtype, shape = _type(item, name)
    data = item.get("data")
    if not isinstance(data, str) or len(data) > _LARGEST_CONSTANT:
        _refuse(f"constant {name!r} has no data, or too much")
    try:
        plain = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        _refuse(f"constant {name!r} is not in base64")
    kind = np.dtype(dtype)
    size, counts = math.prod(shape), item.get("counts")
    if counts is not None:
        most = _LARGEST_CONSTANT // kind.itemsize
        counts = _numbers(counts, name, most)
        if size > most or sum(counts) != size or len(plain) != kind.itemsize * len(counts):
            _refuse(f"constant {name!r} does not hold what its type and shape say")
        return np.repeat(np.frombuffer(plain, kind), counts).reshape(shape)
    if len(plain) != kind.itemsize * size:
        _refuse(f"constant {name!r} does not hold what its type and shape say")
    return np.frombuffer(plain, kind).reshape(shape)


def _type(item: Any, name: str) -> tuple[str, tuple[int, ...]]:
    dtype = item.get("dtype") if isinstance(item, dict) else None
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        _refuse(f"{name!r} has no known type")
    shape = _numbers(item.get("shape"), name, _LARGEST_SIZE)
    if len(shape) > _LARGEST_RANK or math.prod(shape) > _LARGEST_SIZE:
        _refuse(f"{name!r} is too large")
    return dtype, tuple(shape)


def _mapping(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = raw.get(key)
    if not isinstance(value, dict):
        _refuse(f"{key!r} is no object")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        _refuse(f"{name!r} is no list")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not all(isinstance(part, str) for part in _list(value, name)):
        _refuse(f"{name!r} is no list of texts")
    return tuple(value)


def _numbers(value: Any, name: str, most: int) -> list[int]:
    for part in _list(value, name):
        if type(part) is not int or not 0 <= part <= most:
            _refuse(f"{name!r} is no list of numbers up to {most}")
    return list(value)


def _refuse(reason: str) -> NoReturn:
    raise ModelError(
        f"the model says that edgekit rewrote it, and what it says cannot be true: {reason}",
        code="rewrite.record",
        hint=f"remove {KEY!r} from its metadata, or rewrite the original again",
    )
