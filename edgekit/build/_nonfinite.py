"""Outputs that are NaN or infinite although the network's FP32 has numbers there, and since where.

An average of cosines shows such an output as 0; whoever reads that looks for the wrong fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.build._runner import Runner, open_engine

if TYPE_CHECKING:
    import numpy as np

    from edgekit.build._types import Artefacts, Segment
    from edgekit.network import Model

__all__ = ["Nonfinite"]

_TRIED = 24  # tensors that FP32 is asked for; masks are infinite in FP32, too


class Nonfinite:
    """Collects what is not finite in a build's outputs.

    Args:
        model: The FP32 model.
        runner: The build.
    """

    def __init__(self, model: Model, runner: Runner) -> None:
        self._model = model
        self._runner = runner
        self._found: dict[str, dict[str, int]] = {}
        self._feeds: dict[str, Mapping[str, np.ndarray]] = {}

    def add(self, name: str, value: np.ndarray, feed: Mapping[str, np.ndarray]) -> None:
        """Takes in one output of one inference, whose FP32 is finite."""
        import numpy as np

        if value.dtype.kind != "f" or np.isfinite(value).all():
            return
        kinds = self._found.setdefault(name, {"inputs": 0, "NaN": 0, "infinity": 0})
        kinds["inputs"] += 1
        kinds["NaN"] += int(np.isnan(value).any())
        kinds["infinity"] += int(np.isinf(value).any())
        self._feeds.setdefault(name, feed)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Returns an object for each such output: ``output``, ``what``, ``inputs`` of ``count``,
        ``since`` (``node``, ``segment``, ``device``; None where it is not found), ``told``.
        """
        found = []
        known: dict[int, dict[str, Any] | None] = {}
        for name, kinds in self._found.items():
            feed = self._feeds[name]
            if id(feed) not in known:
                known[id(feed)] = self._since(feed)
            since = known[id(feed)]
            what = " and ".join(kind for kind in ("NaN", "infinity") if kinds[kind])
            told = f"output {name!r} has {what} for {kinds['inputs']} of {count} inputs"
            if since:
                told += (
                    f", first written by node {since['node']!r} in segment {since['segment']} "
                    f"on {since['device']}"
                )
            told += "; FP32 has numbers there, FP16 ends at 65,504"
            found.append({"output": name, "what": what, "inputs": kinds["inputs"],
                          "since": since, "told": told})  # fmt: skip
        return found

    def _since(self, feed: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
        """Returns the first node whose output is not finite although it is in FP32."""
        import numpy as np

        from edgekit.network import session

        writers = {
            tensor: node.name for node in self._model.proto.graph.node for tensor in node.output
        }
        tensors = self._runner.run(feed, observe=True)
        for segment in self._runner.segments:
            inside = _inside(self._runner.artefacts, segment, tensors)
            bad = (
                name.partition("#")[0]
                for name, value in inside.items()
                if value.dtype.kind == "f" and not np.isfinite(value).all()
            )
            names = [name for name in dict.fromkeys(bad) if name in writers][:_TRIED]
            values = session(self._model, outputs=names).run(names, dict(feed)) if names else []
            for name, value in zip(names, values, strict=True):
                if np.isfinite(value).all():
                    return _place(writers[name], segment)
        return None


def _inside(
    artefacts: Artefacts, segment: Segment, tensors: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns all that the nodes of a segment write, in their order, from what it reads."""
    import onnx

    proto = onnx.ModelProto.FromString(artefacts.engines[segment.engine])
    names = [name for node in proto.graph.node for name in node.output if name]
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = open_engine(
        proto.SerializeToString(), artefacts.weights, artefacts.values, f"segment {segment.index}"
    )
    feed = {name: tensors[name] for name in segment.inputs}
    return dict(zip(names, session.run(names, feed), strict=True))


def _place(node: str, segment: Segment) -> dict[str, Any]:
    return {"node": node, "segment": segment.index, "device": segment.device}
