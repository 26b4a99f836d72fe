"""The TensorRT layers of each ONNX node, as its parser and builder create them. Start with
``layers`` in ``layers``; it calls one module for each family of operators.
"""
