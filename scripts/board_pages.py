"""The pages about the documents on the wire: the board's commands and the bundle's manifest.

Their text is in ``scripts/data/``; commands, options and classes come from the code.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import yaml

from edgekit_device import commands
from edgekit_device.benchmark import settings
from edgekit_device.build import plugin_source
from edgekit_device.build import request as build_request
from edgekit_device.deployment import request as deployment_request
from edgekit_device.protocol import manifest

DATA = Path(__file__).parent / "data"
_COMMON = {"help", "root", "debug"}
_ATTRIBUTE = re.compile(r"^    (\w+): (.*)$")


def board_protocol_page() -> str:
    """Returns ``docs/board-protocol.md``.

    Raises:
        ValueError: A command of the parser is not described, or another one is.
    """
    described = yaml.safe_load((DATA / "board-commands.yaml").read_text(encoding="utf-8"))
    parsers = _parsers()
    if set(described) != set(parsers):
        differ = ", ".join(sorted(set(described) ^ set(parsers)))
        raise ValueError(
            f"scripts/data/board-commands.yaml and the board's parser differ: {differ}"
        )
    sections = [
        "\n".join(_command(name, parser, described[name])) for name, parser in parsers.items()
    ]
    return _fill_template(
        "board-protocol.md",
        commands="\n\n".join(sections),
        deployments=_classes(deployment_request),
        settings=_classes(settings),
        builds=_classes(build_request),
        plugins=_classes(plugin_source),
    )


def manifest_page() -> str:
    """Returns ``docs/manifest.md``.

    Raises:
        ValueError: The example has other fields than the reader requires.
    """
    template = (DATA / "manifest.md").read_text(encoding="utf-8")
    example = json.loads(template.partition("```json\n")[2].partition("```")[0])
    members = [item for item in dataclasses.fields(manifest.Manifest) if "rule" in item.metadata]
    required = tuple(item.name for item in members if item.metadata["needed"])
    optional = tuple(item.name for item in members if not item.metadata["needed"])
    if set(example) != set(required):
        raise ValueError("the example of scripts/data/manifest.md has not the reader's fields")
    limits = [
        "| | |",
        "|---|---|",
        f"| Schema | {_quote(manifest.SCHEMAS)}, at most {manifest.MAX_MANIFEST >> 20} MiB |",
        f"| Required fields | {_quote(required)} |",
        f"| Optional fields | {_quote(optional)} |",
        f"| Devices | {_quote(manifest.DEVICES)} |",
        f"| Modes | {_quote(manifest.MODES)} |",
        f"| Kinds of blobs | {_quote(manifest.BLOB_KINDS)} |",
        f"| Types of tensors | {_quote(manifest.DTYPES)} |",
        f"| Types of weights | also {_quote(set(manifest.WEIGHT_DTYPES) - set(manifest.DTYPES))} |",
    ]
    return _fill_template("manifest.md", limits="\n".join(limits), classes=_classes(manifest))


def _fill_template(name: str, **parts: str) -> str:
    text = (DATA / name).read_text(encoding="utf-8")
    for key, value in parts.items():
        text = text.replace("{{" + key + "}}", value)
    return text


def _quote(names: object) -> str:
    assert isinstance(names, (tuple, dict, set))
    return ", ".join(f"`{name}`" for name in names)


def _parsers() -> dict[str, argparse.ArgumentParser]:
    for action in commands.make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(sorted(action.choices.items()))
    raise ValueError("the board's parser has no commands")


def _command(name: str, parser: argparse.ArgumentParser, described: dict[str, str]) -> list[str]:
    description = parser.description or ""
    lines = [f"### `{name}`", "", f"{description[:1].upper()}{description[1:]}."]
    options = [action for action in parser._actions if action.dest not in _COMMON]
    if options:
        lines += ["", "| option | default | |", "|---|---|---|", *map(_option, options)]
    reads, writes = described.get("stdin", "").strip(), described["stdout"].strip()
    return [*lines, "", "| stdin | stdout |", "|---|---|", f"| {reads} | {writes} |"]


def _option(action: argparse.Action) -> str:
    name = action.option_strings[-1]
    if action.nargs != 0:
        name += " " + str(action.metavar or action.dest.upper())
    default = "required" if action.required else ""
    if not action.required and action.default not in (None, False):
        default = f"`{action.default}`"
    return f"| `{name}` | {default} | {action.help or ''} |"


def _classes(module: ModuleType) -> str:
    """Returns a table for each class that the module reads documents into."""
    kinds = [
        kind
        for kind in vars(module).values()
        if dataclasses.is_dataclass(kind)
        and isinstance(kind, type)
        and kind.__module__ == module.__name__
        and any("rule" in item.metadata for item in dataclasses.fields(kind))
    ]
    return "\n\n".join("\n".join(_class(kind)) for kind in kinds)


def _class(kind: type) -> list[str]:
    text, _, attributes = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")
    reported: dict[str, str] = {}
    name = ""
    for line in attributes.splitlines():
        if found := _ATTRIBUTE.match(line):
            name = found[1]
            reported[name] = found[2]
        elif name:
            reported[name] += " " + line.strip()
    about = {name: words.replace("``", "`") for name, words in reported.items()}
    rows = [
        f"| `{field.metadata['key'] or field.name}` | `{field.type}` |"
        + (f" {about.get(field.name, '')} |" if about else "")
        for field in dataclasses.fields(kind)
        if "rule" in field.metadata
    ]
    head = ["| field | type | |", "|---|---|---|"] if about else ["| field | type |", "|---|---|"]
    return [f"### {kind.__name__}", "", text.strip().replace("``", "`"), "", *head, *rows]
