"""A plan on a CPU with the numerics of the target: FP16 rounding and INT8 scales, run by ONNX
Runtime; its accuracy, and what INT8 costs layer by layer. Start with ``build_reference`` in
``build`` and ``run`` in ``run``.
"""
