"""A tuned model with its head, called with padded batches in a training loop of one's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed, from_padded, to_padded
from albertine.core.precision import without_autocast
from albertine.errors import InputError, ModelError
from albertine.interop.exported_folder import is_exported
from albertine.interop.heads import task_of
from albertine.interop.huggingface.folders import read_folder
from albertine.interop.model_location import model_folder
from albertine.interop.save_checks import SavableTokenizer
from albertine.model.answerability_head import Beam, JointAnswer
from albertine.model.crf import CrfTagger
from albertine.model.model import Model
from albertine.model.pair_head import Comparer
from albertine.model.task_model import TaskModel
from albertine.objectives.losses import Part
from albertine.tasks.encoded import IGNORED, TaskBatch
from albertine.tasks.families import family_of, in_words, lacks_head, tuned_model, wrong_task_error
from albertine.tasks.family import Family
from albertine.tokenizers.load import check_tokenizer, load_tokenizer

WITHOUT_LABELS = {
    "generate": 'albertine.finetune(task={"kind": "generation"}) or "reading" trains it, Predictor.generate '
    "and Predictor.read run it",
    "relate": 'albertine.finetune(task={"kind": "relations"}) trains it, Predictor.relate runs it',
}
"""Tasks whose training inputs are more than padded rows and labels, with what to use for them."""


class TaskOutput(NamedTuple):
    """What a call of a `TrainableTask` returns; a tuple whose first two members are loss and logits.

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


