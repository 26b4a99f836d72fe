"""The parameters of a builder's layer, and those of edgekit's layer of the same kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["OURS", "parsed_form", "read_parameters"]

# TensorRT's classes by kind; `Network.get_layer` gives every layer as an ILayer
_CLASSES = {
    "ACTIVATION": "IActivationLayer",
    "CAST": "ICastLayer",
    "CONCATENATION": "IConcatenationLayer",
    "CONVOLUTION": "IConvolutionLayer",
    "DECONVOLUTION": "IDeconvolutionLayer",
    "DEQUANTIZE": "IDequantizeLayer",
    "ELEMENTWISE": "IElementWiseLayer",
    "GATHER": "IGatherLayer",
    "LRN": "ILRNLayer",
    "MATRIX_MULTIPLY": "IMatrixMultiplyLayer",
    "NORMALIZATION": "INormalizationLayer",
    "POOLING": "IPoolingLayer",
    "QUANTIZE": "IQuantizeLayer",
    "REDUCE": "IReduceLayer",
    "RESIZE": "IResizeLayer",
    "SHUFFLE": "IShuffleLayer",
    "SLICE": "ISliceLayer",
    "SOFTMAX": "ISoftMaxLayer",
    "TOPK": "ITopKLayer",
    "UNARY": "IUnaryLayer",
}
#: Which of edgekit's parameters TensorRT has under the same meaning, by kind.
OURS: dict[str, tuple[str, ...]] = {
    "ACTIVATION": ("function", "alpha", "beta"),
    "CAST": ("to",),
    "CONCATENATION": ("axis", "inputs"),
    "CONVOLUTION": ("kernel", "stride", "pads", "dilation", "groups", "out_maps"),
    "DECONVOLUTION": ("kernel", "stride", "pads", "dilation", "groups", "out_maps"),
    "DEQUANTIZE": ("axis",),
    "ELEMENTWISE": ("function",),
    "GATHER": ("axis", "mode"),
    "LRN": ("window", "alpha", "beta", "k"),
    "MATRIX_MULTIPLY": ("transpose",),
    "NORMALIZATION": ("axes", "epsilon", "groups"),
    "POOLING": ("kernel", "stride", "pads", "mode", "count_include_pad"),
    "QUANTIZE": ("axis",),
    "REDUCE": ("function", "axes", "keepdims"),
    "RESIZE": (
        "mode",
        "coordinates",
        "selector",
        "rounding",
        "exclude_outside",
        "cubic_coeff",
        "scales",
    ),
    "SHUFFLE": ("perm",),
    "SLICE": ("starts", "sizes", "strides", "mode"),
    "SOFTMAX": ("axis",),
    "TOPK": ("axis", "k", "function"),
    "UNARY": ("function",),
}
# parameters that an activation's function has; of other functions they have no meaning
_USED = {
    "CLIP": ("alpha", "beta"),
    "LEAKY_RELU": ("alpha",),
    "ELU": ("alpha",),
    "CELU": ("alpha",),
    "SELU": ("alpha", "beta"),
    "HARD_SIGMOID": ("alpha", "beta"),
    "THRESHOLDED_RELU": ("alpha",),
}

_TYPES = {
    "float32": "FLOAT",
    "float16": "HALF",
    "int8": "INT8",
    "int32": "INT32",
    "int64": "INT64",
    # TensorRT has no FP64: the parser reads it as FP32
    "float64": "FLOAT",
    "bool": "BOOL",
    "uint8": "UINT8",
    "bfloat16": "BF16",
    "int4": "INT4",
    "float8_e4m3fn": "FP8",
    "float8e4m3fn": "FP8",
    "float4e2m1": "FP4",
    "float4_e2m1fn": "FP4",
}


def read_axes(mask: int) -> tuple[int, ...]:
    """The axes of a bit mask."""
    return tuple(axis for axis in range(16) if mask >> axis & 1)


def _window(layer: Any, kernel: Any) -> dict[str, Any]:
    found = {"kernel": tuple(kernel), "stride": tuple(layer.stride_nd)}
    # with a SAME mode TensorRT finds the padding later
    if layer.padding_mode.name.startswith("EXPLICIT"):
        found["pads"] = (*layer.pre_padding, *layer.post_padding)
    return found


def _convolution(layer: Any) -> dict[str, Any]:
    return {
        **_window(layer, layer.kernel_size_nd),
        "dilation": tuple(layer.dilation_nd),
        "groups": layer.num_groups,
        "out_maps": layer.num_output_maps,
    }


def _pooling(layer: Any) -> dict[str, Any]:
    found = {**_window(layer, layer.window_size_nd), "mode": layer.type.name}
    if found["mode"] == "AVERAGE":
        found["count_include_pad"] = not layer.average_count_excludes_padding
    return found


def _resize(layer: Any) -> dict[str, Any]:
    mode = layer.resize_mode.name
    found = {
        "mode": mode,
        "coordinates": layer.coordinate_transformation.name,
        "selector": layer.selector_for_single_pixel.name,
        "exclude_outside": layer.exclude_outside,
    }
    if mode == "NEAREST":
        found["rounding"] = layer.nearest_rounding.name
    if mode == "CUBIC":
        found["cubic_coeff"] = layer.cubic_coeff
    if layer.scales:
        found["scales"] = tuple(layer.scales)
    return found


def _slice(layer: Any) -> dict[str, Any]:
    found = {"mode": layer.mode.name.replace("STRICT_BOUNDS", "DEFAULT")}
    if layer.num_inputs == 1:  # further inputs: start, size and stride are tensors
        found |= {
            "starts": tuple(layer.start),
            "sizes": tuple(layer.shape),
            "strides": _strides(layer.shape, layer.stride),
        }
    return found


def _strides(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The strides of a slice; along an axis of size 1 any stride means the same."""
    return tuple(1 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True))


