"""Scores of a model on held-out batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.model import Model, evaluating
from albertine.model.segment_memory import Memory
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.stream_batch import StreamBatch
from albertine.objectives.stream_losses import read_batch

NAMES = ("mlm", "mask", "sentence", "causal", "sentence_first", "sentence_second", "ponder")
ALWAYS = NAMES[:4]
NO_SUMS = torch.zeros(3, dtype=torch.float64, device="cpu")


@torch.no_grad()
def score_batches(
    model: Model,
    batches: Sequence[PretrainingBatch],
    *,
    device: torch.device | str = "cpu",
    add_up: Callable[[Tensor], Tensor] = lambda sums: sums,
    poll: Callable[[], None] = lambda: None,
    by_order: bool = False,
) -> dict[str, float]:
    """Mean loss and accuracy of each part over `batches`, in evaluation mode.

    Args:
        model: has `pondering_forward`.
        batches: this process' share of the held-out batches, each computed at its own `depth` or `loops`;
            those of part "causal" beside the others.
        add_up: sums a float64 vector over all processes.
        poll: called between batches, so that signals are handled.
        by_order: also the accuracies on pairs of each label.

    Returns:
        `mlm_loss` (nats per predicted token), `mlm_accuracy` over all predicted tokens; `mask_loss` and
        `mask_accuracy` over those shown as [MASK]; `cosine`, the mean over all pairs of predicted tokens of
        the cosine between their final hidden states, near 1 where a model has the same prediction for every
        token; `sentence_loss`, `sentence_accuracy` where the model has a sentence head, and with `by_order`
        `sentence_first_accuracy` (label 0: in order, or truly next) and `sentence_second_accuracy`; and
        `mean_steps` over all tokens, of an encoder that halts; all these without causal batches, which have
        `causal_loss` and `causal_accuracy` over next tokens. All are host numbers that do not depend on the
        split into batches and processes.
    """
    sums = torch.zeros(len(NAMES), 3, dtype=torch.float64)
    directions = torch.zeros(model.config.hidden_size, dtype=torch.float64)
    with evaluating(model), _rows_of_head(model) as states:
        for batch in batches:
            poll()
            sums += _sums(model, batch.to(device))
            rows_PH = states.pop()
            if batch.part == "mlm":
                directions += _unit(rows_PH).sum(0).double().cpu()
    total = add_up(torch.cat([sums.flatten(), directions]))
    sums, directions = total[: sums.numel()].view_as(sums), total[sums.numel() :]
    scores: dict[str, float] = {}
    for name, (loss, correct, count) in zip(NAMES, sums.tolist(), strict=True):
        if count and name == "ponder":
            scores["mean_steps"] = loss / count
        elif count and (by_order or name in ALWAYS):
            scores[f"{name}_loss"] = loss / count
            scores[f"{name}_accuracy"] = correct / count
    if (count := float(sums[0, 2])) > 1:
        # Σ over i ≠ j of u_i·u_j is |Σ u|² - n, without computing the pairs.
        scores["cosine"] = (float(directions.square().sum()) - count) / (count * (count - 1))
    return scores


@torch.no_grad()
def score_streams(
    model: Model,
    batches: Sequence[StreamBatch],
    *,
    memory: int,
    reach: int | None = None,
    device: torch.device | str = "cpu",
    add_up: Callable[[Tensor], Tensor] = lambda sums: sums,
    poll: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Mean loss and accuracy over consecutive segments of streams, in evaluation mode, from an empty memory.

    Args:
        batches: this process' share, all of the same streams, in the order of the text.
        memory: tokens of a sequence that its next segment attends to; more than in training is
            Transformer-XL's evaluation (1901.02860, section 3.2), with short segments, so that every token
            is near the end of its context.
        reach: attention span of every token, wherever it is in its segment; see `Segments`.
        add_up, poll: see `score_batches`.

    Returns:
        `mlm_loss` (nats per token), `mlm_accuracy`; `mask_loss`, `mask_accuracy` over the tokens that cannot
        be copied: all but those that a masked objective keeps or replaces.
    """
    sums = torch.zeros(2, 3, dtype=torch.float64)
    state: Memory | None = None
    with evaluating(model):
        for batch in (batch.to(device) for batch in batches):
            poll()
            logits, state = read_batch(model, batch, state, memory, reach)
            loss_P, right_P = _losses(logits, batch.mlm_labels)
            masked = batch.when is None and batch.packed.prefix is None
            read_P = batch.packed.input_ids[batch.mlm_positions]
            is_mask_P = read_P == batch.mask_id if masked else torch.ones_like(right_P)
            sums += torch.stack([_sum(loss_P, right_P), _sum(loss_P[is_mask_P], right_P[is_mask_P])])
    scores: dict[str, float] = {}
    for name, (loss, correct, count) in zip(NAMES[:2], add_up(sums).tolist(), strict=True):
        if count:
            scores |= {f"{name}_loss": loss / count, f"{name}_accuracy": correct / count}
    return scores


def _sums(model: Model, batch: PretrainingBatch) -> Tensor:
    """Loss, correct predictions and predictions of every part, float64 (parts, 3); of `ponder` steps and
    tokens."""
    mlm_logits, sentence_logits, ponder = model.pondering_forward(
        batch.packed, batch.mlm_positions, depth=batch.depth, loops=batch.loops
    )
    loss_P, right_P = _losses(mlm_logits, batch.mlm_labels)
    found: dict[str, Tensor] = {batch.part: _sum(loss_P, right_P)}
    if batch.part == "mlm":
        read_P = batch.packed.input_ids[batch.mlm_positions]
        is_mask_P = torch.zeros_like(right_P) if batch.mask_id is None else read_P == batch.mask_id
        found["mask"] = _sum(loss_P[is_mask_P], right_P[is_mask_P])
        if (labels := batch.sentence_labels) is not None:
            if sentence_logits is None:
                raise ValueError("the batch has sentence labels and the model no sentence head")
            loss_S, right_S = _losses(sentence_logits, labels)
            parts = {"sentence": labels >= 0, "sentence_first": labels == 0, "sentence_second": labels == 1}
            found |= {name: _sum(loss_S[chosen], right_S[chosen]) for name, chosen in parts.items()}
        if ponder is not None:
            found["ponder"] = _sum(ponder.steps, torch.zeros(batch.num_tokens))
    return torch.stack([found.get(name, NO_SUMS) for name in NAMES])


def _losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Loss in nats and correctness of every prediction, (P,) each."""
    scores = F.log_softmax(logits, dim=-1, dtype=torch.float32)
    return F.nll_loss(scores, labels, reduction="none", ignore_index=-100), scores.max(-1).indices == labels


def _sum(loss: Tensor, right: Tensor) -> Tensor:
    numbers = [float(loss.double().sum()), float(right.sum()), float(len(loss))]
    return torch.tensor(numbers, dtype=torch.float64)


def _unit(states_PH: Tensor) -> Tensor:
    return F.normalize(states_PH.float(), dim=-1)


@contextmanager
def _rows_of_head(model: nn.Module) -> Iterator[list[Tensor]]:
    """Records the inputs (P, H) of the masked-LM head, the only rows that the last layer computes."""
    seen: list[Tensor] = []
    handle = model.get_submodule("mlm").register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()
