"""What is wrong with a replacement that a rewrite wrote."""


class MalformedError(Exception):
    """A rewrite wrote a replacement that does not fit: a bug of the rewrite."""


class TooLargeError(Exception):
    """A replacement needs larger constants, or more nodes, than it can save."""