def _shuffle(layer: Any) -> dict[str, Any]:
    rank = len(layer.get_input(0).shape)
    plain = tuple(range(rank))
    first = tuple(layer.first_transpose)[:rank]
    return {"perm": first} if first != plain else {}


def _quantization(layer: Any) -> dict[str, Any]:
    return {"axis": layer.axis if math.prod(layer.get_input(1).shape) > 1 else None}


_READERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "ACTIVATION": lambda layer: {
        "function": layer.type.name,
        **{name: getattr(layer, name) for name in _USED.get(layer.type.name, ())},
    },
    "CAST": lambda layer: {"to": layer.to_type.name},
    "CONCATENATION": lambda layer: {"axis": layer.axis, "inputs": layer.num_inputs},
    "CONVOLUTION": _convolution,
    "DECONVOLUTION": _convolution,
    "DEQUANTIZE": _quantization,
    "ELEMENTWISE": lambda layer: {"function": layer.op.name},
    "GATHER": lambda layer: {"axis": layer.axis, "mode": layer.mode.name},
    "LRN": lambda layer: {
        "window": layer.window_size,
        "alpha": layer.alpha,
        "beta": layer.beta,
        "k": layer.k,
    },
    "MATRIX_MULTIPLY": lambda layer: {
        "transpose": tuple(op.name == "TRANSPOSE" for op in (layer.op0, layer.op1)),
    },
    "NORMALIZATION": lambda layer: {
        "axes": read_axes(layer.axes),
        "epsilon": layer.epsilon,
        "groups": layer.num_groups,
    },
    "POOLING": _pooling,
    "QUANTIZE": _quantization,
    "REDUCE": lambda layer: {
        "function": layer.op.name,
        "axes": read_axes(layer.axes),
        "keepdims": layer.keep_dims,
    },
    "RESIZE": _resize,
    "SHUFFLE": _shuffle,
    "SLICE": _slice,
    "SOFTMAX": lambda layer: {"axis": read_axes(layer.axes)[0]},
    "TOPK": lambda layer: {
        "axis": read_axes(layer.axes)[0],
        "function": layer.op.name,
        **({"k": layer.k} if layer.num_inputs == 1 else {}),
    },
    "UNARY": lambda layer: {"function": layer.op.name},
}


def read_parameters(trt: Any, layer: Any) -> dict[str, Any]:
    """Returns the settings of a layer of an INetworkDefinition, by edgekit's names."""
    kind = layer.type.name
    if kind not in _READERS:
        return {}
    layer.__class__ = getattr(trt, _CLASSES[kind])
    return _READERS[kind](layer)


def parsed_form(kind: str, op: str, params: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """A layer of edgekit's as the parser writes it, before the builder changes it.

    The builder makes a convolution of a product by weights, and a scale of arithmetic with a
    constant (``edgekit.network.lowering``).

    Returns:
        Kind and parameters of each layer.
    """
    if kind == "CONVOLUTION" and params.get("gemm"):
        product: list[tuple[str, dict[str, Any]]] = [("MATRIX_MULTIPLY", {})]
        return product + [("ELEMENTWISE", {"function": "SUM"})] * bool(params["bias"])
    if kind == "SCALE" and "function" in params:
        return [("ELEMENTWISE", {"function": params["function"]})]
    named = {key: params[key] for key in OURS.get(kind, ()) if key in params}
    if "to" in named:
        named["to"] = type_name(named["to"])
    if "strides" in named:
        named["strides"] = _strides(params["sizes"], named["strides"])
    if kind == "ACTIVATION":
        used = ("function", *_USED.get(named["function"], ()))
        named = {key: value for key, value in named.items() if key in used}
    return [(kind, named)]


def type_name(dtype: str) -> str:
    """TensorRT's name of a NumPy type; the NumPy name where TensorRT has none."""
    return _TYPES.get(dtype, dtype)


def same_value(ours: Any, theirs: Any) -> bool:
    """Returns True if two parameters agree; floats are compared in FP32."""
    if isinstance(ours, tuple) and isinstance(theirs, tuple):
        pairs = zip(ours, theirs, strict=False)
        return len(ours) == len(theirs) and all(same_value(a, b) for a, b in pairs)
    if isinstance(ours, float) or isinstance(theirs, float):
        return bool(np.isclose(float(ours), float(theirs), rtol=1e-6, atol=0))
    return bool(ours == theirs)
