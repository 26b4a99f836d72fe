"""edgekit: ONNX networks on NVIDIA Jetson boards, on the GPU and on the DLA."""

__version__ = "0.1.0"
__all__ = ["__version__"]
