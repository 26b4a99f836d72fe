"""Brings an app to a bundle, examines it and takes it back when it does not do well.
Start with ``run`` in ``job``; the states are in ``states``.
"""
