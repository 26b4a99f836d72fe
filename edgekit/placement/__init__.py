"""Where each layer of one network runs, and why: costs, the problem for the solver, plans.
Start with ``place`` in ``placing``; what comes out is ``Plan`` in ``plan``. ``check_model`` in
``check`` judges a model and predicts TensorRT's own placement, without a configuration.
"""
