"""Brings an app to a bundle, examines it and takes it back when it fails its checks.
Start with ``run`` in ``job``; the states are in ``states``.
"""
