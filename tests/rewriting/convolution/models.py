"""Models of one convolution."""

from tests.rewriting.nets import net, node, weight


def conv(shape, weights, bias=True, seed=0, **attrs):
    """A Conv named "conv" from "x" to "y" with random weights of that shape."""
    values = {"w": weight(*weights, seed=seed)}
    if bias:
        values["b"] = weight(weights[0], seed=seed + 10)
    read = "x w b" if bias else "x w"
    return net([node("Conv", read, "y", name="conv", **attrs)], {"x": shape}, ["y"], values)
