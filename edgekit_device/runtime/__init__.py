"""Loads a bundle or release and runs it, and compares outputs with their reference. Start with
``load`` in ``model``.
"""
