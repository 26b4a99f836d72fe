"""The whole zoo."""

from tests.rewrite import zoo_numbers, zoo_shapes
from tests.rewrite.zoo import ZOO

__all__ = ["ZOO", "zoo_numbers", "zoo_shapes"]
