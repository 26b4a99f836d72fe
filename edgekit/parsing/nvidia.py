"""Checks a model with NVIDIA's own ONNX parser, in addition to the table: that of TensorRT for RTX,
whose wheels parse on any x86-64 Linux machine without a GPU. It runs in a child process with
limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit import timeouts
from edgekit.errors import BuildError, UsageError
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import (
    document,
    flag,
    long_text,
    member,
    parse_json,
    read,
    records,
)

if TYPE_CHECKING:
    from pathlib import Path

    from edgekit.network.model import Model
    from edgekit.parsing.table import Parse

MODULE = "tensorrt_rtx_bindings"
PRODUCT = "TensorRT for RTX"
# its Python API and its parser are those of TensorRT 11: only strongly typed networks
FAMILY = "11"
# bytes of address space: the module and its libraries take 0.26 GB, and threads of a machine with
# many cores reserve more than they use
_MEMORY = 16 << 30
# copies of the model in memory: the file, its protobuf, the network's weights, and as much reserve
_COPIES = 6
# the parser's message for a node that needs a plugin
_NO_PLUGIN = "Plugin not found"
_LEFT_OUT = "leave --parser (YAML: parser) out to go by edgekit's own table"
# the only variables of the user's environment that a child needs
_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
# the parser needs no GPU and takes no GPU memory without it; NumPy needs only a single thread
_SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "OPENBLAS_NUM_THREADS": "1"}


@document(frozen=True)
class ParserProblem:
    """An error of NVIDIA's parser; node and operator are empty if unknown."""

    node: str = member(long_text)
    operator: str = member(long_text)
    message: str = member(long_text)


@document(frozen=True)
class ParserResult:
    """The result of NVIDIA's parser for a model.

    Attributes:
        release: The parser's product and release, such as "TensorRT for RTX 1.7.1.116".
        ok: True if it imports the model.
        problems: Its errors; empty if it imports the model.
    """

    release: str = member(long_text)
    ok: bool = member(flag)
    problems: tuple[ParserProblem, ...] = member(records(ParserProblem))

    def note(self, parse: Parse) -> str:
        """Returns a line with the parser's result and the table's.

        Args:
            parse: The table's result for the same model and the board's release.
        """
        who = f"NVIDIA's parser ({self.release}, of the {FAMILY} family)"
        if self.ok and parse.ok:
            return f"{who} imports the model, too"
        if self.ok:
            return (
                f"{who} imports the model, but it is not the parser of TensorRT {parse.release}: "
                "edgekit's table, which refuses the model, decides"
            )
        first = self.problems[0]
        where = f" {first.operator} {first.node!r}" if first.node or first.operator else " it"
        more = f" ({len(self.problems) - 1} more)" if self.problems[1:] else ""
        if _NO_PLUGIN in first.message:
            more += "; only the board has your plugins"
        refuses = f"{who} refuses{where}: {first.message}{more}"
        if not parse.ok:
            return refuses
        return (
            f"disputed: by edgekit's table the parser of TensorRT {parse.release} imports the "
            f"model, but {refuses}"
        )


@document(frozen=True)
class _Answer:
    """The child process's result; ``failed`` is the reason for a missing result, or empty."""

    failed: str = member(long_text, absent="")
    release: str = member(long_text, absent="")
    ok: bool = member(flag, absent=False)
    problems: tuple[ParserProblem, ...] = member(records(ParserProblem), absent=())


def module_folder() -> Path:
    """Returns the folder that has NVIDIA's module, without importing it.

    Raises:
        UsageError: ``parser.missing``: the module is not installed.
    """
    from importlib.util import find_spec
    from pathlib import Path

    found = find_spec(MODULE)
    if found is None or found.origin is None:
        raise UsageError(
            "NVIDIA's parser is not installed",
            code="parser.missing",
            hint="pip install 'edgekit[parser]' (x86-64 Linux, NVIDIA's licence), or leave "
            "--parser (YAML: parser) out",
        )
    return Path(found.origin).parents[1]


def ask_parser(model: Model) -> ParserResult:
    """Returns the result of NVIDIA's parser for a model, in the form that the board gets.

    Raises:
        UsageError: ``parser.missing``: the parser is not installed.
        BuildError: ``parser.failed``: the parser crashed or cannot be loaded; ``parser.timeout`` or
            ``parser.memory``: it exceeded its limit.
        ModelError: ``model.unwritable``: there is no space for a copy of the model.
    """
    import tempfile
    from pathlib import Path

    from edgekit.network.writing import save

    folder = module_folder()
    with tempfile.TemporaryDirectory(prefix="edgekit-parser-") as made:
        path = Path(made) / "model.onnx"
        save(model, path)
        size = sum(file.stat().st_size for file in Path(made).iterdir())
        answer = _run_child(model.source, folder, path, _MEMORY + _COPIES * size)
    if answer.failed == "memory":
        raise _failure("parser.memory", "ran out of memory", model.source)
    if answer.failed:
        raise _failure("parser.failed", f"failed: {answer.failed}", model.source)
    problems = answer.problems
    if not answer.ok and not problems:
        problems = (ParserProblem("", "", "it gives no reason"),)
    return ParserResult(f"{PRODUCT} {answer.release}", answer.ok, problems)


def _run_child(name: str, folder: Path, model: Path, size: int) -> _Answer:
    """Returns the child's result; ``size``: its limit of address space in bytes."""
    import os
    import signal
    import subprocess
    import sys

    from edgekit.parsing import nvidia_child

    command = [sys.executable, "-I", nvidia_child.__file__]
    command += [str(folder), str(model), str(timeouts.PARSER_CPU_S), str(size)]
    kept = {key: os.environ[key] for key in _VARIABLES if key in os.environ}
    try:
        done = subprocess.run(
            command,
            env=kept | _SETTINGS,
            timeout=timeouts.PARSER_S,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise _failure("parser.timeout", f"took over {timeouts.PARSER_S} s", name) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise _failure("parser.failed", f"cannot be started: {reason}", name) from error
    if done.returncode == -signal.SIGXCPU:
        raise _failure(
            "parser.timeout", f"took over {timeouts.PARSER_CPU_S} s of the processor", name
        )
    if done.returncode == -signal.SIGKILL:  # the kernel's out-of-memory killer
        raise _failure("parser.memory", "ran out of memory", name)
    try:
        return read(_Answer, parse_json(done.stdout, "the parser's answer"))
    except DeviceError:
        code = done.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        raise _failure("parser.failed", f"crashed ({how})", name) from None


def _failure(code: str, what: str, where: str) -> BuildError:
    return BuildError(
        f"NVIDIA's parser {what} at this model", code=code, where=where, hint=_LEFT_OUT
    )
