"""Opens a configuration from the user's source (a YAML file, a model, options over either) and
reports all its errors at once, each with its line and column.
"""

from __future__ import annotations

import codecs
import copy
import dataclasses
import difflib
import itertools
import os
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from edgekit import removed
from edgekit.config.positions import LARGEST_YAML, RefusedScalar, YamlDocument, parse_yaml
from edgekit.config.schema import ConfigFile, IsPath
from edgekit.errors import ConfigError, Problem, UsageError
from edgekit.expansion import expand
from edgekit.files import read_file
from edgekit.network.part import ModelPart
from edgekit.network.source import (
    is_config_file,
    is_factory,
    is_function,
    is_torch_file,
    missing_model,
    parse_builtin,
    refuse_foreign,
)
from edgekit.targets.loader import get, match_words, names, unknown_target
from edgekit_device.protocol.fields import DEVICES

# common names for a model's file, which look like other keys
_FILE_KEYS = ("path", "file", "filename", "model", "source")
# the sections that edgekit tune writes
_TUNED = {"placement", "rewrite"}
Place = tuple[str | int, ...]
# pydantic's types of errors, in the words of YAML
_EXPECTED = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "dict_type": "keys with values",
    "int_from_float": "an integer",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "keys with values",
    "string_type": "a string",
}
_LIMITS = {
    "greater_than": "too small (more than {gt:.10g})",
    "greater_than_equal": "too small (at least {ge:.10g})",
    "less_than": "too large (less than {lt:.10g})",
    "less_than_equal": "too large (at most {le:.10g})",
}
_LENGTHS = {
    "too_short": "too few items: {actual_length} (at least {min_length})",
    "too_long": "too many items: {actual_length} (at most {max_length})",
}


@dataclass(frozen=True, eq=False)
class Config:
    """A checked configuration: the schema's values, the file's folder and text, and its parse."""

    file: ConfigFile
    folder: Path
    path: str
    text: str
    document: YamlDocument

    def resolve(self, path: str) -> Path:
        """Returns ``path`` relative to the configuration file, ``~`` expanded."""
        try:
            return self.folder / Path(path).expanduser()
        except RuntimeError:  # ~name of no user
            return self.folder / path


def load_config(path: str | Path) -> Config:
    """Reads ``path``.

    Raises:
        ConfigError: With every problem found: syntax, unknown or repeated keys, wrong types.
    """
    path = Path(path)
    try:
        text = read_file(path, LARGEST_YAML).decode("utf-8")
    except FileNotFoundError:
        hint = "give the path of a YAML file, or write one with: edgekit init MODEL.onnx"
        problem = Problem("no such configuration file", str(path), hint)
        raise ConfigError([problem], code="config.missing") from None
    except UnicodeDecodeError as error:
        refuse_foreign(path)
        what, hint = _describe_encoding(error)
        problem = Problem(what, str(path), hint)
        raise ConfigError([problem], code="config.syntax") from None
    except OSError as error:
        problem = Problem(f"cannot be read: {error.strerror}", str(path))
        raise ConfigError([problem], code="config.missing") from None
    try:
        return parse_config(text, str(path), path.parent)
    except ConfigError:
        refuse_foreign(path)
        raise


def _describe_encoding(error: UnicodeDecodeError) -> tuple[str, str]:
    """Returns the encoding of a file that is not UTF-8 text, and the remedy."""
    data = error.object
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "the file is UTF-16 text", "save it as UTF-8"
    if b"\0" in data:
        return "this is no text", "the name of a model file must end in .onnx"
    line = data.count(b"\n", 0, error.start) + 1
    return (
        f"not UTF-8 text: byte 0x{data[error.start]:02x} in line {line}",
        "save the file as UTF-8",
    )


def parse_config(text: str, name: str, folder: Path) -> Config:
    """Parses and checks ``text``; see :func:`load_config`."""
    return check_config(parse_yaml(text, name), folder, text)


