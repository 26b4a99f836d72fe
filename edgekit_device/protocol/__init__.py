"""The documents that host and board exchange, and the checks of untrusted JSON.
Start with ``Manifest`` in ``manifest``.
"""
