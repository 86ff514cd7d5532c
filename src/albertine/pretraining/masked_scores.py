"""What the accuracy of a masked objective over all chosen tokens, of which a tenth can be copied, does not
tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.unigram_baseline import Unigram, blind_accuracy


def masked_scores(
    found: Mapping[str, float], unigram: Unigram, batches: Sequence[PretrainingBatch]
) -> dict[str, float]:
    """The scores on [MASK] alone beside what no skill would score, and the `floor` of a model that copies.

    Args:
        found: what judging the model on `batches` told.
    """
    details = {"floor": blind_accuracy(batches, unigram.guess)}
    details |= {name: found[name] for name in ("cosine", "mean_steps") if name in found}
    level = unigram.score_batches(batches, masked=True)
    if level.count:
        details |= {
            "mask_accuracy": found["mask_accuracy"],
            "mask_loss": found["mask_loss"],
            "mask_baseline": level.accuracy,
            "mask_baseline_loss": level.cross_entropy,
            "mask_count": level.count,
            "context_gain": level.cross_entropy - found["mask_loss"],
        }
    return details
