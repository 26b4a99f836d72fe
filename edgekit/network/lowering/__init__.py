"""The layers of a model: what TensorRT's parser and builder make of each ONNX node. Start with
``layers`` in ``layers``; it calls one module for each family of operators.
"""
