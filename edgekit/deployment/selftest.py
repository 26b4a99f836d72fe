"""`edgekit doctor --selftest`: the small network that a board builds and runs, and its answers."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edgekit.deployment.answers import protocol_error, row_rule
from edgekit.deployment.doctor import Doctor, VisitedBoards
from edgekit.files import write_atomically
from edgekit.network.model import FOLLOWED
from edgekit.removed import FormerDict
from edgekit.targets.loader import find_by_board_id
from edgekit.tensorrt.releases import release
from edgekit_device.build.request import (
    Attempt,
    BuildJobRequest,
    EngineSpec,
    IoSpec,
    LaneSpec,
    LayerSpec,
    NetworkSpec,
    NetworkTensor,
)
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    mapping,
    member,
    record,
    text,
    write,
)
from edgekit_device.selftest import SelftestResult
from edgekit_device.versions import parse_version, show

if TYPE_CHECKING:
    from edgekit.deployment.client import BoardClient
    from edgekit_device.jobs.job import StartedJob


# small enough to build in seconds, with channels that fill a vector of the DLA's formats
_SHAPE, _CHANNELS, _SEED = (1, 16, 32, 32), 16, 1


def start_selftest(client: BoardClient) -> StartedJob:
    """Sends the toy network and starts the job; returns the result of ``start_job``."""
    probe = client.probe()
    version = probe.tensorrt.python.full or probe.tensorrt.full or FOLLOWED
    strong = "weak" not in release(version).typings
    model = _toy_model(half=strong)
    digest = hashlib.sha256(model).hexdigest()
    if client.missing([digest], verify=True):
        client.receive({digest: model})
    board = find_by_board_id(probe.board_id or "")
    request = selftest_request(digest, version, strong)
    if board is not None:
        request = replace(request, dla=board.dla.layouts)
    return client.start_job("selftest", request)


def selftest_request(digest: str, version: str, strong: bool) -> BuildJobRequest:
    """Returns the self-test's request: the build that each question modifies.

    Args:
        digest: SHA-256 of the toy's ONNX file.
        version: The board's TensorRT.
        strong: True if the network has explicit types, as from TensorRT 11 on.
    """
    dtype = "float16" if strong else "float32"
    layers = (("conv", "Convolution"), ("act", "Activation"), ("conv2", "Convolution"))
    engine = EngineSpec(
        key="toy",
        kind="plan",
        model=digest,
        device="DLA0",
        gpu_fallback=True,
        typing="strong" if strong else "weak",
        precisions=() if strong else ("fp16",),
        layers=tuple(LayerSpec(name, name, (name,), kind, "DLA", "fp16") for name, kind in layers),
        inputs=(IoSpec("x", dtype, _SHAPE),),
        outputs=(IoSpec("y", dtype, _SHAPE),),
        calibration=None,
        pools={},
        constraints="none" if strong else "prefer",
        refit_individual=(),
        profiles=(),
        attempts=(Attempt((), ""),),
    )
    return BuildJobRequest(
        name="selftest",
        tensorrt=show(parse_version(version)[:2]),
        timing_cache=True,
        lanes=(LaneSpec(1.0, (engine.key,)),),
        network=NetworkSpec(
            (NetworkTensor("x", dtype, _SHAPE),),
            (NetworkTensor("y", dtype, _SHAPE),),
        ),
        golden=(),
        engines=(engine,),
    )


@document(frozen=True)
class TestedBoard:
    """A board without its name, since the answers may be published."""

    kind: str = member(text())


@document(frozen=True, kw_only=True)
class Selftest(FormerDict, SelftestResult):
    """``edgekit.selftest/1``: the answers of a board, and facts that are not in their file.

    Attributes:
        counts: Number of questions by answer.
        board: The board's connection.
        ok: True if the self-test was completed.
        file: The file of the answers.
        name: The board's name; not in JSON.
    """

    counts: Mapping[str, int] = member(mapping(fields.count))
    board: TestedBoard = member(record(TestedBoard))
    ok: bool | None = member(flag, absent=None)
    file: str | None = member(text(), absent=None)
    name: str = field(default="", compare=False)


@document(frozen=True)
class Selftests(VisitedBoards[Selftest]):
    """``edgekit.selftests/1``: the answers of several boards; a failed board's is a ``Doctor``."""

    boards: tuple[Selftest | Doctor, ...] = member(array(row_rule(Selftest, Doctor)))
    schema: str = member(choice("edgekit.selftests/1"), default="edgekit.selftests/1")


def write_answers(result: object, client: BoardClient, path: Path) -> Selftest:
    """Writes the answers of a board to a file, and returns them with their counts."""
    if not isinstance(result, SelftestResult):
        raise protocol_error("the job's result is no self-test", client.name)
    counts = dict(Counter(item.status for item in result.items))
    found = Selftest(**vars(result), counts=counts, board=TestedBoard(client.kind))
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(write(found), indent=1) + "\n", encoding="utf-8")
    return replace(found, ok=True, file=str(path), name=client.name)


def _toy_model(half: bool) -> bytes:
    """Returns an ONNX file: two convolutions with a ReLU between, in float32 or float16."""
    rng = np.random.default_rng(_SEED)
    kind = np.float16 if half else np.float32
    element = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    weights = [
        numpy_helper.from_array(
            # 12 is the root of a filter's 16 * 3 * 3 weights: activations keep their magnitude in
            # FP16
            (rng.standard_normal((_CHANNELS, _CHANNELS, 3, 3)) / 12).astype(kind),
            name,
        )
        for name in ("w", "w2")
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "act"),
        helper.make_node("Conv", ["b", "w2"], ["y"], "conv2", pads=[1, 1, 1, 1]),
    ]
    x, y = ([helper.make_tensor_value_info(name, element, list(_SHAPE))] for name in "xy")
    graph = helper.make_graph(nodes, "edgekit-selftest", x, y, weights)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(model.SerializeToString())
