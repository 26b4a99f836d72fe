"""The remedy for an operator or plugin that a log's parser does not know: the same as in a check of
the model (``trt/operators.yaml``), for the log's release and board.
"""

from __future__ import annotations

import onnx
from onnx import helper

from edgekit.network.graph import OnnxGraph
from edgekit.network.operators import operator_table
from edgekit.parsing.table import parse_check
from edgekit.targets.board import Target
from edgekit.targets.jetpack import jetpacks
from edgekit.targets.releases import parse_version

_SHIPPED = (
    "load TensorRT's plugin library before the model is parsed or the engine is loaded: "
    'initLibNvInferPlugins(&logger, "") and -lnvinfer_plugin in C++, '
    'tensorrt.init_libnvinfer_plugins(logger, "") in Python; trtexec does it by itself. '
    "A plugin never runs on a DLA"
)


def about_operator(
    operator: str, version: str, release: str, target: Target | None
) -> tuple[str, str] | None:
    """Returns cause and remedy; None if the operator is not in the table.

    Args:
        operator: The operator's name in the log.
        version: The operator's requested version, or "".
        release: The log's TensorRT release, or "" if unknown.
        target: The log's board, or None if unknown.
    """
    table = operator_table()
    row = table.operators.get(operator) or table.missing.get(operator)
    if row is None:
        return _about_plugin(operator, version)
    # a row without `since` is of an operator that every release in the table imports
    since = row.since or (table.oldest if operator in table.operators else "")
    if release and operator in table.operators and table.imports(operator, parse_version(release)):
        if parse_version(release) >= parse_version(table.oldest):
            return (
                f"by edgekit's table the parser of TensorRT {release} imports {operator}, so an "
                "older TensorRT parsed the model than the log names, or the program asks for a "
                "plugin of that name",
                "look which libnvonnxparser the program loads (`ldd`, LD_LIBRARY_PATH, pip list), "
                "keep the one of the board's JetPack, and parse the model with its trtexec",
            )
        # the table begins later than the release: use its first release
        return (
            f"the parser of TensorRT {release} has no importer for {operator}; "
            f"{table.oldest} has one",
            f"use TensorRT {table.oldest} or newer{_has_jetpack_with(since, target)}; or export "
            "with an older opset; or cut the network before it with model.outputs (--outputs)",
        )
    problems = parse_check(_single_node_graph(operator), release or table.oldest, target).problems
    if not problems:
        return (
            f"the log does not name its TensorRT; every release from {table.oldest} on imports "
            f"{operator}",
            f"use TensorRT {table.oldest} or newer{_has_jetpack_with(since, target)}; or cut "
            "the network before it with model.outputs (--outputs)",
        )
    what, fix = problems[0].message, problems[0].fix
    if not release:
        what = what.replace(f"the parser of TensorRT {table.oldest} has", "the log's parser has", 1)
    return f"{what}{_no_jetpack_note(since, target)}", fix


def _about_plugin(operator: str, version: str) -> tuple[str, str] | None:
    shipped = operator_table().plugins.names.get(operator)
    if shipped is None:
        return None
    if version and version not in shipped:
        return (
            f"TensorRT ships the plugin {operator} in version {', '.join(shipped)}, "
            f"and the model asks for version {version}",
            f"export the model with the plugin's version {shipped[-1]} (attribute plugin_version)",
        )
    return f"TensorRT ships the plugin {operator}, and this program did not load it", _SHIPPED


def _no_jetpack_note(since: str, target: Target | None) -> str:
    """Returns a note if no JetPack of the board has a release, else ""."""
    packs = (
        [jetpack for jetpack in jetpacks(target) if jetpack.tensorrt] if target is not None else []
    )
    if not since or not packs or _has_jetpack_with(since, target):
        return ""
    last = packs[-1]
    return (
        f"; no JetPack of the board has it (the newest, {last.versions[-1]}, brings "
        f"TensorRT {last.tensorrt_text})"
    )


def _has_jetpack_with(since: str, target: Target | None) -> str:
    packs = jetpacks(target) if target is not None else ()
    able = (p for p in packs if p.tensorrt and parse_version(p.tensorrt) >= parse_version(since))
    pack = next(able, None)
    return f" (JetPack {pack.versions[0]} brings {pack.tensorrt})" if pack is not None else ""


def _single_node_graph(operator: str) -> OnnxGraph:
    """Returns a graph of a single node with only its operator known."""
    node = helper.make_node(operator, ["x"], ["y"], name=operator)
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "log",
        [tensor("x", onnx.TensorProto.FLOAT, [1])],
        [tensor("y", onnx.TensorProto.FLOAT, [1])],
    )
    return OnnxGraph(helper.make_model(graph), {})