def check_config(document: YamlDocument, folder: Path, text: str) -> Config:
    """Checks parsed values; see :func:`load_config`."""
    name = document.name
    if not isinstance(document.value, dict):
        kind = "empty" if document.value is None else "not a mapping of keys"
        hint = "start with: version: 1"
        raise ConfigError([Problem(f"the file is {kind}", f"{name}:1:1", hint)])
    # `edgekit tune` writes a file of these sections alone, to be copied into a configuration
    if "placement" in document.value and set(document.value) <= _TUNED:
        shown = ", ".join(document.value)
        message = f"this is not a whole configuration, but sections of one: {shown}"
        hint = (
            "copy them into a whole configuration, replacing the sections there (a file of edgekit "
            "tune names that configuration in its first lines)"
        )
        raise ConfigError([Problem(message, f"{name}:1:1", hint)])
    problems = [*document.problems, *_nul_characters(document, document.value)]
    value, missing = _expand(document)
    problems += missing
    try:
        file = ConfigFile.model_validate(value)
    except ValidationError as error:
        faults = _most_specific(error.errors(include_url=False))
        # a scalar that the parser refused is among `document.problems` already
        news = [f for f in faults if not isinstance(f["input"], RefusedScalar)]
        problems += _without_cascades([_state_fault(document, fault, news) for fault in news])
    # not validators of the schema: pydantic skips a model's own validator if a key is wrong
    problems += _unknown_target(document) + _unknown_mode(document)
    if problems:
        raise ConfigError(sorted(problems, key=_position))
    return Config(file, folder, name, text, document)


def _position(problem: Problem) -> tuple[int, ...]:
    """Line and column, for the order of the file; options come last."""
    numbers = problem.where.rsplit(":", 2)[1:]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        return tuple(map(int, numbers))
    # after every line of a file
    return (1 << 30,)


def _nul_characters(
    document: YamlDocument, value: Any, path: tuple[str | int, ...] = ()
) -> list[Problem]:
    """Reports texts that cannot be a path, host or name: the system ends them at a NUL."""
    if isinstance(value, str):
        message = "the text contains a NUL character"
        return [Problem(message, document.where(path), "remove it: \\0")] if "\0" in value else []
    if isinstance(value, dict):
        parts: Any = value.items()
        if any("\0" in str(key) for key in value):
            return [Problem("a key contains a NUL character", document.where(path))]
    else:
        parts = enumerate(value) if isinstance(value, list) else ()
    return [fault for key, part in parts for fault in _nul_characters(document, part, (*path, key))]


def _expand(document: YamlDocument) -> tuple[Any, list[Problem]]:
    """Expands ``${ENV}`` in the deploy section, the only section that documents it."""
    problems: list[Problem] = []

    def walk(value: Any, path: tuple[str | int, ...]) -> Any:
        if isinstance(value, dict):
            return {k: walk(v, (*path, k)) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(v, (*path, i)) for i, v in enumerate(value)]
        if not isinstance(value, str):
            return value

        def missing(name: str) -> None:
            message = f"environment variable {name} is not set"
            problems.append(Problem(message, document.where(path), f"export {name}=..."))

        return expand(value, missing)

    value = dict(document.value)
    if "deploy" in value:
        value["deploy"] = walk(value["deploy"], ("deploy",))
    return value, problems


@dataclass(frozen=True)
class _Fault:
    """A problem of a key, and its relation to other keys."""

    problem: Problem
    missing: str = ""
    """The key that is missing."""
    meant: str = ""
    """The known key that is similar to an unknown key."""


