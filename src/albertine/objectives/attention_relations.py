"""Divergence of the attention of two encoders: of their attention maps head by head, or of the relations
among queries, keys or values, which need no equal number of heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed
from albertine.errors import SettingsError
from albertine.model.attention import AttentionBlock
from albertine.model.config import EncoderConfig
from albertine.model.encoder import Encoder
from albertine.model.layer_parameters import LayerParameters
from albertine.model.positions.registry import ENCODINGS, with_positions
from albertine.model.rows import Rows


class AttentionInputs(NamedTuple):
    """Queries, keys and values of one layer by heads, each (T, N, D), after rotary positions."""

    queries: Tensor
    keys: Tensor
    values: Tensor


def check_plain_attention(config: EncoderConfig, who: str) -> None:
    """Refuse an encoder whose attention is not softmax(q·kᵀ/√D) of its hidden states.

    Raises:
        SettingsError: with `who` and the reason.
    """
    reasons = {
        f"{config.positions} positions": ENCODINGS[config.positions].adds_scores,
        "signals before every step": (config.position_signal, config.step_signal) != ("none", "none"),
        "an input injection": config.input_injection or "injection" in config.plan.own,
    }
    if found := next((name for name, there in reasons.items() if there), None):
        raise SettingsError(
            f"{who} has {found}, and attention cannot be compared there",
            where="objective.distillation.attention",
            remedy="Set it to 0; soft targets and hidden states are compared all the same",
        )


def attention_inputs(encoder: Encoder, packed: Packed, states: Sequence[Tensor], d: int) -> AttentionInputs:
    """Attention inputs of layer `d`, recomputed from its input `states[d]` (T, H).

    That costs a quarter of a layer, only for compared layers; attention kernels do not return their weights.
    """
    attention = cast(AttentionBlock, encoder.attention[encoder.config.plan.attention[d]])
    own = None if encoder.own is None else cast(LayerParameters, encoder.own[d]).attention
    x_TH = states[d]
    rows = with_positions(Rows.of(packed), encoder.config, x_TH, encoder.training)
    read_TH = attention.sublayer_input(x_TH, own)
    return AttentionInputs(*attention.project(read_TH, read_TH, rows, rows))


def map_divergence(student: AttentionInputs, teacher: AttentionInputs, lengths: Sequence[int]) -> Tensor:
    """KL divergence of the student's attention weights from the teacher's, mean over heads, summed over the
    queries, float32 scalar (MiniLM, Wang et al. 2020, section 3.1). Both have N heads."""
    pairs = (student.queries, student.keys), (teacher.queries, teacher.keys)
    return _divergence(*pairs, lengths)


def relation_divergence(
    student: AttentionInputs, teacher: AttentionInputs, lengths: Sequence[int], heads: int
) -> Tensor:
    """The same for the relations of queries with queries, keys with keys and values with values, the mean of
    the three; all heads of each are concatenated and split into `heads` new ones (MiniLMv2, Wang et al. 2021,
    section 3.1)."""
    found = torch.zeros((), device=student.queries.device)
    for mine, its in zip(student, teacher, strict=True):
        one, other = (x.reshape(len(x), heads, -1) for x in (mine, its))
        found = found + _divergence((one, one), (other, other), lengths)
    return found / len(student)


Pair = tuple[Tensor, Tensor]


def _divergence(student: Pair, teacher: Pair, lengths: Sequence[int]) -> Tensor:
    total = torch.zeros((), device=student[0].device)
    for mine_NLL, its_NLL in zip(_log_weights(student, lengths), _log_weights(teacher, lengths), strict=True):
        total = total + F.kl_div(mine_NLL, its_NLL, reduction="sum", log_target=True) / len(mine_NLL)
    return total


def _log_weights(pair: Pair, lengths: Sequence[int]) -> Iterator[Tensor]:
    """log softmax(a·bᵀ/√D) of every sequence, (N, L, L) float32."""
    for a_LND, b_LND in zip(*(torch.split(x_TND, list(lengths)) for x_TND in pair), strict=True):
        scores_NLL = a_LND.float().transpose(0, 1) @ b_LND.float().permute(1, 2, 0)
        yield F.log_softmax(scores_NLL / a_LND.shape[-1] ** 0.5, dim=-1)