class TrainableTask(nn.Module):
    """A tuned model with its head. It computes what `Predictor` computes, with gradients.

    Attributes:
        task: "classify", "choose", "tag", "answer" or "embed". model: encoder and head.
        labels: names of the classes or tags in the order of their numbers; empty where there are none.
    """

    def __init__(self, model: TaskModel, family: Family) -> None:
        super().__init__()
        self.model, self.family = model, family
        self.task, self.labels = family.task, family.labels

    @property
    def base(self) -> Model:
        """The encoder, with the pretraining heads that the task uses."""
        return self.model.base

    @without_autocast
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Any = None,
        *,
        start_positions: Any = None,
        end_positions: Any = None,
    ) -> TaskOutput:
        """Logits of a padded batch and, with labels, the loss of the model's task.

        Args:
            input_ids, attention_mask, token_type_ids: (B, L), as a tokenizer pads them, on either side; of
                multiple choice (B, options, L), where an option with a mask of zeros does not exist; of
                similarity (B, 2, L), or (B, L) for vectors alone.
            labels: one class (B,) int64, -100 for a text that is left out of the loss; several classes
                (B, classes), 0 or 1; a score (B,), finite; the number of the right option (B,); tags (B, L),
                -100 where nothing is learned; similarity (B,) from 0 to 1.
            start_positions, end_positions: of answers, instead of labels: columns (B,) of the first and the
                last token; both are that of [CLS] where the text does not answer.

        Raises:
            InputError: tensors that do not fit the model or each other, or labels out of range.
            SettingsError: a row has more tokens than the model has positions.
        """
        given = {"labels": labels, "start_positions": start_positions, "end_positions": end_positions}
        self._check_names({name for name, value in given.items() if value is not None})
        _check_tensors(input_ids, attention_mask, token_type_ids)
        wanted = {"choose": (3,), "embed": (2, 3)}.get(self.task, (2,))
        if input_ids.dim() not in wanted:
            form = {"choose": "(batch, options, length)", "embed": "(batch, 2, length)"}
            raise InputError(
                f"input_ids has the shape {tuple(input_ids.shape)}",
                remedy=f"Give it as {form.get(self.task, '(batch, length)')}",
            )
        if token_type_ids is None and isinstance(self.model, Comparer):
            raise InputError(
                "this model compares two texts, which token_type_ids tells apart",
                remedy="Give token_type_ids: 0 at the tokens of the first text, 1 at those of the second",
            )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        for name, tensor in (("attention_mask", mask), ("token_type_ids", types)):
            if tensor.shape != input_ids.shape:
                shapes = f"{tuple(tensor.shape)} and input_ids {tuple(input_ids.shape)}"
                raise InputError(f"{name} has the shape {shapes}", remedy="Give both in one shape")
        if self.task == "choose":
            return self._choose(input_ids, mask, types, labels)
        if self.task == "embed":
            return self._embed(input_ids, mask, types, labels)
        packed, index = self._packed(input_ids, mask, types)
        if self.task == "answer":
            return self._answer(packed, index, mask != 0, start_positions, end_positions)
        if self.task == "tag":
            return self._tag(packed, index, mask != 0, labels)
        return self._classify(packed, labels)

    @torch.no_grad()
    def tags(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """The tag number of every token (B, L) int64, the best sequence where the model has a CRF; -100 at
        padding.

        Raises:
            ModelError: the model was not tuned to tag. InputError: as `forward`.
        """
        if self.task != "tag":
            raise wrong_task_error(self.task, "tag", Path("model"))
        _check_tensors(input_ids, attention_mask, token_type_ids)
        packed, index = self._packed(input_ids, attention_mask, token_type_ids)
        model = self.model
        found = model.tags(packed) if isinstance(model, CrfTagger) else model(packed).argmax(-1)
        empty = torch.full((input_ids.numel(),), IGNORED, dtype=torch.int64, device=found.device)
        return empty.index_copy(0, index, found).view_as(input_ids)

    def _check_names(self, given: set[str]) -> None:
        own = {"start_positions", "end_positions"} if self.task == "answer" else {"labels"}
        if given - own or 0 < len(given) < len(own):
            raise InputError(
                f"a model tuned to {in_words(self.task)} does not learn from {', '.join(sorted(given))}",
                remedy=f"Give {' and '.join(sorted(own, reverse=True))}",
            )

    def _packed(self, ids: Tensor, mask: Tensor | None, types: Tensor | None) -> tuple[Packed, Tensor]:
        """A packed batch whose positions count from 0 in each row, wherever its padding is: those that the
        model was tuned with. The index is that of `from_padded`."""
        packed, index = from_padded(
            ids,
            mask,
            types,
            vocab_size=self.base.config.vocab_size,
            type_vocab_size=self.base.encoder.embeddings.num_segments,
        )
        sizes = torch.tensor(packed.lengths, device=ids.device)
        starts = packed.first_tokens.repeat_interleave(sizes, output_size=packed.num_tokens)
        places = torch.arange(packed.num_tokens, device=ids.device) - starts
        return replace(packed, position_ids=places), index

    def _loss(
        self, logits: Tensor, packed: Packed, targets: Tensor, rows: tuple[int, ...], count: int
    ) -> Tensor:
        """The mean loss of the family, by what its model computed."""
        batch = TaskBatch(packed, targets, rows, count)
        return _mean(self.family.part(_Computed(self.model, logits), batch), count)

    def _classify(self, packed: Packed, labels: Any) -> TaskOutput:
        logits: Tensor = self.model(packed)
        kind = self.family.settings["kind"]
        shown = logits.squeeze(-1) if kind == "score" else logits
        if labels is None:
            return TaskOutput(None, shown)
        shape = tuple(logits.shape) if kind == "multi" else (len(logits),)
        targets = _labels(labels, shape, logits, whole=kind == "single")
        count = len(targets)
        if kind == "single":
            count = _in_range(targets, logits.shape[1])
        elif kind == "multi":
            _allowed(targets, (targets == 0) | (targets == 1), "a class is 0 or 1")
        else:
            _allowed(targets, targets.isfinite(), "a score is a finite number")
        return TaskOutput(self._loss(logits, packed, targets, (1,) * len(logits), count), shown)

    def _choose(self, ids: Tensor, mask: Tensor, types: Tensor, labels: Any) -> TaskOutput:
        batch, options, length = ids.shape
        there = (mask != 0).any(-1)
        if not there.any(-1).all():
            raise InputError(
                "attention_mask leaves an example without an option", remedy="Leave that one out"
            )
        flat = there.reshape(-1).nonzero().squeeze(1)
        rows = (x.reshape(-1, length)[flat] for x in (ids, mask, types))
        packed, _ = self._packed(*rows)
        logits: Tensor = self.model(packed)
        table = logits.new_full((batch * options,), float("-inf"))
        shown = table.index_copy(0, flat, logits.squeeze(-1)).view(batch, options)
        if labels is None:
            return TaskOutput(None, shown)
        targets = _labels(labels, (batch,), logits, whole=True)
        _in_range(targets, options, ignored=False)
        if not there.gather(1, targets[:, None]).all():
            raise InputError("labels names an option whose attention_mask is all 0")
        among = there.cumsum(1).gather(1, targets[:, None]).squeeze(1) - 1  # of those that exist
        sizes = tuple(there.sum(1).tolist())
        return TaskOutput(self._loss(logits, packed, among, sizes, batch), shown)

    def _embed(self, ids: Tensor, mask: Tensor, types: Tensor, labels: Any) -> TaskOutput:
        pairs = ids.dim() == 3
        if (pairs and ids.shape[1] != 2) or (labels is not None and not pairs):
            raise InputError(
                f"input_ids has the shape {tuple(ids.shape)}",
                remedy="Give pairs of texts as (batch, 2, length)",
            )
        packed, _ = self._packed(*(x.reshape(-1, ids.shape[-1]) for x in (ids, mask, types)))
        vectors: Tensor = self.model(packed)
        if not pairs:
            return TaskOutput(None, None, vectors)
        both = vectors.view(ids.shape[0], 2, -1)
        cosines = F.cosine_similarity(both[:, 0], both[:, 1], dim=-1)
        if labels is None:
            return TaskOutput(None, cosines, both)
        targets = _labels(labels, (len(both),), vectors, whole=False)
        _allowed(targets, (targets >= 0) & (targets <= 1), "a similarity is from 0 to 1")
        loss = self._loss(vectors, packed, targets, (2,) * len(both), len(both))
        return TaskOutput(loss, cosines, both)

    def _tag(self, packed: Packed, index: Tensor, real: Tensor, labels: Any) -> TaskOutput:
        logits: Tensor = self.model(packed)
        batch, length = real.shape
        shown = to_padded(logits, index, batch, length)
        if labels is None:
            return TaskOutput(None, shown)
        targets = _labels(labels, (batch, length), logits, whole=True)
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
        return TaskOutput(self._loss(logits, packed, flat, (1,) * batch, count), shown)

    def _answer(self, packed: Packed, index: Tensor, real: Tensor, starts: Any, ends: Any) -> TaskOutput:
        batch, length = real.shape
        targets = None
        if starts is not None:
            given = {"start_positions": starts, "end_positions": ends}
            places = [_places(_labels(x, (batch,), real, True, n), real, n) for n, x in given.items()]
            targets = torch.stack(places, 1)
        if not isinstance(self.model, JointAnswer):
            logits: Tensor = self.model(packed)
            empty = logits.new_full((batch * length, 2), float("-inf"))
            shown = empty.index_copy(0, index, logits).view(batch, length, 2)
            if targets is None:
                return TaskOutput(None, shown)
            return TaskOutput(self._loss(logits, packed, targets, (1,) * batch, batch), shown)
        if targets is not None:
            found = self.model.learn(packed, targets[:, 0])
            as_model = SimpleNamespace(learn=lambda *_: found, base=self.base)
            part = self.family.part(as_model, TaskBatch(packed, targets, (1,) * batch, batch))
            return TaskOutput(_mean(part, batch), found.impossible)
        beam = Beam.of(self.model(packed))
        columns = (~real).long().argsort(dim=1, stable=True)  # of the tokens of each row, in their order
        starts, ends = (columns.gather(1, x.clamp(max=length - 1)) for x in (beam.starts, beam.ends))
        return TaskOutput(None, beam.impossible, spans=beam._replace(starts=starts, ends=ends))


class _Computed:
    """A model whose output for one batch is computed already, for `Family.part`."""

    def __init__(self, model: TaskModel, output: Tensor) -> None:
        self._model, self._output = model, output

    def __call__(self, packed: Packed) -> Tensor:
        return self._output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _mean(part: Part, count: int) -> Tensor:
    """The mean loss of so many predictions; zero where there is none."""
    return part.loss_sum / max(1, count)


def _check_tensors(input_ids: object, attention_mask: object, token_type_ids: object) -> None:
    """Raises InputError where an input is a list, an array or something else that is no tensor."""
    given = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
    for name, value in given.items():
        if not isinstance(value, Tensor) and (value is not None or name == "input_ids"):
            raise InputError(
                f"{name} is of the type {type(value).__name__}", remedy="Give a tensor: torch.tensor(…)"
            )


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
    """How many targets are not left out.

    Raises:
        InputError: one is no number from 0 to below `count`.
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


def _places(columns: Tensor, real: Tensor, name: str) -> Tensor:
    """Columns (B,) of a padded batch as places among the real tokens of each row."""
    _, length = real.shape
    inside = (columns >= 0) & (columns < length)
    if not bool(inside.all()) or not bool(real.gather(1, columns[:, None]).all()):
        raise InputError(
            f"{name} names a column that holds no token",
            remedy="Give that of [CLS] where the row does not show the answer",
        )
    return real.cumsum(1).gather(1, columns[:, None]).squeeze(1) - 1


def load_task(what: str | Path) -> TrainableTask:
    """A tuned model with its head, float32 and in evaluation mode: see `albertine.load_task`."""
    folder = model_folder(what)
    if is_exported(folder):
        raise ModelError(
            "is an exported graph, which has no gradients",
            where=folder,
            remedy="Name the model folder that it was exported from, or use albertine.Predictor",
        )
    found, tokenizer = read_folder(folder), load_tokenizer(folder)
    check_tokenizer(found.model.config, tokenizer, folder)
    headless = task_of(found) is None and not found.extra and not found.left_aside
    if headless and not lacks_head(found, folder):
        raise ModelError(
            "was not tuned for a task, and has no head",
            where=what,
            remedy="albertine.load gives the encoder; albertine.finetune tunes it",
        )
    family = family_of(found, tokenizer, folder)
    if family.task in WITHOUT_LABELS:
        raise ModelError(
            f"was tuned to {in_words(family.task)}, which takes more than padded rows and labels",
            where=what,
            remedy=WITHOUT_LABELS[family.task],
        )
    model = tuned_model(found, family, folder)
    model.dropout = found.model.config.classifier_dropout_prob
    return TrainableTask(model, family).eval()


def save_task(task: TrainableTask, tokenizer: SavableTokenizer | None, folder: Path) -> None:
    """Write a model folder with the head of its task: see `albertine.save`."""
    from albertine.tasks.finetune import save_tuned

    save_tuned(task.model, tokenizer, task.family, folder)
