"""The version of edgekit; nothing else, so that every module can import it."""

__version__ = "0.1.0"
