"""Sequence labelling: entities in a text by one tag a token (BIO or BIOES), with a linear layer over every
token and optionally a conditional random field.

Labels and predictions are spans of characters, so that scores do not depend on the tokenization. A token has
the tag of the entity that contains it. A text longer than a row is read in overlapping windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from albertine.errors import ModelError
from albertine.evaluation.ensembles import mean_softmax
from albertine.inference.exported_model import ExportedModel
from albertine.inference.probabilities import softmax
from albertine.inference.tags import Entity, Scheme, allowed, entities_of, marks, scheme_of, typed
from albertine.inference.windows import Window, owners, text_windows
from albertine.interop.exported_folder import TRANSITIONS
from albertine.interop.heads import Task, head_config
from albertine.tasks.encoded import IGNORED, Encoded, RowBuilder, Tally, TaskBatch
from albertine.tasks.examples import Example
from albertine.tasks.family import Fields, OneLayer, Poll, Tuned, over_rows
from albertine.tasks.readers.table import Row
from albertine.tokenizers.base import Spans, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.model.model import Model
    from albertine.model.task_model import TaskModel
    from albertine.objectives.losses import Part


@dataclass(frozen=True)
class TextInWindows:
    """An encoded text.

    Attributes:
        spans: its tokens. windows: the part of them in each of its rows.
        found: number of its entities that tags of its tokens can represent, up to blank and invisible
            characters at their ends.
    """

    example: Any
    spans: Spans
    windows: tuple[Window, ...]
    found: int = 0

    def joined(self, rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Outputs for the tokens of its rows, (tokens of the row, …) each, as one array (tokens of the text,
        …): for every token from the window with most context around it."""
        parts = [row[w.offset : w.offset + w.size] for w, row in zip(self.windows, rows, strict=True)]
        if len(parts) == 1:  # most texts
            return parts[0]
        owner = owners(self.windows, len(self.spans.ids))
        whole = np.empty((len(owner), *parts[0].shape[1:]), dtype=parts[0].dtype)
        for number, (window, part) in enumerate(zip(self.windows, parts, strict=True)):
            mine = owner[window.first : window.first + window.size] == number
            whole[window.first : window.first + window.size][mine] = part[mine]
        return whole


def encode(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    max_length: int,
    labels: Sequence[str],
    *,
    learning: bool = False,
) -> Encoded:
    """One row a text, or for a longer text a row for each window. The target of a text is the tags of the
    tokens of its rows, int64 (tokens,), with special tokens ignored.

    Args:
        labels: all tags in the order of their numbers, which determine the scheme.
        learning: leave out texts of whose entities no token can be tagged: they would be trained as texts
            without entities.
    """
    rows, texts, targets, tally = RowBuilder(tokenizer, max_length), [], [], Tally()
    scheme, number = scheme_of(labels), {tag: i for i, tag in enumerate(labels)}
    lead = tokenizer.lead
    edges = [IGNORED] * lead, [IGNORED] * (2 - lead)
    for example in examples:
        spans = tokenizer.encode_spans(example.text)
        entities = tuple(dict.fromkeys(example.label or ()))
        tags, placed = placed_tags(spans, entities, scheme)
        named = entities_of(spans, tags) if placed else []
        found = _tally_lost(tally, example, entities, placed, named, learning) if entities else 0
        if learning and entities and not placed:
            tally.add("texts left out, as no token of their entities can be tagged", *_first(example))
            continue
        size = len(spans.ids)
        short = size <= max_length - 2
        windows = [Window(0, lead, size)] if short else text_windows(size, max_length, lead)
        target: list[int] = []
        for window in windows:
            if short:
                part, own = spans, tags
            else:
                part = Spans(*(x[window.first : window.first + window.size] for x in spans))
                own = tags_for(part, entities, scheme)
            rows.add(part.ids, None)
            # Labels of other models may be incomplete: parts of speech have no O, and some have no B.
            target += [*edges[0], *(number.get(tag, IGNORED) for tag in own), *edges[1]]
        rows.end()
        texts.append(TextInWindows(example, spans, tuple(windows), found))
        targets.append(np.array(target, dtype=np.int64))
    known = all(example.label is not None for example in examples)
    return replace(rows.encoded(texts, targets if known else None), lost=tally.lost)


