"""Errors of parts that PyTorch cannot export: module path, class and source line, with the
``leave`` that avoids the error.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import EdgekitError, ModelError, UsageError
from edgekit.network.module_names import enclosing_modules, last_line, path_of_scopes

# an exporter's errors have pages of advice
_LONGEST = 300
_DATA_DEPENDENT = (
    "GuardOnDataDependentSymNode",
    "DataDependentOutputException",
    "PendingUnbackedSymbolNotFound",
)
# PyTorch's error when NumPy requests the values of a tensor without values
_NO_NUMPY = ".numpy() is not supported for tensor subclasses"
# an operator whose result size depends on values
_FREE_SIZE = "DynamicOutputShapeException"
# a node of a printed TorchScript graph
_SCRIPT_NODE = re.compile(r"= (\S+)\(.*scope: (\S+) # (\S+?):(\d+)")
_MISSING = (
    # the exporter of programs, and the legacy one
    re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)', overload='(\w+)'"),
    re.compile(r"Exporting the operator '([\w:]+)' to ONNX"),
    re.compile(r"Unsupported: ONNX export of operator ([\w:. ]+?)[,.]"),
)
# the advice of Place.leave
_KEEPS = re.compile(r'(leave=\["[^"]*"\]) keeps the module in PyTorch')
_NODE_NAME = re.compile(r"translating node %(\w+)")


@dataclass(frozen=True)
class Place:
    """A place in a network.

    Attributes:
        path: The module's path, "" for the network itself.
        kind: The module's class.
        line: "net.py:12"; empty if unknown.
        code: The source line.
    """

    path: str
    kind: str
    line: str = ""
    code: str = ""

    def words(self) -> str:
        """Returns "module 'head.0' (Router), net.py:12: if x.sum() > 0:"."""
        named = f"module {self.path!r} ({self.kind})" if self.path else f"the network ({self.kind})"
        line = f", {self.line}" if self.line else ""
        return f"{named}{line}" + (f": {self.code}" if self.code else "")

    def leave(self) -> str:
        """Returns the advice to export the network without the place."""
        if self.path:
            return f'leave=["{self.path}"] keeps the module in PyTorch'
        return (
            "it is in the network's own forward, which no leave= avoids: move it into a module "
            "of its own, and leave that in PyTorch"
        )


@contextlib.contextmanager
def exported_whole() -> Iterator[None]:
    """Within the block errors do not advise only a ``leave``: a file, program or factory is
    exported before its modules are left out, so that a ``leave`` does not avoid an export error.
    """
    try:
        yield
    except EdgekitError as error:
        error.hint = _KEEPS.sub(
            r"give the torch.nn.Module itself with \1, which keeps the module in PyTorch",
            error.hint,
        )
        raise


def failure(error: BaseException, network: Any, *, printed: str = "") -> EdgekitError:
    """Returns the error of a module that PyTorch cannot export.

    Args:
        error: PyTorch's error, with its traceback.
        network: The exported module; None for a file, which has no Python code.
        printed: The exporter's output.
    """
    if isinstance(error, EdgekitError):
        return error
    chain = list(_error_chain(error))
    # the first cause that passed a module: wrapping errors come first in the chain
    place = next((found for cause in chain if (found := _error_place(cause, network))), None)
    if any(type(cause).__name__ in _DATA_DEPENDENT or _NO_NUMPY in str(cause) for cause in chain):
        return data_dependent(place)
    if any(type(cause).__name__ == _FREE_SIZE for cause in chain):
        return free_size(place)
    operator = _missing_operator(chain)
    if operator:
        place = _script_place(printed, operator) or place
        return unsupported_operator(operator, place)
    # the original error is the last of the chain
    text = next((words for cause in reversed(chain) if (words := first_words(cause))), "")
    message = f"PyTorch cannot export {place.words() if place else 'the network'}"
    return ModelError(
        f"{message}: {type(chain[-1]).__name__}: {text}",
        code="torch.export",
        where=place.path if place else "",
        hint=f"{place.leave()}; or try the other exporter (exporter=)"
        if place
        else "try the other exporter (exporter=)",
    )


def not_called_error(error: Exception, network: Any, example: str) -> UsageError:
    """Returns the error of a module that cannot be called with the example."""
    place = next(
        (found for cause in _error_chain(error) if (found := _error_place(cause, network))), None
    )
    where = f" at {place.words()}" if place else ""
    return UsageError(
        f"the module cannot be called with the example{where}: {type(error).__name__}: "
        f"{first_words(error)}",
        code="torch.inputs",
        where=place.line if place else "",
        hint=f"the example is {example}: give inputs that the module takes",
    )


def data_dependent(first: Place | None) -> ModelError:
    """Returns the error of data-dependent control flow, at its first place."""
    return ModelError(
        "the values of a tensor decide which code runs, which no network can express: "
        + (first.words() if first else "PyTorch does not name the place"),
        code="torch.control_flow",
        where=first.line if first else "",
        hint=(f"{first.leave()}, or write it" if first else "write it")
        + " with torch.where or arithmetic",
    )


def keeps_state(buffers: str, place: Place | None) -> ModelError:
    """Returns the error of a network whose results depend on earlier calls.

    Args:
        buffers: The changed buffers: "1 buffer 'head.count'".
        place: The place that changes the first buffer, if known.
    """
    return ModelError(
        f"the results depend on earlier calls: the module keeps {buffers} between calls"
        + (f": {place.words()}" if place else ""),
        code="torch.state",
        where=place.line if place else "",
        hint=(f"{place.leave()}, with its state; or make" if place else "make")
        + " them inputs and outputs of forward: an engine keeps no state",
    )


def state_place(network: Any, buffer: str) -> Place:
    """Returns the module of a buffer, and the line of its ``forward`` that names the buffer."""
    path, _, name = buffer.rpartition(".")
    kind = type(network.get_submodule(path))
    line = ("", "")
    with contextlib.suppress(OSError, TypeError):  # a class without a source file
        file = inspect.getsourcefile(kind.forward) or ""
        lines, first = inspect.getsourcelines(kind.forward)
        named = (at for at, text in enumerate(lines) if re.search(rf"\.{name}\b", text))
        line = _source_line(file, first + next(named, 0))
    return Place(path, kind.__name__, *line)


def random_results(place: Place | None) -> ModelError:
    """Returns the error of a network whose results vary without a changed buffer.

    Args:
        place: The place that uses random numbers, if known.
    """
    return ModelError(
        "two calls with the same inputs have different results: the module uses random numbers"
        + (f": {place.words()}" if place else ", or keeps something of earlier calls"),
        code="torch.random",
        where=place.line if place else "",
        hint=(f"{place.leave()}; or make" if place else "make") + " them an input of forward",
    )


@contextlib.contextmanager
def random_calls(network: Any, left: Collection[str]) -> Iterator[list[Place]]:
    """Yields a list, to which a run of a network adds the places that use PyTorch's random numbers.

    Args:
        network: The module that runs.
        left: Paths of the modules that may use random numbers.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Place] = []

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if torch.Tag.nondeterministic_seeded in function.tags:
                frames = reversed(list(traceback.walk_stack(sys._getframe())))
                place = _innermost_place(frames, network)
                if place is None or not set(enclosing_modules(place.path)) & set(left):
                    found.append(place or Place("", type(network).__name__))
            return function(*args, **(kwargs or {}))

    with Watch():
        yield found


