"""The integers of INT8."""

__all__ = ["EXACT_PRODUCTS", "HIGHEST_CODE", "LOWEST_CODE"]

# Codes of activations are -128 to 127, of weights -127 to 127. The TensorRT Developer Guide, of
# implicit and of explicit quantisation alike: xq = roundWithTiesToEven(clip(x / s, -128, 127))
# ("Quantization Schemes"); NVIDIA/TensorRT#1796 on weights. ONNX's QuantizeLinear saturates so
# too. Assumed for the DLA, of which no text says otherwise.
LOWEST_CODE, HIGHEST_CODE = -128, 127
# all partial sums of so many products are exact in float32, whose integers are up to 2**24
EXACT_PRODUCTS = (1 << 24) // (-LOWEST_CODE * HIGHEST_CODE)
