"""The PyTorch module of each node of an ONNX file.

PyTorch's dynamo exporter writes a node's modules into its metadata; the earlier TorchScript
exporter wrote them into the node's name. Observed with torch 2.13 and 2.14, for torchvision's
networks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import lru_cache

import onnx

from edgekit_device.protocol.codec import document

#: The dynamo exporter's metadata of a node, as Python literals of equal length: the paths of its
#: modules from the network ('') inwards, and their classes; both end with the operator.
NAME_SCOPES = "pkg.torch.onnx.name_scopes"
CLASS_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
_KEYS = frozenset({NAME_SCOPES, CLASS_HIERARCHY})
#: Python's stack at the node's computation, in the format of a traceback.
STACK_TRACE = "pkg.torch.onnx.stack_trace"

DYNAMO, LEGACY = "dynamo", "legacy"

# limits above those of any network: longer metadata are ignored
_LONGEST_TEXT = 1 << 14
_LONGEST_NAME = 1 << 9
_MOST_SCOPES = 1 << 6
# patterns that are compiled when a file needs them
# a list of texts without escapes, which is not evaluated as Python
_TEXT = r"""'([^'\\]*)'|"([^"\\]*)\""""
_LIST = rf"\[(?:(?:{_TEXT})(?:, |(?=\])))*\]"
# torch.export's suffix for the number of a module's call
_CALL = r"@\d+(?=\.|$)"
_FRAME = r'File "([^"\n]+)", line (\d+)[^\n]*(?:\n[^\S\n]+([^\n]*))?'
# PyTorch's own code, which is not part of the network
_OF_TORCH = r"[/\\](?:site|dist)-packages[/\\]torch[/\\]"
_LONGEST_LINE = 300
# the legacy exporter's suffix for repeated calls, and for operators of the same type in a module
_COUNTED = r"(.+)_\d+"
# operators whose module is that of their matrix or kernel
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# operators that may be between a stored matrix and its reader
_PASSING = frozenset(
    {"Cast", "DequantizeLinear", "Identity", "QuantizeLinear", "Reshape", "Transpose"}
)
_BATCH_NORM = "batch_norm"
_ALL_INSIDE = ".*"


@document(frozen=True)
class ModuleNames:
    """The modules of a network's nodes.

    Attributes:
        exporter: Source of the modules: "dynamo" (metadata) or "legacy" (node names).
        nodes: Path of a node's module ("layer1.0.conv1") by the node's name, "" for the network
            itself. A node without a module gets that of the node before or after it.
        classes: Class ("torch.nn.modules.conv.Conv2d") by path of a module, as far as known; the
            legacy exporter writes no classes.
    """

    exporter: str
    nodes: Mapping[str, str]
    classes: Mapping[str, str] = field(default_factory=dict)


def enclosing_modules(path: str) -> list[str]:
    """Returns a module and its enclosing modules, from the network ("") inwards."""
    parts = path.split(".") if path else []
    return ["", *(".".join(parts[: count + 1]) for count in range(len(parts)))]


def fits_module(path: str, glob: str) -> bool:
    """Returns True if a glob matches a module; "layer1" and "layer1.*" both match ``layer1``."""
    around = glob.removesuffix(_ALL_INSIDE)
    return path in (glob, around) or fnmatchcase(path, glob) or fnmatchcase(path, around)


def common_module(paths: Iterable[str]) -> str:
    """Returns the innermost common module of ``paths``; "" for no paths."""
    different = set(paths)
    if len(different) == 1:
        return different.pop()
    found: list[str] | None = None
    for path in different:
        parts = path.split(".") if path else []
        if found is None:
            found = parts
            continue
        same = [name == other for name, other in zip(found, parts, strict=False)]
        found = found[: same.index(False) if False in same else len(same)]
    return ".".join(found or ())


