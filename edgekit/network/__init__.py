"""ONNX models in: reading, checking, static shapes, folded constants, and the layers that
TensorRT makes of them. Start with ``load`` in ``loading.load``, which returns a ``Model``;
``lowering.layers.layers`` makes a ``Network`` of layers of it.
"""
