"""Records of rewrites: stored in the model, verified again, and applied to other weights. Start
with ``record_document`` in ``record``.
"""
