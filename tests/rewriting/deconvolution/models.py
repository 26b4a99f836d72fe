"""Models of one deconvolution or one Resize."""

import numpy as np

from tests.rewriting.nets import net, node, weight

COORDINATES = "coordinate_transformation_mode"


def deconv(shape, kernel, *, maps=3, bias=True, seed=0, opset=13, **attrs):
    """A ConvTranspose with ``maps`` output maps for each group."""
    weights = {"w": weight(shape[1], maps, *kernel, seed=seed)}
    if bias:
        weights["b"] = weight(maps * attrs.get("group", 1), seed=seed)
    layer = node("ConvTranspose", "x w b" if bias else "x w", "y", name="up", **attrs)
    return net([layer], {"x": shape}, ["y"], weights, opset=opset)


def resize(shape, *, scales=None, sizes=None, opset=13, **attrs):
    """A Resize by scales or to sizes; ``how`` are its coordinates."""
    if "how" in attrs:
        attrs[COORDINATES] = attrs.pop("how")
    given = ["x", "", "s"] if sizes is None else ["x", "", "", "s"]
    value = np.array(scales, np.float32) if sizes is None else np.array(sizes)
    layer = node("Resize", given, "y", name="up", **attrs)
    return net([layer], {"x": shape}, ["y"], {"s": value}, opset=opset)


def found(model, op):
    """The attributes of a model's nodes of one operator."""
    from edgekit.network.graph import read_node

    return [dict(read_node(item).attrs) for item in model.proto.graph.node if item.op_type == op]


def names(model):
    """Names of a model's nodes."""
    return [item.name for item in model.proto.graph.node]
