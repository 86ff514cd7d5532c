"""SHA-256 digest of the weights of a model."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn


def tensor_bytes(tensor: Tensor) -> bytes:
    """The bytes of a tensor, in order."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def weights_digest(model: nn.Module, about: bytes = b"") -> str:
    """SHA-256 over `about` and all weights of a model with their names."""
    content = hashlib.sha256(about)
    for name, tensor in sorted(model.state_dict().items()):
        content.update(name.encode())
        content.update(tensor_bytes(tensor))
    return content.hexdigest()
