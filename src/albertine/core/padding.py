"""The outer edges: padded (B, L) tensors as other programs have them, to packed batches and back."""

from __future__ import annotations

import torch
from torch import Tensor

from albertine.core.packing import Packed
from albertine.errors import InputError


def from_padded(
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    token_type_ids: Tensor | None = None,
    *,
    vocab_size: int | None = None,
    type_vocab_size: int | None = None,
    max_positions: int | None = None,
) -> tuple[Packed, Tensor]:
    """Drop the padding of a Hugging Face-shaped batch.

    Args:
        input_ids: (B, L). token_type_ids: (B, L); default 0.
        attention_mask: (B, L), 1 for real tokens, anywhere in the row, and 0 for padding, in any type of
            numbers; default all real.
        vocab_size, type_vocab_size, max_positions: rows of the tables that will be read; None is not checked.
            What padding holds never is.

    Returns:
        The packed batch, positions being the columns the tokens stood in, and the flat index (T,) into B·L
        of each token, for `unpack`. Every row must hold at least one real token.

    Raises:
        InputError: no sequence, shapes that differ, a mask of other numbers or without a token, ids that are
            no whole numbers, an id, segment or column outside its table. An accelerator would answer the
            last by an assertion that ends the process.
    """
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
    for name, tensor in (("attention_mask", mask), ("token_type_ids", types)):
        if tensor.shape != input_ids.shape or input_ids.dim() != 2:
            raise InputError(
                f"{name} has the shape {tuple(tensor.shape)} and input_ids {tuple(input_ids.shape)}",
                remedy="Give both as (batch, length)",
            )
    if input_ids.is_floating_point():
        raise InputError(f"input_ids are {input_ids.dtype}", remedy="Give the whole numbers of a tokenizer")
    real = mask != 0
    lengths = real.sum(1)
    *sizes, honest = torch.cat([lengths, (real == mask).all().view(1)]).tolist()
    if not honest:
        raise InputError(
            "attention_mask has values other than 0 and 1",
            remedy="Give 1 for every token that is to be read and 0 for padding, not scores to be added",
        )
    if not sizes:
        raise InputError("the batch has no sequence", remedy="Give at least one row of input_ids")
    if 0 in sizes:
        raise InputError("attention_mask leaves a sequence without a token", remedy="Leave that row out")
    index = real.reshape(-1).nonzero().squeeze(1)
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=input_ids.device)
    offsets[1:] = lengths.cumsum(0)
    packed = Packed(
        input_ids.reshape(-1)[index].long(),
        types.reshape(-1)[index].long(),
        index % input_ids.shape[1],
        offsets,
        tuple(sizes),
    )
    _check_tables(packed, vocab_size, type_vocab_size, max_positions)
    return packed, index


def _check_tables(
    packed: Packed, vocab_size: int | None, type_vocab_size: int | None, max_positions: int | None
) -> None:
    """That every id, segment and position is in its table, by one transfer from the device."""
    columns = (packed.input_ids, packed.token_type_ids, packed.position_ids)
    ends = torch.stack([torch.stack(torch.aminmax(column)) for column in columns]).tolist()
    for (least, most), rows, name in zip(
        ends[:2], (vocab_size, type_vocab_size), ("input_ids", "token_type_ids"), strict=True
    ):
        if rows is not None and not 0 <= least <= most < rows:
            odd = least if least < 0 else most
            raise InputError(
                f"{name} holds {odd}, and the model's table has the rows 0 to {rows - 1}",
                remedy="Encode the text with the model's own tokenizer",
            )
    # A sequence that is itself too long is the encoder's to refuse.
    if max_positions is not None and packed.max_length <= max_positions <= ends[2][1]:
        raise InputError(
            f"a token stands in column {ends[2][1]}, "
            f"and the model has the positions 0 to {max_positions - 1}",
            remedy="Pad on the right, or cut off columns that are padding in every row",
        )


def unpack(x_TH: Tensor, index: Tensor, batch: int, length: int) -> Tensor:
    """Put packed rows back into a padded (B, L, …) tensor, zeros where there was padding."""
    out = x_TH.new_zeros(batch * length, *x_TH.shape[1:])
    return out.index_copy(0, index, x_TH).view(batch, length, *x_TH.shape[1:])