def _state_fault(document: YamlDocument, error: ErrorDetails, faults: list[ErrorDetails]) -> _Fault:
    path = _path_in(document, error["loc"])
    shown = ".".join(str(part) for part in path)
    where = document.where(path)
    kind = error["type"]
    if kind == "extra_forbidden":
        return _unknown_key(document, path, shown)
    if kind == "missing":
        problem = Problem(f"key '{shown}' is missing", where, _missing_key_hint(path))
        return _Fault(problem, missing=str(path[-1]))
    if kind == "literal_error" and (gone := removed.VALUES.get((shown, str(error["input"])))):
        return _Fault(Problem(f"{shown}: {error['input']!r} no longer exists", where, gone))
    message, hint = fault_text(error)
    if kind == "model_type":
        known = _known_keys(path)
        hint = f"known keys: {', '.join(known)}"
        if isinstance(error["input"], str) and {"onnx", "builtin"} <= set(known):
            begin = "- {name: NAME, " if isinstance(path[-1], int) else f"{path[-1]}: {{"
            # the key of "model" that was left out
            text = error["input"]
            given = parse_builtin(text)
            model_key = f"onnx: {text}" if given is None else f"builtin: {given[0]}"
            hint = f"write {begin}{model_key}}}"
    if kind == "literal_error" and not _near_choice(error):
        # the other members of a union
        others = [g["type"] for g in faults if _path_in(document, g["loc"]) == path]
        hint = " or ".join([hint, *(_EXPECTED[other] for other in others if other in _EXPECTED)])
    if kind == "string_pattern_mismatch" and (field := _field(path)) is not None:
        examples = " or ".join(map(str, field.examples or ()))
        hint = f"{field.description} For example: {examples}" if examples else hint
    said = not shown or path in document.given
    return _Fault(Problem(message if said else f"{shown}: {message}", where, hint))


def _unknown_key(document: YamlDocument, path: Place, shown: str) -> _Fault:
    where, key = document.where(path), str(path[-1])
    # before similar keys: a key of an earlier version has a successor
    if shown in removed.KEYS:
        return _Fault(Problem(f"key '{shown}' no longer exists", where, removed.KEYS[shown]))
    known = _known_keys(path[:-1])
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if "onnx" in known and key.lower() in _FILE_KEYS:
        near = ["onnx"]
    # a section's key at the top level, often because of wrong indentation
    if not near and len(path) == 1:
        near = [f"{section}.{key}" for section in known if key in _known_keys((section,))][:1]
    meant = near[0] if near else ""
    hint = f"did you mean '{meant}'?" if meant else f"known keys: {', '.join(known)}"
    if path in document.given and len(path) > 1:  # the user did not type that key
        message = f"unknown {str(path[-2]).removesuffix('s')} '{key}'"
        return _Fault(Problem(message, where, hint.replace(" keys", "")))
    if key == "jetpack":
        meant = ""
        hint = (
            "write the TensorRT that it brings, such as tensorrt: '10.3'; edgekit check takes "
            "--jetpack"
        )
    return _Fault(Problem(f"unknown key '{shown}'", where, hint), meant=meant)


def fault_text(error: ErrorDetails) -> tuple[str, str]:
    """Returns the message for a value in which pydantic found this fault, and a hint or ""."""
    kind, value = error["type"], error["input"]
    found = "" if isinstance(value, dict | list) else f", found {value!r}"
    if kind in _LIMITS:
        return f"{value} is {_LIMITS[kind].format(**error['ctx'])}", ""
    if kind == "literal_error":
        choices, near = _choices(error), _near_choice(error)
        one_of = "choose one of " if len(choices) > 1 else "choose "
        what = "a value is expected" if found == "" else f"unknown value {value!r}"
        return what, f"did you mean '{near}'?" if near else one_of + ", ".join(choices)
    if kind == "string_pattern_mismatch":
        return f"not in the expected form{found}", f"as a regex: {error['ctx']['pattern']}"
    if kind in _EXPECTED:
        hint = ""
        if kind == "string_type" and isinstance(value, int | float):
            hint = f"put it in quotes: '{value}'"
        if kind == "list_type":
            hint = _list_hint(value, error["loc"], found)
        return f"expected {_EXPECTED[kind]}{found}", hint
    if kind in _LENGTHS:
        return _LENGTHS[kind].format(**error["ctx"]), ""
    message = error["msg"].removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}{found}", ""


