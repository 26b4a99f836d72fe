"""Errors of a rewrite's replacement."""


class MalformedError(Exception):
    """A rewrite wrote an invalid replacement: a bug of the rewrite."""


class TooLargeError(Exception):
    """A replacement needs larger constants, or more nodes, than it can save."""
