"""The double itself: a module that has what one TensorRT release has, and nothing else."""

import json
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from . import _api
from ._behaviour import BEHAVIOURS, FUNCTIONS
from ._classes import Factory, NotPlayed
from ._offences import record

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


# JetPack 7's TensorRT 10.16 has no DLA compiler, so its builder counts no cores
_CORES = {"10.16.1": 0}
# what the default predicate lets a DLA run; a test may put its own in `settings.can_run_on_dla`
_ON_DLA = frozenset(
    [
        "CONVOLUTION",
        "DECONVOLUTION",
        "ACTIVATION",
        "POOLING",
        "SCALE",
        "ELEMENTWISE",
        "CONCATENATION",
        "RESIZE",
        "SOFTMAX",
        "LRN",
        "PARAMETRIC_RELU",
    ]
)
_EXPLICIT = frozenset(["QUANTIZE", "DEQUANTIZE"])


def runs_on_dla(layer: Any) -> bool:
    """Whether a layer's kind is one that DLAs have; explicit quantization came with 11."""
    kind = layer._s.kind_name
    return kind in _ON_DLA or (kind in _EXPLICIT and layer._s.double.build >= (11,))


class Double:
    """What a test sets before and reads after.

    Attributes:
        settings: What the board is like: `dla_cores`, `can_run_on_dla(layer) -> bool`,
            `failing`: sets of names (builder flags, "DLA", "DLA_STANDALONE") that no build
            succeeds with; `broken`: a reason why no build succeeds at all; `device_memory`: bytes
            that a context needs, in the place of 512 a layer. In a process of its own they come
            from the JSON file named by EDGEKIT_TEST_TENSORRT_SETTINGS, with `gpu_only` (names of
            layers that no DLA runs) for the predicate and `called` (four parts) for a release that
            calls itself otherwise than the one whose names it has.
        builds: The flag names of each build tried.
        held: What the configuration of each build tried held beside its flags, by name.
        violations: Offences against the documented order of calls, in words.
        messages: Every logged (severity name, text), of all loggers.
    """

    def __init__(self, version: str, flavour: str) -> None:
        self.version = version
        self.build = _api.BUILDS[version]
        self.flavour = flavour
        self.settings: Any = SimpleNamespace(
            dla_cores=_CORES.get(version, 2),
            can_run_on_dla=runs_on_dla,
            failing=[],
            broken="",
            device_memory=None,
        )
        self.builds: list[list[str]] = []
        self.held: list[dict[str, Any]] = []
        self.violations: list[str] = []
        self.messages: list[tuple[str, str]] = []
        #: What the module's plugin registry has, and the libraries that brought it.
        self.creators: dict[tuple[str, str, str], str] = {}
        self.libraries: list[str] = []
        self.factory: Factory
        if named := os.environ.get("EDGEKIT_TEST_TENSORRT_SETTINGS"):
            self._load(Path(named))

    def offend(self, text: str) -> None:
        """Keeps an offence against the order of calls (and in the file `violations` names)."""
        self.violations.append(text)
        record(text)

    def _load(self, path: Path) -> None:
        given = json.loads(path.read_text())
        gpu_only = set(given.pop("gpu_only", ()))
        given.pop("violations", None)
        if called := given.pop("called", ""):
            self.build = tuple(map(int, called.split(".")))
        if gpu_only:
            self.settings.can_run_on_dla = lambda layer: (
                runs_on_dla(layer) and layer._s.name not in gpu_only
            )
        unknown = sorted(set(given) - set(vars(self.settings)))
        if unknown:
            raise ValueError(f"{path}: the double has no setting {', '.join(unknown)}")
        vars(self.settings).update(given)


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
    if flavour == "full" and "IPluginV3QuickCore" in factory.classes:
        made.plugin = _decorators(name, factory)  # type: ignore[attr-defined]
    # the wheels say 10.3.0 up to 10.13 and four parts later
    full = ".".join(map(str, double.build))
    made.__dict__.update(__version__=full if double.build >= (10, 14) else version, _double=double)
    return made


def _decorators(name: str, factory: Factory) -> ModuleType:
    """The package's submodule `plugin`: which decorators there are, without behaviour."""
    found = ModuleType(f"{name}.plugin")
    names = ["register", "impl", "autotune"]
    names += ["aot_impl"] if "IPluginV3QuickAOTBuild" in factory.classes else []
    for each in names:

        def decorator(*_arguments: Any, each: str = each) -> Any:
            raise NotPlayed(f"plugin.{each}")

        setattr(found, each, decorator)
    return found


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
