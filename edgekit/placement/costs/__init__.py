"""The cost model: start with ``CostModel`` in ``model``."""
