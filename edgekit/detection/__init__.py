"""Recognises the head of a detector by its structure, and proves that edgekit decodes its raw maps
as the network does. Start with ``recognise`` in ``recognise``.
"""
