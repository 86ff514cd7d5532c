"""Calls with padded batches in a training loop of one's own: logits, the checks of labels, and the loss, by
family. A family registers its class (`kind_settings.Registration.padded`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed, from_padded, to_padded
from albertine.errors import InputError
from albertine.model.answerability_head import Beam, JointAnswer
from albertine.model.crf import CrfTagger
from albertine.model.early_exit import EarlyExits
from albertine.model.task_model import TaskModel
from albertine.objectives.losses import Part
from albertine.tasks.encoded import IGNORED, TaskBatch
from albertine.tasks.family import Family


class TaskOutput(NamedTuple):
    """The result of a `TrainableTask`; a tuple whose first two members are loss and logits.

    Attributes:
        loss: float32 scalar with gradient, a mean over predictions; None without labels.
        logits: float32; classification (B, classes); a score (B,) as the head computes it, before any
            sigmoid; multiple choice (B, options), minus infinity at options whose mask is all 0; tags
            (B, L, tags), zeros at padding; answers (B, L, 2) of start and end, minus infinity at padding;
            answers that may be missing (B,), the logit that there is none; similarity (B,), the cosines, or
            None of single texts.
        vectors: of a similarity model, (B, 2, H) or (B, H).
        spans: of a model of answers that may be missing, called without positions: the best spans, with
            columns of `input_ids` as starts and ends.
    """

    loss: Tensor | None
    logits: Tensor | None
    vectors: Tensor | None = None
    spans: Beam | None = None


class PaddedBatch(NamedTuple):
    """`input_ids`, `attention_mask` and `token_type_ids` of one shape."""

    ids: Tensor
    mask: Tensor
    types: Tensor

    @property
    def real(self) -> Tensor:
        """Whether a column holds a token, bool."""
        return self.mask != 0


class PaddedFamily(ABC):
    """The call of a tuned model with padded batches.

    Attributes:
        label_names: of the arguments that it learns from. dims: allowed numbers of dimensions of `input_ids`.
        shape: that of `input_ids`, in words.
    """

    label_names: ClassVar[frozenset[str]] = frozenset({"labels"})
    dims: ClassVar[tuple[int, ...]] = (2,)
    shape: ClassVar[str] = "(batch, length)"

    def __init__(self, model: TaskModel, family: Family) -> None:
        self.model, self.family = model, family

    @abstractmethod
    def outputs(self, batch: PaddedBatch, labels: Mapping[str, Any]) -> TaskOutput:
        """The output of a batch, with a loss where there are labels.

        Args:
            labels: all of `label_names`, or empty.

        Raises:
            InputError: labels do not fit the batch or the model.
        """

    def packed(self, ids: Tensor, mask: Tensor | None, types: Tensor | None) -> tuple[Packed, Tensor]:
        """A packed batch whose positions count from 0 in each row, wherever its padding is: those that the
        model was tuned with. The index is that of `from_padded`."""
        base = self.model.base
        packed, index = from_padded(
            ids,
            mask,
            types,
            vocab_size=base.config.vocab_size,
            type_vocab_size=base.encoder.embeddings.num_segments,
        )
        sizes = torch.tensor(packed.lengths, device=ids.device)
        starts = packed.first_tokens.repeat_interleave(sizes, output_size=packed.num_tokens)
        positions = torch.arange(packed.num_tokens, device=ids.device) - starts
        return replace(packed, position_ids=positions), index

    def loss(
        self,
        logits: Tensor,
        packed: Packed,
        targets: Tensor,
        rows: tuple[int, ...],
        count: int,
        every: Tensor | None = None,
    ) -> Tensor:
        """The mean loss of the family over `count` predictions, from the output of its model; of a model with
        early exits from that after every layer."""
        batch = TaskBatch(packed, targets, rows, count)
        return _mean(self.family.part(_Computed(self.model, logits, every), batch), count)


class PaddedTexts(PaddedFamily):
    """Classes and scores of texts."""

    def outputs(self, batch: PaddedBatch, labels: Mapping[str, Any]) -> TaskOutput:
        packed, _ = self.packed(*batch)
        every: Tensor | None = None
        if labels and isinstance(self.model, EarlyExits):  # whose loss is that of all layers
            every = self.model.every_logits(packed)
        logits: Tensor = self.model(packed) if every is None else every[-1]
        kind = self.family.settings["kind"]
        shown = logits.squeeze(-1) if kind == "score" else logits
        if not labels:
            return TaskOutput(None, shown)
        shape = tuple(logits.shape) if kind == "multi" else (len(logits),)
        targets = _labels(labels["labels"], shape, logits, whole=kind == "single")
        count = len(targets)
        if kind == "single":
            count = _in_range(targets, logits.shape[1])
        elif kind == "multi":
            _allowed(targets, (targets == 0) | (targets == 1), "a class is 0 or 1")
        else:
            _allowed(targets, targets.isfinite(), "a score is a finite number")
        return TaskOutput(self.loss(logits, packed, targets, (1,) * len(logits), count, every), shown)


class PaddedOptions(PaddedFamily):
    """Multiple choice: a row an option."""

    dims, shape = (3,), "(batch, options, length)"

    def outputs(self, batch: PaddedBatch, labels: Mapping[str, Any]) -> TaskOutput:
        count, options, length = batch.ids.shape
        there = batch.real.any(-1)
        if not there.any(-1).all():
            raise InputError(
                "attention_mask leaves an example without an option", remedy="Leave that one out"
            )
        flat = there.reshape(-1).nonzero().squeeze(1)
        packed, _ = self.packed(*(x.reshape(-1, length)[flat] for x in batch))
        logits: Tensor = self.model(packed)
        table = logits.new_full((count * options,), float("-inf"))
        shown = table.index_copy(0, flat, logits.squeeze(-1)).view(count, options)
        if not labels:
            return TaskOutput(None, shown)
        targets = _labels(labels["labels"], (count,), logits, whole=True)
        _in_range(targets, options, ignored=False)
        if not there.gather(1, targets[:, None]).all():
            raise InputError("labels names an option whose attention_mask is all 0")
        among = there.cumsum(1).gather(1, targets[:, None]).squeeze(1) - 1  # of those that exist
        sizes = tuple(there.sum(1).tolist())
        return TaskOutput(self.loss(logits, packed, among, sizes, count), shown)


class PaddedVectors(PaddedFamily):
    """Similarity: two rows a pair; without labels also single texts."""

    dims, shape = (2, 3), "(batch, 2, length)"

    def outputs(self, batch: PaddedBatch, labels: Mapping[str, Any]) -> TaskOutput:
        ids = batch.ids
        pairs = ids.dim() == 3
        if (pairs and ids.shape[1] != 2) or (labels and not pairs):
            raise InputError(
                f"input_ids has the shape {tuple(ids.shape)}",
                remedy="Give pairs of texts as (batch, 2, length)",
            )
        packed, _ = self.packed(*(x.reshape(-1, ids.shape[-1]) for x in batch))
        vectors: Tensor = self.model(packed)
        if not pairs:
            return TaskOutput(None, None, vectors)
        both = vectors.view(ids.shape[0], 2, -1)
        cosines = F.cosine_similarity(both[:, 0], both[:, 1], dim=-1)
        if not labels:
            return TaskOutput(None, cosines, both)
        targets = _labels(labels["labels"], (len(both),), vectors, whole=False)
        _allowed(targets, (targets >= 0) & (targets <= 1), "a similarity is from 0 to 1")
        loss = self.loss(vectors, packed, targets, (2,) * len(both), len(both))
        return TaskOutput(loss, cosines, both)


class PaddedTags(PaddedFamily):
    """A tag for every token."""

    def outputs(self, batch: PaddedBatch, labels: Mapping[str, Any]) -> TaskOutput:
        packed, index = self.packed(*batch)
        logits: Tensor = self.model(packed)
        real = batch.real
        rows, length = real.shape
        shown = to_padded(logits, index, rows, length)
        if not labels:
            return TaskOutput(None, shown)
        targets = _labels(labels["labels"], (rows, length), logits, whole=True)
        if (targets[~real] != IGNORED).any():
            raise InputError("labels names tags of padding", remedy=f"Give {IGNORED} there")
        flat = targets.reshape(-1)[index]
        count = _in_range(flat, logits.shape[1])
        model = self.model
        if isinstance(model, CrfTagger):
            scored = model.inner(packed)
            if (flat[scored] == IGNORED).any():
                raise InputError(
                    f"labels has {IGNORED} at a token of the text, and a CRF scores whole sequences",
                    remedy="Give a tag for every token but the special ones",
                )
            flat = flat.where(scored, IGNORED)
            count = int(scored.sum())
        return TaskOutput(self.loss(logits, packed, flat, (1,) * rows, count), shown)


class PaddedAnswers(PaddedFamily):
    """Answers from passages, by the columns of their first and last token."""

    label_names = frozenset({"start_positions", "end_positions"})

    def outputs(self, batch: PaddedBatch, labels: Mapping[str, Any]) -> TaskOutput:
        packed, index = self.packed(*batch)
        real = batch.real
        rows, length = real.shape
        targets = None
        if labels:
            names = ("start_positions", "end_positions")
            ends = [_positions(_labels(labels[n], (rows,), real, True, n), real, n) for n in names]
            targets = torch.stack(ends, 1)
        if not isinstance(self.model, JointAnswer):
            logits: Tensor = self.model(packed)
            empty = logits.new_full((rows * length, 2), float("-inf"))
            shown = empty.index_copy(0, index, logits).view(rows, length, 2)
            if targets is None:
                return TaskOutput(None, shown)
            return TaskOutput(self.loss(logits, packed, targets, (1,) * rows, rows), shown)
        if targets is not None:
            found = self.model.learn(packed, targets[:, 0])
            as_model = SimpleNamespace(learn=lambda *_: found, base=self.model.base)
            part = self.family.part(as_model, TaskBatch(packed, targets, (1,) * rows, rows))
            return TaskOutput(_mean(part, rows), found.impossible)
        beam = Beam.of(self.model(packed))
        columns = (~real).long().argsort(dim=1, stable=True)  # of the tokens of each row, in their order
        first, last = (columns.gather(1, x.clamp(max=length - 1)) for x in (beam.starts, beam.ends))
        return TaskOutput(None, beam.impossible, spans=beam._replace(starts=first, ends=last))


class _Computed:
    """A model whose output for one batch was computed before, for `Family.part`."""

    def __init__(self, model: TaskModel, output: Tensor, every: Tensor | None = None) -> None:
        self._model, self._output, self._every = model, output, every

    def __call__(self, packed: Packed) -> Tensor:
        return self._output

    def every_logits(self, packed: Packed) -> Tensor | None:
        return self._every

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _mean(part: Part, count: int) -> Tensor:
    """The mean loss over `count` predictions; zero if there are none."""
    return part.loss_sum / max(1, count)


def _labels(given: Any, shape: tuple[int, ...], like: Tensor, whole: bool, name: str = "labels") -> Tensor:
    """Labels on the device of `like`, int64 if they are whole numbers, else float32."""
    try:
        found = torch.as_tensor(given, device=like.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} is no table of numbers: {given!r:.60}",
            remedy="Give numbers; that of a class or tag is its place in the attribute labels of the model",
        ) from error
    if tuple(found.shape) != shape:
        raise InputError(f"{name} has the shape {tuple(found.shape)}", remedy=f"Give it as {shape}")
    if whole and (found.is_floating_point() or found.is_complex()):
        raise InputError(f"{name} is {found.dtype}", remedy="Give whole numbers, int64")
    return found.long() if whole else found.float()


def _in_range(targets: Tensor, count: int, *, ignored: bool = True) -> int:
    """The number of targets that are not ignored.

    Raises:
        InputError: one is not from 0 to `count` - 1.
    """
    learned = targets[targets != IGNORED] if ignored else targets
    if len(learned) and not bool(((learned >= 0) & (learned < count)).all()):
        odd = learned[(learned < 0) | (learned >= count)][0].item()
        raise InputError(f"labels holds {odd}, and the numbers are 0 to {count - 1}")
    return len(learned)


def _allowed(targets: Tensor, fits: Tensor, rule: str) -> None:
    """Raises InputError where a target does not fit the rule."""
    if not bool(fits.all()):
        odd = targets[~fits][0].item()
        raise InputError(f"labels holds {odd:g}, and {rule}", remedy="Leave out texts without a label")


def _positions(columns: Tensor, real: Tensor, name: str) -> Tensor:
    """Columns (B,) of a padded batch as positions among the real tokens of each row."""
    _, length = real.shape
    inside = (columns >= 0) & (columns < length)
    if not bool(inside.all()) or not bool(real.gather(1, columns[:, None]).all()):
        raise InputError(
            f"{name} names a column that holds no token",
            remedy="Give that of [CLS] where the row does not show the answer",
        )
    return real.cumsum(1).gather(1, columns[:, None]).squeeze(1) - 1
