"""The reference pages of the commands, the boards, the documents and the Python API."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click

import edgekit
import edgekit.api
from edgekit.cli.main import COMMANDS, GROUPS, Commands
from edgekit.saved_documents import DOCUMENTS, document_classes
from edgekit.targets import loader
from edgekit.targets.board import Target
from edgekit.targets.jetpack import jetpacks

ROOT = Path(__file__).parent.parent
_MADE = "Made by `scripts/make_docs.py`; do not edit.\n"
_EVERYWHERE = {"--json", "--quiet", "--verbose", "--debug", "--help"}
_SCHEMA = re.compile(r"\bedgekit\.[a-z.-]+/\d+")
_SCHEMA_FIELDS = {"schema", "schema_"}
_REFERENCE = {"api.md", "cli.md", "documents.md"}  # they name documents and describe none


def cli_page() -> str:
    """Returns ``docs/cli.md``: each command and action with arguments, options and examples."""
    parts = [
        "# Commands\n",
        "For everyone who types `edgekit`; `edgekit COMMAND --help` prints the same.",
        _MADE,
        "```sh\nedgekit --help\n```\n",
        "Every command also takes `--json` (exactly one document on stdout), "
        "`-q`, `-v` and `--debug` where they make sense, and ends with:\n",
        "| exit code | meaning |\n|---|---|",
        "| 0 | done |\n| 1 | done, and the answer is no |\n| 2 | wrong usage or configuration |",
        "| 3 | a tool is missing on this machine, or a board cannot be reached |",
        "| 4 | a board or a build failed |",
        "| 130 | interrupted |\n",
        *(
            "\n".join(
                [f"\n| {title} | |\n|---|---|"]
                + [f"| [{name}](#edgekit-{name}) | {row[2]} |" for name, row in group.items()]
            )
            for title, group in GROUPS.items()
        ),
    ]
    root = Commands("edgekit")
    for name in COMMANDS:
        command = root.get_command(click.Context(root), name)
        parts += _command(f"edgekit {name}", command, "##")
        actions = getattr(command, "actions", None) or getattr(command, "commands", {})
        for action, found in actions.items():
            parts += _command(f"edgekit {name} {action}", found, "###")
    return "\n".join(parts) + "\n"


def _command(path: str, command: click.Command, level: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"\n{level} {path}\n"
    yield f"{_line(command.help)}\n"
    yield f"```text\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```\n"
    rows = [
        (item.human_readable_name, getattr(item, "summary", ""))
        for item in command.params
        if isinstance(item, click.Argument)
    ]
    for item in command.params:
        record = None if isinstance(item, click.Argument) else item.get_help_record(context)
        if record and not _EVERYWHERE & {*item.opts}:
            rows.append(record)
    if rows:
        yield "| argument or option | |\n|---|---|"
        yield from (f"| `{_cell(name)}` | {_cell(about)} |" for name, about in rows)
        yield ""
    yield f"```text\n{(command.epilog or '').strip()}\n```"


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")


def targets_page() -> str:
    """Returns ``docs/targets.md``: each board with its GPU, DLA, memory, modes and releases."""
    boards = [loader.get(name) for name in loader.names()]
    parts = [
        "# Boards\n",
        "For everyone who names a board: the values of `--target` and edgekit's facts of each.",
        f"The files under `targets/` name the source of each fact. {_MADE}",
        "```sh\nedgekit targets\n```\n",
        "| board | GPU | DLA | memory | TensorRT without `--tensorrt` | compute capability |",
        "|---|---|---|---|---|---|",
        *map(_board, boards),
    ]
    for board in boards:
        parts += [f"\n## {board.name}\n", f"{board.title}.", *_releases(board), ""]
        parts += ["| power mode | CPU cores | GPU | DLA | memory clock |", "|---|---|---|---|---|"]
        for mode in board.power_modes.values():
            dla = " and ".join(f"{clock:g}" for clock in mode.dla_mhz) if board.dla.cores else ""
            name = f"`{mode.name}`{', the default' if mode.default else ''}"
            parts.append(
                f"| {name} | {mode.cpu_cores or ''} | {mode.gpu_sms} SMs, "
                f"{mode.gpu_mhz:g} MHz | {dla + ' MHz' if dla else 'none'} "
                f"| {100 * mode.memory_share:.0f} % |"
            )
    return "\n".join(parts) + "\n"


def _board(board: Target) -> str:
    dla, memory = board.dla, board.dram
    cores = f"{dla.cores} x {dla.generation}, {dla.max_mhz:g} MHz" if dla.cores else "none"
    return (
        f"| [{board.name}](#{board.name}) | {board.gpu.arch}, {board.gpu.sms} SMs, "
        f"{board.gpu.max_mhz:g} MHz | {cores} | {memory.bytes >> 30} GiB, "
        f"{memory.bytes_per_second / 1e9:g} GB/s | {board.tensorrt} | {board.compute_capability} |"
    )


def _releases(board: Target) -> list[str]:
    found = [
        " to ".join(dict.fromkeys((release.versions[0], release.versions[-1])))
        + f" with {release.tensorrt_text or 'one not publicly known'}"
        for release in jetpacks(board)
    ]
    return [f"JetPack and its TensorRT: {'; '.join(found)}."] if found else []


def schema_file(name: str) -> str:
    """Returns the name of a document's JSON Schema in docs/schemas."""
    kind, _, version = name.partition(".")[2].partition("/")
    return f"{kind}.schema.json" if version == "1" else f"{kind}-{version}.schema.json"


