"""Checks if TensorRT's ONNX parser imports a network, by release (``trt/operators.yaml``). Start
with ``parse_check`` in ``table``, which returns a ``Parse``.
"""
