"""The same network in a newer opset."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgekit.network import Model

__all__ = ["raise_opset"]


def raise_opset(model: Model, least: int = 13) -> Model | None:
    """Returns the network in at least an ai.onnx opset; None where an operator cannot be raised."""
    from onnx import version_converter

    from edgekit.network import canonical

    opset = next(o.version for o in model.proto.opset_import if not o.domain)
    if opset >= least:
        return model
    try:
        proto = version_converter.convert_version(model.proto, least)
    except Exception:
        return None
    return canonical(proto, None, source=model.source, weights=model.weights)