def _tally_lost(
    tally: Tally,
    example: Example,
    entities: Sequence[Entity],
    placed: Sequence[Entity],
    named: Sequence[Entity],
    learning: bool,
) -> int:
    """Count the entities of a text that tags of its tokens cannot represent.

    Args:
        placed: those whose tokens were tagged. named: the entities of these tags.

    Returns:
        The number of entities that are represented, up to blank and invisible characters at their ends.
    """
    fate = "not learned" if learning else "always missed"
    exact = set(named)
    for entity in entities:
        if entity in exact:
            continue
        kind, begin, end = entity
        others = [other for other in placed if other is not entity]
        if entity in placed:
            moved = "learned as whole tokens, always missed" if learning else fate
            what = f"entities that begin or end inside a token or at a blank, {moved}"
        elif any(other[1:] == entity[1:] for other in others):
            what = f"entities on the same characters as one of another type, {fate}"
        elif any(a < end and b > begin for _, a, b in others):
            what = f"entities nested in or overlapping another, {fate}"
        elif others and any(map(_is_visible, example.text[begin:end])):
            what = f"entities in one token with another, {fate}"
        else:
            what = f"entities of blank or invisible characters, {fate}"
        tally.add(what, f"{kind} `{example.text[begin:end]:.40}`", example.where)
    seen = {_visible(example.text, entity) for entity in named}
    return sum(_visible(example.text, entity) in seen for entity in entities)


def _visible(text: str, entity: Entity) -> Entity:
    """The entity without blank and invisible characters at its ends."""
    kind, begin, end = entity
    while begin < end and not _is_visible(text[begin]):
        begin += 1
    while begin < end and not _is_visible(text[end - 1]):
        end -= 1
    return kind, begin, end


def _is_visible(character: str) -> bool:
    return character.isprintable() and not character.isspace()


def _first(example: Example) -> tuple[str, str]:
    return f"`{example.text:.40}`", example.where


def placed_tags(
    spans: Spans, entities: Sequence[Entity], scheme: Scheme = "bio"
) -> tuple[list[str], list[Entity]]:
    """The tag of every token, and the entities that are tagged: of entities that share a token the one that
    begins first, then the longest."""
    tags = ["O"] * len(spans.ids)
    if not entities:
        return tags, []
    free, placed = [True] * len(tags), list[Entity]()
    starts, ends = np.array(spans.starts), np.array(spans.ends)
    for entity in sorted(entities, key=lambda e: (e[1], -e[2])):
        name, begin, end = entity
        inside = np.flatnonzero((starts < end) & (ends > begin)).tolist()
        if inside and all(free[i] for i in inside):
            placed.append(entity)
            for mark, i in zip(marks(len(inside), scheme), inside, strict=True):
                tags[i], free[i] = f"{mark}-{name}", False
    return tags, placed


def tags_for(spans: Spans, entities: Sequence[Entity], scheme: Scheme = "bio") -> list[str]:
    """The tag of every token, with overlapping entities as in `placed_tags`."""
    return placed_tags(spans, entities, scheme)[0]


def windows_to_learn(data: Encoded) -> Encoded:
    """Every window of a text as a training example, so that batches do not depend on the length of texts."""
    if len(data.ids) == len(data.examples):
        return data
    examples = tuple(e for e, count in zip(data.examples, data.sizes, strict=True) for _ in range(count))
    targets = None
    if data.targets is not None:
        targets = np.split(np.concatenate(data.targets), np.cumsum([len(ids) for ids in data.ids])[:-1])
    return replace(data, examples=examples, starts=np.arange(len(data.ids) + 1), targets=targets)


