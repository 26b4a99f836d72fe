"""The double itself: a module that has what one TensorRT release has, and nothing else."""

from types import ModuleType, SimpleNamespace
from typing import Any

from . import _api
from ._behaviour import BEHAVIOURS, FUNCTIONS
from ._classes import Factory, NotPlayed

__all__ = ["VERSIONS", "Double", "NotPlayed", "module"]

VERSIONS = _api.VERSIONS
NAMES = {"full": "tensorrt", "lean": "tensorrt_lean", "dispatch": "tensorrt_dispatch"}

# aliases that the package's own __init__ makes of DataType's members
_ALIASES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    "bool": "BOOL",
    "uint8": "UINT8",
    "fp8": "FP8",
    "bfloat16": "BF16",
    "int4": "INT4",
    "fp4": "FP4",
    "e8m0": "E8M0",
}


class Double:
    """What a test sets before and reads after.

    Attributes:
        settings: What the board is like: `dla_cores`, `can_run_on_dla(layer) -> bool`,
            `failing`: sets of flag names no build succeeds with.
        violations: Offences against the documented order of calls, in words.
        messages: Every logged (severity name, text), of all loggers.
    """

    def __init__(self, version: str, flavour: str) -> None:
        self.version = version
        self.build = _api.BUILDS[version]
        self.flavour = flavour
        self.settings: Any = SimpleNamespace(
            dla_cores=2, can_run_on_dla=lambda _layer: True, failing=[]
        )
        self.violations: list[str] = []
        self.messages: list[tuple[str, str]] = []
        self.factory: Factory

    def offend(self, text: str) -> None:
        """Keeps an offence against the order of calls."""
        self.violations.append(text)


def module(version: str, flavour: str = "full") -> Any:
    """A fresh `tensorrt`, `tensorrt_lean` or `tensorrt_dispatch` as release `version` has it.

    The module's `_double` is the `Double` that drives it.

    Raises:
        ValueError: A release whose names are not known (8.5.2), or an unknown flavour.
    """
    facts = _api.facts(version, flavour)
    name = NAMES[flavour]
    made = ModuleType(name)
    double = Double(version, flavour)
    factory = double.factory = Factory(facts, name, double, BEHAVIOURS)
    for key, kind in factory.classes.items():
        if "." not in key:
            setattr(made, key, kind)
    for key in facts.values:
        if key in _ALIASES:
            setattr(made, key, factory.classes["DataType"].__members__[_ALIASES[key]])
    for key, signatures in facts.functions.items():
        setattr(made, key, _function(factory, key, signatures))
    # the wheels say 10.3.0 up to 10.13 and four parts later
    full = ".".join(map(str, double.build))
    made.__dict__.update(__version__=full if double.build >= (10, 14) else version, _double=double)
    return made


def _function(factory: Factory, name: str, signatures: tuple[str, ...]) -> Any:
    def function(*arguments: Any, **named: Any) -> Any:
        played = FUNCTIONS.get(name)
        if played is None:
            raise NotPlayed(name)
        if not signatures:  # a Python function of the package: no docstring of the bindings
            return played(factory, *arguments, **named)
        return played(factory, **factory.call("", name, signatures, arguments, named))

    function.__name__ = name
    return function
