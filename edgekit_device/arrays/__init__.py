"""Arrays with NumPy alone: tensor formats, ONNX files and .npz.
Start with ``pack`` in ``formats``.
"""