def _classes(schema: str) -> list[str]:
    """Returns a document's classes, after those of their bases that are the document, too: a check
    without a log, a measurement without its row of the history.
    """
    *forms, kind = document_classes(schema)
    bases = [base for base in reversed(kind.__mro__[1:]) if _SCHEMA_FIELDS & _fields(base)]
    found = dict.fromkeys((*bases, *forms, kind))
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in found]


def _fields(kind: type) -> set[str]:
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind)}
    return set(getattr(kind, "model_fields", ()))


def _annotated_classes() -> dict[str, str]:
    """Returns the classes that the API's annotations name, by their names there."""
    return {
        item.asname or item.name: f"{node.module}.{item.name}"
        for node in ast.walk(ast.parse(inspect.getsource(edgekit.api)))
        if isinstance(node, ast.ImportFrom)
        for item in node.names
    }


def _returned_documents(function: object) -> set[str]:
    """Returns the documents that a public function returns, or that its docstring names."""
    if not callable(function):
        return set()
    classes = _annotated_classes()
    words = re.findall(r"\w+", str(inspect.signature(function).return_annotation))
    returned = {classes[word] for word in words if word in classes}
    found = {name for name in DOCUMENTS if returned.intersection(_classes(name))}
    return found | set(_SCHEMA.findall(inspect.getdoc(function) or ""))


def _describe_maker(made: str) -> str:
    """Returns the command or function that writes a document, with a link to its description."""
    command = made.partition(" --")[0]
    tool, _, name = command.partition(" ")
    if not command:
        return "each command that fails, with `--json`"
    if tool == "net.save":
        return f"[`{made}`](pytorch.md#save-and-load)"
    if not name:
        return f"[`{made}`](api.md#{made.rpartition('.')[2]})"
    if tool == "edgekit":
        return f"[`{made}`](cli.md#{command.replace(' ', '-')})"
    return f"[`{made}`](board-protocol.md#{name}) on the board"


def documents_page() -> str:
    """Returns ``docs/documents.md``: each schema id with its class, its writers and its page."""
    pages: dict[str, list[str]] = defaultdict(list)
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name not in _REFERENCE:
            for name in set(_SCHEMA.findall(page.read_text(encoding="utf-8"))):
                pages[name].append(f"[{page.name}]({page.name})")
    functions: dict[str, list[str]] = defaultdict(list)
    for function in edgekit.__all__:
        for name in _returned_documents(getattr(edgekit, function)):
            functions[name].append(f"[`edgekit.{function}`](api.md#{function})")
    rows = []
    for name, (_, command) in DOCUMENTS.items():
        classes = ", ".join(f"`{kind}`" for kind in _classes(name))
        made = ", ".join(dict.fromkeys([_describe_maker(command), *functions[name]]))
        link = f"[schema](schemas/{schema_file(name)})"
        rows.append(f"| `{name}` | {classes} | {made} | {', '.join(pages[name])} | {link} |")
    parts = [
        "# Documents\n",
        "For everyone whose program reads edgekit's documents. Each JSON document names its schema",
        "and version under `schema` (a trace in `otherData`, `edgekit.error/1` nowhere).",
        "A field that goes or changes its meaning raises the version. `edgekit.read_document`",
        "reads a saved document as an object of its class: of several, of the last one whose",
        "required keys the document has.",
        "[dla-support.md](dla-support.md) describes `docs/data/dla-support.json`.",
        _MADE,
        "```sh\nedgekit targets --json\n```\n",
        "| schema | class | written by | described in | JSON Schema |\n|---|---|---|---|---|",
        *rows,
    ]
    return "\n".join(parts) + "\n"


def api_page() -> str:
    """Returns ``docs/api.md``: each public function with its signature and docstring."""
    parts = [
        "# Python API\n",
        "For programs on the host; each function does the work of the command of its name.",
        f"[start.md](start.md#on-the-board) has the board's. {_MADE}",
        '```python\nimport edgekit\n\nprint(edgekit.check("builtin:light_squeezenet", '
        'target="jetson-agx-orin-64gb").summary)\n```\n',
        _code((inspect.getdoc(inspect.getmodule(edgekit.check)) or "").partition("\n\n")[2]),
    ]
    for name in edgekit.__all__:
        function = getattr(edgekit, name)
        if callable(function):
            signature = re.sub(r"\b(\w+\.)+(\w)", r"\2", f"{name}{inspect.signature(function)}")
            signature = re.sub(r"<function .*?>>?( at \w+>)?", "...", signature)
            text = re.sub(
                r"^(Args|Raises):$", r"\1:\n", _code(inspect.getdoc(function) or ""), flags=re.M
            )
            text = re.sub(r"^    (\w+: )", r"- \1", text, flags=re.M)
            parts.append(f"\n## {name}\n\n```text\n{signature.replace(chr(39), '')}\n```\n\n{text}")
    return "\n".join(parts) + "\n"


def _code(text: str) -> str:
    return text.replace("``", "`")
