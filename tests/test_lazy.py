"""Packages list the names that they have not imported yet."""

import subprocess
import sys
from importlib import import_module

import pytest

FLOORS = ["network", "targets", "dla", "rewrite", "placement", "report", "pipeline"]


@pytest.mark.parametrize("floor", FLOORS)
def test_dir_lists_what_is_public_and_it_is_there(floor):
    package = import_module(f"edgekit.{floor}")
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing_of_that_name'"):
        package.nothing_of_that_name  # noqa: B018


def test_dir_imports_nothing():
    code = (
        "import sys, edgekit.dla as d; assert 'judge' in dir(d); "
        "print('edgekit.dla._judge' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
