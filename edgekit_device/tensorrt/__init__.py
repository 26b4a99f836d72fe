"""The TensorRT backend: its runtimes (lean, dispatch, full), engines and refit.
Start with ``open_engines`` in ``backend``. ``import tensorrt`` is NVIDIA's package.
"""
