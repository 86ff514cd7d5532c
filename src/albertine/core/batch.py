"""Packed batches: the real tokens of all sequences end to end, and offsets of the sequences.

Shape letters, used as suffixes everywhere: T packed tokens · S sequences · B batch · L length · H hidden · E
embedding · N heads · D head size · F feed-forward · V vocabulary · P predicted positions.

Padding exists only at the interfaces to other programs: `from_padded` and `to_padded`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from albertine.errors import InputError


@dataclass(frozen=True)
class Packed:
    """A batch without padding.

    Attributes:
        input_ids: token ids, int64 (T,).
        token_type_ids: segment ids, int64 (T,).
        position_ids: position of each token in its own sequence, int64 (T,).
        cu_seqlens: offsets of the sequences, int32 (S+1,), first 0, last T.
        lengths: of the sequences, as Python integers, so that no forward pass has to wait for the device.
        prefix: tokens of each sequence that are its source. Source tokens attend to the source; the target
            tokens after it attend to the source and causally to the target (UniLM, Dong et al. 2019, 2.3).
            None: every token attends to its whole sequence.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    lengths: tuple[int, ...]
    prefix: tuple[int, ...] | None = None

    @property
    def num_tokens(self) -> int:
        return self.input_ids.shape[0]

    @property
    def num_sequences(self) -> int:
        return len(self.lengths)

    @property
    def max_length(self) -> int:
        return max(self.lengths, default=0)

    @property
    def first_tokens(self) -> Tensor:
        """Row of the first token of every sequence, int64 (S,)."""
        return self.cu_seqlens[:-1].long()

    @property
    def last_tokens(self) -> Tensor:
        """Row of the last token of every sequence, int64 (S,)."""
        return self.cu_seqlens[1:].long() - 1

    def to(self, device: torch.device | str) -> Packed:
        return replace(
            self,
            input_ids=self.input_ids.to(device, non_blocking=True),
            token_type_ids=self.token_type_ids.to(device, non_blocking=True),
            position_ids=self.position_ids.to(device, non_blocking=True),
            cu_seqlens=self.cu_seqlens.to(device, non_blocking=True),
        )


def pack(
    sequences: Sequence[np.ndarray | Sequence[int]],
    token_type_ids: Sequence[np.ndarray | Sequence[int]] | None = None,
    prefix: Sequence[int] | None = None,
) -> Packed:
    """Pack sequences of token ids. Segment ids default to 0; positions count from 0 in each sequence."""
    lengths = tuple(len(s) for s in sequences)
    if not lengths or min(lengths) == 0:
        raise ValueError("a packed batch needs at least one sequence and no empty one")
    ids = np.concatenate([np.asarray(s, dtype=np.int64) for s in sequences])
    types = (
        np.zeros_like(ids)
        if token_type_ids is None
        else np.concatenate([np.asarray(t, dtype=np.int64) for t in token_type_ids])
    )
    if token_type_ids is not None and tuple(map(len, token_type_ids)) != lengths:
        raise ValueError("segment ids and token ids differ in length")
    if prefix is not None and not all(1 <= p <= n for p, n in zip(prefix, lengths, strict=True)):
        raise ValueError("a source has at least one token, and no more than its sequence")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    positions = np.arange(ids.size) - np.repeat(offsets[:-1], lengths)
    return Packed(
        torch.from_numpy(ids),
        torch.from_numpy(types),
        torch.from_numpy(positions),
        torch.from_numpy(offsets),
        lengths,
        None if prefix is None else tuple(prefix),
    )


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
        attention_mask: (B, L), 1 for real tokens, anywhere in the row, and 0 for padding, of any dtype;
            default all real.
        vocab_size, type_vocab_size, max_positions: rows of the embedding tables; None: not checked. Ids of
            padding are never checked.

    Returns:
        The packed batch, whose positions are the columns of the tokens, and the flat index (T,) of each token
        into B·L, for `to_padded`.

    Raises:
        InputError: no sequence, a row without a real token, different shapes, a mask with other values, ids
            that are not integers, or an id, segment or column outside its table. On a GPU the last would
            fail an assertion that ends the process.
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
    *sizes, binary = torch.cat([lengths, (real == mask).all().view(1)]).tolist()
    if not binary:
        raise InputError(
            "attention_mask has values other than 0 and 1",
            remedy="Give 1 for every real token and 0 for padding, not scores to be added",
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
    """Check that ids, segments and positions are in their tables, with one transfer from the device."""
    columns = (packed.input_ids, packed.token_type_ids, packed.position_ids)
    ends = torch.stack([torch.stack(torch.aminmax(column)) for column in columns]).tolist()
    for (least, most), rows, name in zip(
        ends[:2], (vocab_size, type_vocab_size), ("input_ids", "token_type_ids"), strict=True
    ):
        if rows is not None and not 0 <= least <= most < rows:
            wrong = least if least < 0 else most
            raise InputError(
                f"{name} holds {wrong}, and the model's table has the rows 0 to {rows - 1}",
                remedy="Encode the text with the model's own tokenizer",
            )
    # Sequences longer than max_positions are refused by the encoder.
    if max_positions is not None and packed.max_length <= max_positions <= ends[2][1]:
        raise InputError(
            f"a token stands in column {ends[2][1]}, "
            f"and the model has the positions 0 to {max_positions - 1}",
            remedy="Pad on the right, or cut off columns that are padding in every row",
        )


def to_padded(x_TH: Tensor, index: Tensor, batch: int, length: int) -> Tensor:
    """Scatter packed rows into a padded (B, L, …) tensor, zeros at padding."""
    out = x_TH.new_zeros(batch * length, *x_TH.shape[1:])
    return out.index_copy(0, index, x_TH).view(batch, length, *x_TH.shape[1:])