def read_module_names(graph: onnx.GraphProto) -> ModuleNames | None:
    """Returns the modules of a graph's nodes; None if the file names no modules.

    ``graph``: every node has a name, and the nodes are in topological order.
    """
    operators: dict[str, str] = {}
    inner: dict[str, str] = {}
    named: dict[str, str] = {}
    classes: dict[str, str] = {}
    legacy = False
    for node in graph.node:
        # the paths of the node's modules, outermost first, then its operator
        scopes = [re.sub(_CALL, "", scope) for scope in _parse_texts(_metadata(node, NAME_SCOPES))]
        if scopes:
            *modules, operators[node.name] = scopes
            inner[node.name] = modules[-1] if modules else ""
            kinds = _parse_texts(_metadata(node, CLASS_HIERARCHY))
            if len(kinds) == len(scopes):
                for module, kind in zip(modules, kinds, strict=False):
                    if kind:
                        classes.setdefault(module, kind)
        if node.name.startswith("/") and (path := _legacy_path(node.name)) is not None:
            named[node.name] = path
            # other exporters also write slashes; the legacy exporter ends each name with the
            # operator
            legacy = legacy or node.name.rpartition("/")[2].startswith(node.op_type)
    if not inner and not legacy:
        return None
    found = {**(_merge_calls(graph, named) if legacy else {}), **inner}
    for name, owner in _weight_owners(graph).items():
        # a Conv with a folded BatchNorm has the BatchNorm's scope; a function may use a module's
        # weight
        if name not in found:
            continue
        path = found[name]
        # the owner is inside the recorded module, and so is the more exact answer
        inside = owner.startswith(f"{path}.") if path else True
        if inside or _BATCH_NORM in operators.get(name, ""):
            found[name] = owner
    if len(found) < len(graph.node):
        _fill_gaps(graph, found)
    return ModuleNames(LEGACY if legacy else DYNAMO, found, classes)


def _metadata(node: onnx.NodeProto, key: str) -> str:
    return next((item.value for item in node.metadata_props if item.key == key), "")


# blocks of the same kind have equal classes
@lru_cache(256)
def _parse_texts(literal: str) -> tuple[str, ...]:
    """Returns the texts of a Python list literal; empty if malformed or above the limits."""
    if len(literal) > _LONGEST_TEXT or not re.fullmatch(_LIST, literal):
        return ()
    texts = tuple(single or double for single, double in re.findall(_TEXT, literal))
    return texts if len(texts) <= _MOST_SCOPES and all(map(_is_name, texts)) else ()


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and text.isprintable()


def _legacy_path(name: str) -> str | None:
    """Returns the path of the module in a node's name, "/layer1/layer1.0/conv1/Conv".

    A module in a container carries the container's own name: the scopes "layer1" and "layer1.0"
    are the path "layer1.0".
    """
    scopes = name.split("/")[1:-1]
    if len(scopes) > _MOST_SCOPES or not all(scopes) or not _is_name(name) or "\\" in name:
        return None
    return path_of_scopes(scopes)


def path_of_scopes(scopes: Iterable[str]) -> str:
    """Returns a module's path from the scopes of the legacy exporter: "layer1", "layer1.0"."""
    path: list[str] = []
    for scope in scopes:
        if path and scope.startswith(f"{path[-1]}."):
            path.pop()
        path.append(scope)
    return ".".join(path)


def _merge_calls(graph: onnx.GraphProto, named: Mapping[str, str]) -> dict[str, str]:
    """Gives all calls of a module the same path: the legacy exporter names the second "relu_1".

    A module with such a suffix is treated as another call if both have the same operators and
    weights.
    """
    inside: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for node in graph.node:
        if node.name in named:
            matrix = node.input[1] if node.op_type in _WEIGHTED and len(node.input) > 1 else ""
            inside[named[node.name]].append((node.op_type, matrix))
    first: dict[str, str] = {}
    for path, computed in inside.items():
        counted = re.fullmatch(_COUNTED, path)
        if counted and inside.get(counted[1]) == computed:
            first[path] = counted[1]
    return {name: first.get(path, path) for name, path in named.items()}


