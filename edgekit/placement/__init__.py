"""The placement of one network's layers, and its reasons: costs, the solver's problem, plans.
Start with ``place`` in ``placing``, which returns a ``Plan`` (``plan``). ``check_model`` in
``check`` judges a model and predicts TensorRT's own placement, without a configuration.
"""
