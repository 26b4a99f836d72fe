"""Numerical proof of a step: runs old and new nodes on the same random inputs, in float64 and in
ONNX Runtime. Start with ``prove`` in ``prove``.
"""
