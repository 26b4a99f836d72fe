"""PyTorch's modules and fixtures, for compiled networks."""

from tests.pytorch.conftest import nets

__all__ = ["nets"]
