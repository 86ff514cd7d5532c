"""Initial weights, a function of (seed, parameter name), so that an additional head changes no other
weight."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from albertine.core.randomness import isolated_torch_rng, torch_generator
from albertine.model.config import EncoderConfig
from albertine.model.embeddings import Embeddings

WIDE = 0.15
HALTING_BIAS = 1.0
"""Initial bias of a halting unit, as in the reference code: probabilities begin at .73, so positions halt in
their second step."""


class IsolatedInit(type):
    """The type of what is built apart from a program's own settings of torch (`randomness.apart`): parameters
    are float32 whatever its default format, and its generators stay as they were, although torch fills every
    layer by them before `initialize` does."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        with isolated_torch_rng():
            return super().__call__(*args, **options)


def initialize(model: nn.Module, config: EncoderConfig, seed: int, *, skip: str | None = None) -> None:
    """Initialise every parameter in place, except those whose name begins with `skip`.

    Matrices and embeddings: normal with sigma `initializer_range`, cut at two sigma in the Google semantics
    (google-research/albert, `modeling.py`), uncut and with a zero padding row in those of transformers.
    Biases 0, LayerNorm scale 1 and shift 0; 0 also where `is_zero_at_first`.
    """
    scales = {id(norm.weight) for norm in model.modules() if isinstance(norm, nn.LayerNorm)}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if skip is not None and name.startswith(skip):
                continue
            if name == "lm.query":
                limit = (6 / (1 + len(parameter))) ** 0.5  # Glorot, as in XLNet's code
                drawn = torch_generator(seed, f"init/{name}")
                values = torch.rand(parameter.shape, generator=drawn, device="cpu")
                parameter.copy_(limit * (2 * values - 1))
            elif is_zero_at_first(name):
                parameter.zero_()
            elif parameter.ndim >= 2:
                _fill(parameter, config, torch_generator(seed, f"init/{name}"))
            elif id(parameter) in scales or name.endswith(".scale"):
                parameter.fill_(1.0)
            elif name.endswith("halting.bias"):
                parameter.fill_(HALTING_BIAS)
            else:
                parameter.zero_()
            if name.endswith("embeddings.word.weight") and config.initialization == "normal":
                parameter[config.pad_token_id].zero_()


def is_zero_at_first(name: str) -> bool:
    """Whether a matrix of this name is initialised to zero: B of a low-rank addition, which then adds
    nothing, and the weight of a head gate, which then is the same for all tokens."""
    return name.endswith((".up", ".gate.weight"))


def zero_output_projections(encoder: nn.Module) -> None:
    """Set the weights of the output projections of all attention and feed-forward blocks to zero, so that
    every layer of a pre-norm encoder begins as the identity (RecGPT, modded-nanogpt)."""
    with torch.no_grad():
        for part in (encoder.attention, encoder.feed_forward):
            for block in cast(Iterable[nn.Module], part):
                cast(nn.Linear, block.output).weight.zero_()


def widen_embeddings(tables: Embeddings, initializer_range: float, sigma: float = WIDE) -> None:
    """Scale the embedding tables of a new model to the standard deviation `sigma`, and initialise positions
    with sinusoids (docs/decisions/010).

    Their sum is normalised, so only their proportion matters. From the reference's
    0.02 the word vectors, which are the output layer too, grow past the positions within a few hundred
    updates, and a narrow model then loses the positions.
    """
    with torch.no_grad():
        for table in (tables.word, tables.token_type):
            if table is not None:
                table.weight.mul_(sigma / initializer_range)
        if tables.position is not None:
            tables.position.weight.copy_(sigma * 2**0.5 * sinusoids(*tables.position.weight.shape))


def sinusoids(positions: int, width: int) -> Tensor:
    """sin and cos of position / 10000^(2i/width) in turn, (positions, width) (Vaswani et al. 2017, 3.5)."""
    pairs = torch.arange(0, width, 2, dtype=torch.float32)
    angles = torch.arange(positions)[:, None] * 10000 ** (-pairs / width)
    return torch.stack([angles.sin(), angles.cos()], 2).flatten(1)[:, :width]


def _fill(parameter: Tensor, config: EncoderConfig, generator: torch.Generator) -> None:
    # On the CPU whatever the device, so that a seed means the same weights everywhere.
    values = torch.empty(parameter.shape, device="cpu")
    sigma = config.initializer_range
    if config.initialization == "normal":
        values.normal_(0.0, sigma, generator=generator)
    else:
        nn.init.trunc_normal_(values, 0.0, sigma, -2 * sigma, 2 * sigma, generator=generator)
    parameter.copy_(values)