def _choices(error: ErrorDetails) -> list[str]:
    """Returns the values of a "literal_error" that are allowed; pydantic has them as a text."""
    expected = error["ctx"]["expected"]
    # "'a', 'b' or 'c'"
    return re.findall(r"'([^']*)'", expected) or [expected]


def _near_choice(error: ErrorDetails) -> str:
    """Returns the allowed value that is similar to the given one, or ""."""
    value = error["input"]
    near = difflib.get_close_matches(value, _choices(error), n=1) if isinstance(value, str) else []
    return near[0] if near else ""


def _list_hint(value: Any, loc: tuple[str | int, ...], found: str) -> str:
    """Returns the hint for a value that should be a list: the list to write."""
    if isinstance(value, dict) and value and loc[-1] == "pin":
        name, device = next(iter(value.items()))
        # as in {conv1: DLA}, a mapping instead of a list of pins
        device = device if device in DEVICES else "DLA"
        return f'write [{{layers: "{name}", device: {device}}}]'
    return f"write [{value}]" if found else ""


def _missing_key_hint(path: Place) -> str:
    """Returns the hint for a key that is missing: the line to add."""
    field = _field(path)
    if field is None or not field.examples:
        return "add it"
    example = yaml.safe_dump(field.examples[0], default_flow_style=True).removesuffix("...\n")
    return f"add: {path[-1]}: {example.strip()}"


