"""A module in the place of NVIDIA's, for the child process that asks the parser."""

from pathlib import Path

from edgekit.parsing import nvidia

_TEXT = """
import os

__version__ = "9.8.7"
print("what a library prints")


class Logger:
    INTERNAL_ERROR = 0

    def __init__(self, level):
        pass


class Builder:
    def __init__(self, logger):
        pass

    def create_network(self, flags):
        return None


class Error:
    def code(self):
        return "INVALID_NODE"

    def desc(self):
        return "Assertion failed:\\n  no such thing"

    def node_name(self):
        return "norm"

    def node_operator(self):
        return "LayerNormalization"


class OnnxParser:
    num_errors = 0

    def __init__(self, network, logger):
        pass

    def get_error(self, number):
        return Error()

    def refuse(self):
        self.num_errors = 2
        return False

    def parse_from_file(self, path):
        with open(path, "rb") as file:
            model = file.read()
        {does}
"""


def write_module(folder: Path, does: str) -> Path:
    """Writes the module into a folder and returns the folder.

    Args:
        folder: To be made.
        does: What ``parse_from_file`` does with ``model``, the file's bytes.
    """
    package = folder / nvidia.MODULE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_TEXT.replace("{does}", does))
    return folder
