"""Arrays with NumPy alone: tensor formats, ONNX files, .npz, and how far outputs deviate.
Start with ``pack`` in ``formats``.
"""
