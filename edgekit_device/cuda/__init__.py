"""The GPU and the DLA without TensorRT: CUDA's driver, memory, packing kernels and cuDLA.
Start with ``open_cuda`` in ``driver``.
"""