@dataclass
class Tag(OneLayer):
    """The family of sequence labelling.

    Attributes:
        labels: the tags, in the order of their numbers. max_length: tokens of a text.
        crf: whether it has a conditional random field.
    """

    labels: tuple[str, ...]
    max_length: int
    crf: bool = False
    metrics: tuple[str, ...] = ("entity_f1",)
    task: ClassVar[Task] = "tag"
    per_token: ClassVar[bool] = True

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "entities", "max_length": self.max_length, "crf": self.crf}

    @property
    def outputs(self) -> int:
        return len(self.labels)

    def example(self, row: Row, fields: Fields) -> Example:
        return Example(row.name, fields.first(row), None, None, row.where)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Encoded:
        return encode(examples, tokenizer, self.max_length, self.labels)

    def encode_to_learn(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Encoded:
        return encode(examples, tokenizer, self.max_length, self.labels, learning=True)

    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
        from albertine.model.crf import CrfTagger

        if self.crf:
            return CrfTagger(base, allowed(self.labels), dropout=dropout, seed=seed)
        return super().build(base, dropout, seed)

    def part(self, model: Any, batch: TaskBatch) -> Part:
        if not self.crf:
            return super().part(model, batch)
        from albertine.objectives.losses import Part

        logits = model(batch.packed)
        likelihood = model.log_likelihood(logits, batch.packed, batch.targets)
        # The accuracy is that of the logits: decoding in training would double the cost.
        return Part(-likelihood, batch.predictions, (logits.argmax(-1) == batch.targets).sum())

    def loss(self, logits: Tensor, batch: TaskBatch) -> Part:
        import torch.nn.functional as F

        from albertine.objectives.losses import Part

        total = F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=IGNORED)
        return Part(total, batch.predictions, (logits.argmax(-1) == batch.targets).sum())

    def graph_files(self, model: TaskModel) -> dict[str, bytes]:
        """The transitions of a CRF: the graph has only its emissions."""
        if not self.crf:
            return {}
        import safetensors.torch

        from albertine.model.crf import CrfTagger

        assert isinstance(model, CrfTagger)
        names = ("crf.transitions", "crf.start", "crf.end")
        scores = {name: x.detach() for name, x in zip(names, model.crf.scores, strict=True)}
        return {TRANSITIONS: safetensors.torch.save(scores)}

    @property
    def not_distillable(self) -> str | None:
        return "a CRF, which judges whole sequences" if self.crf else None

    def soft_loss(
        self, student: Tensor, teacher: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """The soft target loss of every token that has a tag."""
        tagged = batch.targets != IGNORED
        return super().soft_loss(student[tagged], teacher[tagged], batch, temperature)

    def predict(self, model: Any, data: Encoded, poll: Poll = lambda: None) -> NDArray[Any]:
        """The logits of every token, (tokens, tags); with a CRF the tags of the best sequences, int64
        (tokens,)."""
        if not self.crf:
            return over_rows(model, data, poll, per_token=True)
        if isinstance(model, ExportedModel):
            return self._decoded(model, over_rows(model, data, poll, per_token=True), data)
        return over_rows(model, data, poll, per_token=True, compute=model.tags)

    def _decoded(self, model: ExportedModel, logits: NDArray[np.float32], data: Encoded) -> NDArray[np.int64]:
        """The best sequences by the logits of a graph and the transitions beside it; 0 for special tokens."""
        transitions, at = model.transitions(self.labels), 0
        tags = np.zeros(len(logits), dtype=np.int64)
        lead = data.examples[0].windows[0].offset if data.examples else 0
        for ids in data.ids:
            inside = slice(at + lead, at + len(ids) - 2 + lead)
            if len(ids) > 2:
                tags[inside] = transitions.best(logits[inside])
            at += len(ids)
        return tags

    def merge(self, outputs: Sequence[NDArray[np.float32]], data: Encoded) -> NDArray[np.float32]:
        """Logits of the mean probabilities, token by token.

        Raises:
            ModelError: the models have CRFs, or cut the texts into different tokens.
        """
        if self.crf:
            raise ModelError(
                "a CRF decodes whole sequences, which have no mean", remedy="Tune without task.crf"
            )
        tokens = sum(map(len, data.ids))
        if any(len(logits) != tokens for logits in outputs):
            raise ModelError("the models cut the texts into different tokens, which have no mean")
        return mean_softmax(outputs)

    def answers(self, outputs: NDArray[Any], data: Encoded) -> list[list[Entity]]:
        """The entities of every text."""
        labels = self.labels
        tags = outputs if self.crf else outputs.argmax(-1)
        return [
            entities_of(text.spans, [labels[i] for i in own.tolist()]) for text, own in _by_text(tags, data)
        ]

    def entity_probabilities(
        self, logits: NDArray[Any], data: Encoded, answers: Sequence[Sequence[Entity]]
    ) -> list[list[float]]:
        """The mean probability of the predicted tags of each entity's tokens. Only for models without a CRF,
        whose single tags have no probabilities."""
        found = []
        for (text, own), entities in zip(_by_text(softmax(logits).max(-1), data), answers, strict=True):
            starts, ends = np.array(text.spans.starts), np.array(text.spans.ends)
            found.append([float(own[(starts < end) & (ends > begin)].mean()) for _, begin, end in entities])
        return found

    def input_columns(self, example: Example) -> dict[str, Any]:
        return {"text": example.text}

    def as_json(self, answer: Sequence[Entity], example: Example) -> list[list[Any]]:
        """Type, first character, end and text of every entity."""
        return [[name, begin, end, example.text[begin:end]] for name, begin, end in answer]

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        return head_config(model_type, self.task, dropout, names=self.labels, max_length=self.max_length)


def _by_text(numbers: NDArray[Any], data: Encoded) -> Iterator[tuple[TextInWindows, NDArray[Any]]]:
    """Every text with its part of `numbers`, which are of the tokens of all rows."""
    rows = np.split(numbers, np.cumsum([len(ids) for ids in data.ids])[:-1])
    starts = data.starts.tolist()
    for text, begin, end in zip(data.examples, starts, starts[1:], strict=False):
        yield text, text.joined(rows[begin:end])


def of_folder(found: Tuned) -> Tag:
    """The family that a folder was tuned with."""
    crf = any(name.startswith("crf.") for name in found.folder.shapes)
    return Tag(typed(found.head.labels), found.length, crf)
