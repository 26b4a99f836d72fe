"""Recognises the head of a detector by its structure, and proves that edgekit's decoding of its raw
maps equals the network's. Start with ``recognise`` in ``recognise``.
"""
