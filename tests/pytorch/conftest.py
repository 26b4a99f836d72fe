"""PyTorch for tests that need it: imported by the first of them, not while tests are collected."""

import warnings

import pytest


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """The module ``tests.pytorch.nets``, and an empty cache."""
    pytest.importorskip("torch", reason="needs edgekit[torch]")
    pytest.importorskip("onnxscript", reason="needs edgekit[torch]")
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tests.pytorch import nets as modules
    return modules
