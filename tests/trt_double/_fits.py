"""Whether a value fits a type that a signature names, at least as strictly as the bindings do.

Stricter on purpose: pybind11 turns an enum into an int where an int is asked for (a format for a
mask of formats passes unseen), and bytes into a str; here both are refused.
"""

import numbers
import re
from collections.abc import Mapping
from typing import Any

from ._enum import Member


def _integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, (bool, Member))


def _dims(value: Any, classes: Mapping[str, Any]) -> bool:
    kind = classes.get("Dims")
    if kind is not None and isinstance(value, kind):
        return True
    return isinstance(value, (list, tuple)) and all(_integer(item) for item in value)


def _buffer(value: Any) -> bool:
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def bare(type_name: str) -> str:
    """A type's name without the C++ namespaces that the bindings sometimes print."""
    return re.sub(r"^(?:\w+::)+", "", type_name.strip())


def fits(type_name: str, value: Any, classes: Mapping[str, Any]) -> bool:
    """Whether `value` may be given where `type_name` is asked for."""
    name = bare(type_name)
    if name == "int":
        return _integer(value)
    if name == "float":
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if name == "bool":
        return isinstance(value, bool)
    if name == "str":
        return isinstance(value, str)
    if name == "buffer":
        return _buffer(value)
    if name.startswith(("Dims", "Permutation")) and name in classes:
        return isinstance(value, classes[name]) or _dims(value, classes)
    if name == "Weights":
        return isinstance(value, classes[name]) or type(value).__name__ == "ndarray"
    if name in classes:
        return isinstance(value, classes[name])
    nested = re.fullmatch(r"(?:list|List)\[(.*)\]", name)
    if nested:
        return isinstance(value, (list, tuple)) and all(
            fits(nested[1], item, classes) for item in value
        )
    return True  # object, capsule, numpy.ndarray, and classes that the module does not show