def random_node(graph: Any) -> Place | None:
    """Returns the place where a ``torch.export`` program uses random numbers, or None."""
    import torch

    tag = torch.Tag.nondeterministic_seeded
    nodes = (node for node in graph.nodes if tag in getattr(node.target, "tags", ()))
    return next(map(program_place, nodes), None)


def free_size(place: Place | None, output: str = "") -> ModelError:
    """Returns the error of a result whose size depends on the inputs' values.

    Args:
        place: The place of the operator that determines the size, if known.
        output: The result's name.
    """
    named = f"output {output!r}" if output else "a tensor"
    return ModelError(
        f"the values of the inputs decide the size of {named}, and a network for TensorRT returns "
        "one size" + (f": {place.words()}" if place else ""),
        code="torch.dynamic_shapes",
        where=place.line if place else output,
        hint="return tensors of one size, such as a mask or torch.topk's, and select behind the "
        "network",
    )


def unsupported_operator(operator: str, place: Place | None) -> ModelError:
    """Returns the error of an operator that the exporter does not know."""
    where = f" in {place.words()}" if place else ""
    leave = f"{place.leave()}; or " if place else ""
    return ModelError(
        f"the exporter has no ONNX for operator {operator}{where}",
        code="torch.operator",
        where=place.path if place else "",
        hint=f"{leave}write it with other operators, or try the other exporter (exporter=)",
    )