def _weight_owners(graph: onnx.GraphProto) -> dict[str, str]:
    """Returns the module that owns a node's matrix or kernel, from the initializer's name."""
    stored = {tensor.name: tensor.name for tensor in graph.initializer}
    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in _PASSING and node.input and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
        elif node.op_type in _WEIGHTED:
            # a MatMul's matrix may be either input; the third input is a bias, which exporters
            # share
            owners = (
                _owner_module(stored[name])
                for name in (*node.input[1:2], *node.input[:1])
                if name in stored
            )
            found[node.name] = next(filter(None, owners), "")
    return {name: owner for name, owner in found.items() if owner}


def _owner_module(weight: str) -> str:
    """Returns "layer1.0.conv1" for "layer1.0.conv1.weight"; "" for a name without a module."""
    path = weight.rpartition(".")[0]
    return path if _is_name(path) and not set(path) & set(":/\\") else ""


def _fill_gaps(graph: onnx.GraphProto, found: dict[str, str]) -> None:
    """Gives nodes without a module that of the node before them, or after them."""
    by_tensor: dict[str, str] = {}
    for node in graph.node:
        if node.name not in found:
            before = next((by_tensor[name] for name in node.input if name in by_tensor), None)
            if before is None:
                continue
            found[node.name] = before
        by_tensor.update(dict.fromkeys(filter(None, node.output), found[node.name]))
    read_by: dict[str, str] = {}
    # nodes without such a predecessor get the module of their first reader
    for node in reversed(graph.node):
        if node.name not in found:
            after = (read_by[name] for name in node.output if name in read_by)
            found[node.name] = next(after, "")
        read_by.update(dict.fromkeys(filter(None, node.input), found[node.name]))


def stack_trace(node: onnx.NodeProto) -> str:
    """Returns the Python stack trace of a node from the dynamo exporter; "" without a trace."""
    return _metadata(node, STACK_TRACE)[-_LONGEST_TEXT:]


def last_line(trace: str, foreign: Callable[[str], bool] | None = None) -> str:
    """Returns the innermost line of a printed traceback: "net.py:12: y = self.stem(x)".

    Args:
        trace: Python's traceback.
        foreign: Returns True for a file of PyTorch, whose lines are used only if there are no
            others; None decides by the file's folder.
    """
    found = re.findall(_FRAME, trace)
    skipped = foreign or (lambda file: re.search(_OF_TORCH, file) is not None)
    own = [row for row in found if not skipped(row[0])] or found
    if not own:
        return ""
    file, number, code = own[-1]
    line = f"{file}:{number}" + (f": {code.strip()[:_LONGEST_LINE]}" if code.strip() else "")
    return line if line.isprintable() else ""


def keep_module_names(node: onnx.NodeProto) -> None:
    """Drops a node's metadata except for the names of its modules.

    Exporters also leave source paths and stack traces there.
    """
    if not node.metadata_props:
        return
    retained = [
        item
        for item in node.metadata_props
        if item.key in _KEYS and len(item.value) <= _LONGEST_TEXT
    ]
    del node.metadata_props[:]
    node.metadata_props.extend(retained)


def write_module_name(node: onnx.NodeProto, names: ModuleNames, path: str) -> None:
    """Writes a module into a node's metadata, as the dynamo exporter does.

    Existing metadata are kept. ``names``: the source of the classes.
    """
    if any(item.key == NAME_SCOPES for item in node.metadata_props):
        return
    modules = [
        module
        for module in enclosing_modules(path)
        if module in names.classes or module in {"", path}
    ]
    scopes, kinds = [*modules, node.op_type], [names.classes.get(module, "") for module in modules]
    node.metadata_props.add(key=NAME_SCOPES, value=repr(scopes))
    if any(kinds):
        node.metadata_props.add(key=CLASS_HIERARCHY, value=repr([*kinds, node.op_type]))
