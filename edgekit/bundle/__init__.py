"""Bundles: everything a board needs of a network, content-addressed, stripped and signed."""

from edgekit._callable import make_callable
from edgekit.bundle._files import read, write
from edgekit.bundle._keys import PublicKey, public_key, refuse_private
from edgekit.bundle._pack import pack, with_weights
from edgekit.bundle._parts import golden_inputs, tensor_io
from edgekit.bundle._push import Pushed, push
from edgekit.bundle._record import rewrite_record
from edgekit.bundle._sign import NAMESPACE, allowed_signers_line, ensure_key, sign
from edgekit.bundle._types import Bundle, Golden, Samples
from edgekit.bundle._zipapp import build_zipapp

__all__ = [
    "NAMESPACE",
    "Bundle",
    "Golden",
    "PublicKey",
    "Pushed",
    "Samples",
    "allowed_signers_line",
    "build_zipapp",
    "ensure_key",
    "golden_inputs",
    "pack",
    "public_key",
    "push",
    "read",
    "refuse_private",
    "rewrite_record",
    "sign",
    "tensor_io",
    "with_weights",
    "write",
]

make_callable(__name__)
