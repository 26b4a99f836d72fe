"""The fake cuda-python, in the layout that EDGEKIT_TEST_CUDA names."""

import os
import sys

from _edgekit_double import package

_LAYOUT = os.environ.get("EDGEKIT_TEST_CUDA", "new")
if _LAYOUT == "none":
    raise ModuleNotFoundError("No module named 'cuda'", name="cuda")
sys.modules.update(package("fake_driver").modules(_LAYOUT))
