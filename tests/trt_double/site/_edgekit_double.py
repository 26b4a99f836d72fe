"""Loads the double from the folder above, which is no package of the board's Python."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

_NAME = "_edgekit_trt_double"


def package(part: str) -> Any:
    """Module `part` of the double."""
    if _NAME not in sys.modules:
        folder = Path(__file__).resolve().parent.parent
        spec = importlib.util.spec_from_file_location(
            _NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = made
        spec.loader.exec_module(made)
    return importlib.import_module(f"{_NAME}.{part}")


def become(name: str, flavour: str) -> None:
    """Makes the module that is being imported the double's, where the board has that flavour."""
    if flavour not in os.environ.get("EDGEKIT_TEST_TENSORRT_FLAVOURS", "full").split(","):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.modules[name] = package("double").module(os.environ["EDGEKIT_TEST_TENSORRT"], flavour)