def program_place(node: Any) -> Place:
    """Returns the source place of a node of a ``torch.export`` program."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    line = last_line(node.meta.get("stack_trace") or "", _is_library_code)
    return Place(str(path), kind.rpartition(".")[2], line)


def find_node(error: BaseException, graph: Any) -> Any | None:
    """Returns the node of a program's graph that the exporter could not translate."""
    for cause in _error_chain(error):
        if found := _NODE_NAME.search(str(cause)):
            return next((node for node in graph.nodes if node.name == found[1]), None)
    return None


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    here: BaseException | None = error
    while here is not None and here not in seen:
        seen.append(here)
        yield here
        # without a cause Python still notes the error that was being handled
        here = here.__cause__ or here.__context__


def _error_place(error: BaseException, network: Any) -> Place | None:
    """Returns the innermost module whose ``forward`` the error passed, and the line there."""
    return (
        None
        if network is None
        else _innermost_place(traceback.walk_tb(error.__traceback__), network)
    )


def _innermost_place(frames: Iterable[tuple[Any, int]], network: Any) -> Place | None:
    """Returns the innermost module of a network whose ``forward`` is in ``frames`` (outermost
    first).
    """
    import torch

    paths = {id(module): path for path, module in network.named_modules()}
    found: Place | None = None
    for frame, number in frames:
        module = _frame_module(frame, torch.nn.Module)
        if (
            module is not None
            and id(module) in paths
            and not _is_library_code(frame.f_code.co_filename)
        ):
            kind = type(module).__name__
            found = Place(paths[id(module)], kind, *_source_line(frame.f_code.co_filename, number))
        elif module is not None and id(module) in paths:
            # a module of PyTorch: its name is more helpful than its line
            path = paths[id(module)]
            if path and (found is None or path != found.path):
                line = (found.line, found.code) if found else ("", "")
                found = Place(path, type(module).__name__, *line)
        elif found is not None and not _is_library_code(frame.f_code.co_filename):
            # a function that the module calls
            found = Place(found.path, found.kind, *_source_line(frame.f_code.co_filename, number))
    return found


def _frame_module(frame: Any, kind: type[Any]) -> Any | None:
    code = frame.f_code
    if not code.co_argcount:
        return None
    # a method's first argument is its module
    first = frame.f_locals.get(code.co_varnames[0])
    return first if isinstance(first, kind) else None


def _is_library_code(file: str) -> bool:
    """Returns True if code is PyTorch's or edgekit's, not a module's own."""
    import torch

    folders = (Path(torch.__file__).parent, Path(__file__).parent)
    # "<...>": code that PyTorch generated
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in folders)


def _source_line(file: str, number: int | None) -> tuple[str, str]:
    import linecache

    code = linecache.getline(file, number or 0).strip()
    return f"{file}:{number}", code[:_LONGEST]


def _missing_operator(chain: Sequence[BaseException]) -> str:
    for cause in chain:
        for form in _MISSING:
            if found := form.search(str(cause)):
                return ".".join(found.groups()).strip()
    return ""


def _script_place(printed: str, operator: str) -> Place | None:
    """Returns the place of an operator in the legacy exporter's printed graph."""
    for found in _SCRIPT_NODE.finditer(printed):
        if found[1] == operator:
            scopes = [scope.partition("::") for scope in found[2].split("/")]
            path = path_of_scopes(name for _, _, name in scopes if name)
            kind = scopes[-1][0]
            return Place(path, kind.rpartition(".")[2], *_source_line(found[3], int(found[4])))
    return None


def first_words(error: BaseException) -> str:
    """Returns the first line of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:_LONGEST] if lines else ""


def other_lines(report: Any) -> list[str]:
    """Returns the lines of data-dependent control flow that ``draft_export`` found."""
    from torch._logging import structured

    # the report only has names that PyTorch met first in it; the process has all names
    files = {number: name for name, number in structured.INTERN_TABLE.items()}
    found = []
    for failure in report.failures:
        last = (failure.data.get("user_stack") or [{}])[-1]
        file = files.get(last.get("filename"), "")
        if failure.failure_type.name == "DATA_DEPENDENT_ERROR" and file:
            found.append(f"{file}:{last['line']}: {last['loc'][:_LONGEST]}")
    return list(dict.fromkeys(found))
