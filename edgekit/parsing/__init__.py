"""Whether TensorRT's ONNX parser imports a network, by release (``trt/operators.yaml``)."""
