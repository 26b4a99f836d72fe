"""The word of NVIDIA's own ONNX parser on a model, beside the table's: TensorRT for RTX, whose
wheels parse on any x86-64 Linux machine without a GPU. A child process asks it, within bounds.
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
# its Python API and its parser are those of TensorRT 11: strongly typed networks alone
FAMILY = "11"
# of address space: the module and its libraries take 0.26 GB, and threads of a machine with many
# cores reserve more than they use
_MEMORY = 16 << 30
# the file, its protobuf, the network's weights, and as much to spare
_COPIES = 6
# the parser's words for a node that needs a plugin
_NO_PLUGIN = "Plugin not found"
_LEFT_OUT = "leave --parser (YAML: parser) out to go by edgekit's own table"
# all that a child needs of the user's environment
_VARIABLES = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
# without a GPU the parser works as well, and takes no memory for it; NumPy has nothing to compute
_SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "OPENBLAS_NUM_THREADS": "1"}


@document(frozen=True)
class ParserProblem:
    """An error of NVIDIA's parser; node and operator are empty where it names none."""

    node: str = member(long_text)
    operator: str = member(long_text)
    message: str = member(long_text)


@document(frozen=True)
class ParserWord:
    """What NVIDIA's parser says of a model.

    Attributes:
        release: The parser's product and release, such as "TensorRT for RTX 1.7.1.116".
        ok: Whether it imports the model.
        problems: Its errors; empty where it imports the model.
    """

    release: str = member(long_text)
    ok: bool = member(flag)
    problems: tuple[ParserProblem, ...] = member(records(ParserProblem))

    def note(self, parse: Parse) -> str:
        """Returns one line that has the parser's word and the table's.

        Args:
            parse: The table's word on the same model, for the board's release.
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
    """What the child process says; ``failed`` is why there is no answer, or empty."""

    failed: str = member(long_text, absent="")
    release: str = member(long_text, absent="")
    ok: bool = member(flag, absent=False)
    problems: tuple[ParserProblem, ...] = member(records(ParserProblem), absent=())


def wheels() -> Path:
    """Returns the folder that has NVIDIA's module, without importing it.

    Raises:
        UsageError: ``parser.missing``: it is not installed.
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


def ask_parser(model: Model) -> ParserWord:
    """Returns what NVIDIA's parser says of a model, as edgekit would write it for the board.

    Raises:
        UsageError: ``parser.missing``: the parser is not installed.
        BuildError: ``parser.failed``: the parser crashed or cannot be loaded; ``parser.timeout`` or
            ``parser.memory``: it needs more than it may take.
        ModelError: ``model.unwritable``: there is no space for a copy of the model.
    """
    import tempfile
    from pathlib import Path

    from edgekit.network.writing import save

    folder = wheels()
    with tempfile.TemporaryDirectory(prefix="edgekit-parser-") as made:
        path = Path(made) / "model.onnx"
        save(model, path)
        size = sum(file.stat().st_size for file in Path(made).iterdir())
        answer = _asked(model.source, folder, path, _MEMORY + _COPIES * size)
    if answer.failed == "memory":
        raise _failure("parser.memory", "ran out of memory", model.source)
    if answer.failed:
        raise _failure("parser.failed", f"failed: {answer.failed}", model.source)
    problems = answer.problems
    if not answer.ok and not problems:
        problems = (ParserProblem("", "", "it gives no reason"),)
    return ParserWord(f"{PRODUCT} {answer.release}", answer.ok, problems)


def _asked(name: str, folder: Path, model: Path, size: int) -> _Answer:
    """Returns the child's answer; ``size``: bytes of address space that the child may take."""
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
            command, env=kept | _SETTINGS, timeout=timeouts.PARSER_S, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _failure("parser.timeout", f"took over {timeouts.PARSER_S} s", name) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise _failure("parser.failed", f"cannot be started: {reason}", name) from error
    if done.returncode == -signal.SIGXCPU:
        raise _failure(
            "parser.timeout", f"took over {timeouts.PARSER_CPU_S} s of the processor", name
        )
    if done.returncode == -signal.SIGKILL:  # the machine's last resort
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
