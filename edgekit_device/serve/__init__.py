"""A server that keeps a release loaded and answers on a Unix socket (optional).
Start with ``Server`` in ``server``."""
