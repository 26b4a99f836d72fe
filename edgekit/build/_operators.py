"""ONNX operators by what their kernels do with INT8."""

__all__ = ["INT8_OPS", "MOVING_OPS", "POINTWISE_OPS", "SELECTING_OPS", "WEIGHTED_OPS"]

WEIGHTED_OPS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_SCALE_OPS = frozenset({"Add", "BatchNormalization", "Mul", "Sub", "Sum"})
_ACTIVATION_OPS = frozenset({"Clip", "LeakyRelu", "PRelu", "Relu"})
POINTWISE_OPS = _SCALE_OPS | _ACTIVATION_OPS
MOVING_OPS = frozenset(
    {
        "Concat", "DepthToSpace", "Dropout", "Flatten", "Identity", "Pad", "Reshape", "Resize",
        "Slice", "SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze", "Upsample",
    }
)  # fmt: skip
_POOLING_OPS = frozenset(
    {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceMean"}
)
# their outputs are some of their inputs' values (or 0), so they stay on an FP16 or INT8 grid
SELECTING_OPS = (MOVING_OPS - {"Pad", "Resize", "Upsample"}) | {
    "GlobalMaxPool", "Max", "MaxPool", "Min", "Relu",
}  # fmt: skip
# operators with INT8 kernels in TensorRT's implicit quantisation, on the GPU and on the DLA
# (NvInfer.h 8.5 to 10.7, layer comments; Softmax, LRN, Sigmoid, Tanh and the rest run in FP16)
INT8_OPS = WEIGHTED_OPS | POINTWISE_OPS | MOVING_OPS | _POOLING_OPS | {"Max", "Min"}
