"""Compiles a PyTorch network: exported, placed, built and called like the module. Start with
``compile_network`` in ``network``.
"""
