"""Runs a plan on a CPU in ONNX Runtime with the numerics of the target (FP16 rounding and INT8
scales); measures its accuracy and the cost of INT8 layer by layer. Start with ``build_reference``
in ``build`` and ``run`` in ``run``.
"""
