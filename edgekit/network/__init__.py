"""ONNX models: reading, checking, static shapes, constant folding, and lowering to TensorRT layers.

Start with ``load`` in ``loading.load``, which returns a ``Model``; ``lowering.layers.layers``
converts it into a ``Network`` of layers.
"""
