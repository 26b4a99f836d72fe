"""Brings an app to a bundle, examines it and rolls it back if it fails its checks.
Start with ``run`` in ``job``; the states are in ``states``.
"""
