"""PyTorch in: a module, a program of ``torch.export``, a TorchScript file or a factory becomes an
ONNX file with names (``edgekit.export``). Only functions import torch, and only these need the
extra ``edgekit[torch]``. Start with ``export`` in ``export``.
"""
