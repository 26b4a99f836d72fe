"""The board's folder: apps, releases, links, locks and the content-addressed blobs.
Start with ``Root`` in ``root``.
"""
