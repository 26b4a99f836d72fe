"""A PyTorch network, compiled: exported, placed, built and called like the module. Start with
``compile_network`` in ``network``.
"""
