"""The whole zoo."""

from tests.rewriting import zoo_numbers, zoo_shapes
from tests.rewriting.zoo import ZOO

__all__ = ["ZOO", "zoo_numbers", "zoo_shapes"]
