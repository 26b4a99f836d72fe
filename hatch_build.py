"""Build hook: an editable install has its bytecode, as any other install has.

pip compiles what it copies, but not a checkout that it links to; where Python may not write
bytecode (PYTHONDONTWRITEBYTECODE, usual in containers), each start would compile it anew.
"""

import compileall
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileEditable(BuildHookInterface):
    """Compiles the packages of a checkout that is installed as a link."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each build; ``version`` is "editable" for ``pip install -e``."""
        if version == "editable":
            for package in ("edgekit", "edgekit_device"):
                compileall.compile_dir(Path(self.root, package), quiet=2)