def _path_in(document: YamlDocument, loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Drops the names that pydantic adds for union members from an error's location."""
    path: tuple[str | int, ...] = ()
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        # a part that is not in the file is a union member's name, unless it is a missing key
        if document.knows((*path, part)) or (
            last and document.knows(path) and isinstance(part, str) and part in _known_keys(path)
        ):
            path = (*path, part)
    return path


def _known_keys(path: Place) -> list[str]:
    """Returns the keys of the schema at ``path``."""
    model = _section(path)
    return list(model.model_fields) if model else []


def _field(path: Place) -> FieldInfo | None:
    """Returns the schema's key at ``path``; that of the list for a list's items."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    model = _section(path[:-1]) if path else None
    return model.model_fields.get(str(path[-1])) if model else None


def _section(path: Place) -> type[BaseModel] | None:
    """Returns the model of the keys at ``path``."""
    if not (names := [part for part in path if isinstance(part, str)]):
        return ConfigFile
    field = _field(tuple(names))
    if field is not None:
        return next(_sections(field.annotation), None)
    # a key of a mapping, such as an input's name
    mapping = _field(tuple(names[:-1])) if len(names) > 1 else None
    if mapping is None or typing.get_origin(mapping.annotation) is not dict:
        return None
    # dict[str, Section]: the values are sections
    return next(_sections(typing.get_args(mapping.annotation)[1]), None)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yields the models that a value of a type may be, or its items."""
    if hasattr(annotation, "model_fields"):
        yield typing.get_args(annotation)[0] if typing.get_args(annotation) else annotation
    elif typing.get_origin(annotation) is not dict:
        for arg in typing.get_args(annotation):
            yield from _sections(arg)


def _most_specific(faults: list[ErrorDetails]) -> list[ErrorDetails]:
    """Drops "should be 'auto'" if a mapping was given: its own faults are more precise."""
    return [
        f
        for f in faults
        if f["type"] != "literal_error"
        or not isinstance(f["input"], dict | list)
        or sum(g["loc"][: len(f["loc"]) - 1] == f["loc"][:-1] for g in faults) == 1
    ]


def _without_cascades(faults: list[_Fault]) -> list[Problem]:
    """Keeps one problem a place, and no missing key that is only misspelt.

    A union reports a fault for each of its members, and a misspelt key is both unknown and missing.
    """
    guesses = {fault.meant for fault in faults if fault.meant}
    # several missing keys share their parent's position and are all reported
    unique: dict[tuple[str, str], Problem] = {}
    for fault in faults:
        if fault.missing not in guesses:
            known = (fault.problem.where, fault.missing and fault.problem.message)
            unique.setdefault(known, fault.problem)
    return list(unique.values())


def _unknown_target(document: YamlDocument) -> list[Problem]:
    """Reports a wrong board name together with the other errors."""
    name = document.value.get("target")
    if not isinstance(name, str) or name in names() or match_words(name):
        return []
    error = unknown_target(name)
    return [Problem(error.message, document.where(("target",)), error.hint)]


def _unknown_mode(document: YamlDocument) -> list[Problem]:
    """Reports a wrong power mode likewise."""
    name, mode = document.value.get("target"), document.value.get("power_mode")
    if not isinstance(name, str) or not isinstance(mode, str):
        return []
    if name not in names() and match_words(name) is None:
        return []
    try:
        get(name).mode(mode)
    except UsageError as error:
        return [Problem(error.message, document.where(("power_mode",)), error.hint)]
    return []


def paths_in(file: BaseModel, at: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yields the keys of a configuration that the schema marks as paths, with their values.

    They include a Python function instead of calibration data.
    """
    for name, field in type(file).model_fields.items():
        value = getattr(file, name)
        if isinstance(value, str) and _is_path(field, value):
            yield (*at, name), value
        elif isinstance(value, BaseModel):
            yield from paths_in(value, (*at, name))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from paths_in(item, (*at, name, number))


def _is_path(field: FieldInfo, value: str) -> bool:
    # of a member of a union, or of the key
    members = (typing.get_args(arg) for arg in typing.get_args(field.annotation))
    marks = itertools.chain(field.metadata, *members)
    return any(isinstance(mark, IsPath) and value not in mark.words for mark in marks)


def rebased(config: Config, folder: Path) -> dict[str, object]:
    """Returns the values of a configuration for a file in ``folder``.

    Absolute paths and those of a home folder are unchanged; ``${ENV}`` is not expanded.

    Raises:
        UsageError: "config.module": a Python function, whose module is looked for next to the file.
    """
    values = dict(copy.deepcopy(config.document.value))
    old, new = config.folder.resolve(), folder.resolve()
    # before functions are refused: in the same folder their module is found
    if old == new:
        return values
    for place, path in paths_in(config.file):
        if is_function(path):
            raise UsageError(
                f"{path} is a module in the configuration's folder; it would be missing in the "
                "other folder",
                code="config.module",
                where=str(folder),
                hint=f"write the file to {config.folder}, or use data from a file",
            )
        if path.startswith("~") or Path(path).is_absolute():
            continue
        inner: Any = values
        for key in place[:-1]:
            inner = inner[key]
        # unexpanded, it may have ${ENV}
        # normpath would take "${DIR}/.." for a folder and its parent
        moved = os.path.join(os.path.relpath(old, new), inner[place[-1]])
        inner[place[-1]] = moved if "${" in moved else os.path.normpath(moved)
    return values


def yaml_with_fp16(
    values: Mapping[str, object], layers: Sequence[str], metric: str, minimum: float | None
) -> str:
    """Returns the YAML of a configuration's values with other FP16 layers and accuracy gate."""
    changed = {
        "calibration": {"fp16_layers": list(layers)},
        "accuracy": {"metric": metric, "min": minimum},
    }
    return yaml.safe_dump(_merge(values, changed), sort_keys=False, allow_unicode=True)


def open_config(source: str | Path | Config, **options: Any) -> Config:
    """Returns the configuration of a YAML file, or of a model with options.

    Args:
        source: A YAML file, an ONNX file, "builtin:NAME", or a configuration to change.
        options: The configuration's keys; a section is a mapping, or an object with the keys as
            attributes (``ModelPart``). None means "not given". They win over the file's
            values. ``placement.gpu`` False builds standalone, unless ``build.mode`` is given, too.

    Raises:
        ConfigError: The file or the options are wrong.
        UsageError: A model without a target, or ``source`` has none of these forms.
    """
    given = _plain_values(options)
    placement = given.get("placement")
    if isinstance(placement, dict) and placement.get("gpu") is False:
        # without the GPU there is no fallback, so only loadables can be built
        given = _merge({"build": {"mode": "standalone"}}, given)
    if isinstance(source, Config):
        config = source
    elif not isinstance(source, str | os.PathLike):
        raise UsageError(
            f"{source!r} is not a path", hint="give a YAML file, an ONNX file or builtin:NAME"
        )
    elif is_config_file(source):
        config = load_config(source)
    else:
        return _model_config(str(source), given)
    return _apply_options(config.document, config.folder, given) if given else config


def refuse_unknown(names: Iterable[str]) -> None:
    """Refuses keyword arguments that are not keys of a configuration, if none is opened.

    Raises:
        ConfigError: As raised by ``open_config``.
    """
    unknown = [name for name in names if name not in ConfigFile.model_fields]
    if unknown:
        options = YamlDocument("", {}, {}, (), frozenset((name,) for name in unknown))
        raise ConfigError([_unknown_key(options, (name,), name).problem for name in unknown])


def _model_config(path: str, given: dict[str, Any]) -> Config:
    # a trusted pickle may have any extension
    trusted = isinstance(given.get("model"), dict) and bool(given["model"].get("trust"))
    torch: Literal["python", "pt2"] | None = None
    if is_factory(path) and not Path(path).exists():
        torch = "python"
    elif is_torch_file(Path(path), trusted=trusted):
        torch = "pt2"
    if parse_builtin(path) is None and torch is None:
        refuse_foreign(Path(path))
    # a wrong path is reported first: it is likelier than a forgotten --target
    if "target" not in given:
        if parse_builtin(path) is None and torch is None and not Path(path).exists():
            raise missing_model(path)
        raise UsageError(
            "a model needs --target", where=path, hint="edgekit targets lists the boards"
        )
    if torch is not None:
        model: dict[str, str | int] = {torch: path}
    elif (builtin := parse_builtin(path)) is None:
        model = {"onnx": path}
    else:
        name, seed = builtin
        model = {"builtin": name, "seed": seed} if seed else {"builtin": name}
    base = {"version": 1, "name": config_name(path), "model": model}
    return _apply_options(YamlDocument(path, base, {}, ()), Path(), given)


def _apply_options(document: YamlDocument, folder: Path, given: dict[str, Any]) -> Config:
    merged = _merge(document.value, given)
    paths = document.given | frozenset(_option_paths(given))
    file = document.value if document.file is None else document.file
    changed = dataclasses.replace(document, value=merged, given=paths, file=file)
    # checked first: only values of the schema can be written as YAML
    checked = check_config(changed, folder, "")
    return dataclasses.replace(checked, text=yaml.safe_dump(merged, sort_keys=False))


def _option_paths(
    values: Mapping[str, object], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _option_paths(value, (*path, key))
        else:
            yield (*path, key)


def config_name(path: str) -> str:
    """Returns a configuration's name for a model: "lenet" of "models/LeNet.onnx"."""
    last = path.rpartition(":")[2] if is_factory(path) else path.removeprefix("builtin:")
    stem = Path(last.partition("?")[0]).stem.lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("._-")[:64] or "model"


def _plain_values(options: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns options as YAML would have them, without those that are None."""
    values = {}
    for key, value in options.items():
        section = vars(value) if dataclasses.is_dataclass(value) else value
        if isinstance(value, ModelPart):
            section = value._asdict()
        inner = _plain_values(section) if isinstance(section, Mapping) else section
        if isinstance(inner, os.PathLike):
            inner = os.fspath(inner)
        if hasattr(inner, "tolist"):  # an array of sizes
            inner = inner.tolist()
        if inner is not None and inner != {}:
            values[str(key)] = _plain_list(inner)
    return values


def _plain_list(value: Any) -> Any:
    """Returns tuples as lists, also within lists (such as several profiles); NumPy's sizes as
    Python's.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    if not isinstance(value, list | tuple):
        return value
    return [
        _plain_values(item) if isinstance(item, Mapping) else _plain_list(item) for item in value
    ]


def _merge(base: Mapping[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        deeper = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = _merge(dict(old or {}), value) if deeper else value
    return merged
