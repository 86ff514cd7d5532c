"""Initial weights: a function of (seed, parameter name), so that one more head changes no other number."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from albertine.model.config import EncoderConfig
from albertine.randomness import torch_generator


def initialize(model: nn.Module, config: EncoderConfig, seed: int) -> None:
    """Fill every parameter in place (reference sections 1.1 and 1.11).

    Matrices and embeddings: normal with sigma `initializer_range`, cut at two sigma in the Google semantics,
        uncut and
    with a zero padding row in those of transformers. Biases 0, LayerNorm scale 1 and shift 0.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                _fill(parameter, config, torch_generator(seed, f"init/{name}"))
            elif name.endswith("layer_norm.weight"):
                parameter.fill_(1.0)
            else:
                parameter.zero_()
            if name.endswith("embeddings.word.weight") and config.initialization == "normal":
                parameter[config.pad_token_id].zero_()


def _fill(parameter: Tensor, config: EncoderConfig, generator: torch.Generator) -> None:
    # On the CPU whatever the device, so that a seed means the same weights everywhere.
    values = torch.empty(parameter.shape)
    sigma = config.initializer_range
    if config.initialization == "normal":
        values.normal_(0.0, sigma, generator=generator)
    else:
        nn.init.trunc_normal_(values, 0.0, sigma, -2 * sigma, 2 * sigma, generator=generator)
    parameter.copy_(values)
