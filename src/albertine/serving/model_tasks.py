"""What a model can be asked by the server, how long a question is, and its answer: all by `Predictor` and the
family of its task, so that a server answers what the command line and the scores of a run do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, cast

from albertine.errors import ModelError
from albertine.inference.fill_mask import fill_masks, no_mask
from albertine.inference.onnx_session import ExportedModel
from albertine.inference.option_rows import characters_of, question_length, question_limit
from albertine.interop.exported_folder import GRAPHS
from albertine.serving.engine import finite
from albertine.tasks.answer import FromPassages, Question
from albertine.tasks.classify import Classify
from albertine.tasks.examples import Example
from albertine.tasks.multiple_choice import Choice
from albertine.tasks.predictor import Predictor
from albertine.tasks.tag import Tag
from albertine.tokenizers.base import Spans

ENDLESS = 1 << 30
"""A length that no row has: with it a family lays a question out as it is, uncut."""
BY_FAMILY = ("classify", "tag", "answer", "choose", "relate")
"""The tasks of heads that are asked through their families."""
ROW = 16
"""Characters that cost as much to lay out as a row of none."""


class Kind(NamedTuple):
    """What is asked. Questions of one kind are asked together.

    Attributes:
        task: `embed`, `fill-mask`, or one of `BY_FAMILY`.
        normalize: of vectors, whether they have length 1.
    """

    task: str
    normalize: bool = True


class Extent(NamedTuple):
    """How long a question is.

    Attributes:
        tokens: that are computed, special ones and every row of the question included.
        length: of the part that is bounded, uncut: the longest row, or a question to a passage.
        limit: what it is bounded to. cut: whether tokens are lost.
    """

    tokens: int
    length: int
    limit: int
    cut: bool


class Answerer:
    """A model that is asked by kinds.

    Attributes:
        tasks: what it can be asked, each tried once with a short question, which also warms the model up.
        number_format: in which it computes: `float32`, `bfloat16`, `float16` or `int8`.

    Args:
        predictor: from now on asked by one thread alone; lengths may be measured by others.
        name: what clients call the model.

    Raises:
        ModelError: it can be asked nothing that the server knows.
    """

    def __init__(self, predictor: Predictor, name: str) -> None:
        self.predictor, self.name = predictor, name
        self.family = None
        with suppress(ModelError):
            self.family = predictor.family
        self.number_format = _number_format(predictor.model)
        self.tasks = tuple(self._possible())
        if not self.tasks:
            raise ModelError(
                "can be asked nothing that the server offers",
                where=name,
                remedy="Serve a model that was tuned for a task, has vectors, or fills masks",
            )

    def _possible(self) -> list[str]:
        found = []
        if self.family is not None and self.family.task in BY_FAMILY:
            found.append(str(self.family.task))
            self.ask(*self._short(found[0]))
        for task in ("fill-mask", "embed"):
            with suppress(ModelError):
                if finite(self.ask(*self._short(task))):
                    found.append(task)
        return found

    def _short(self, task: str) -> tuple[Kind, list[Any]]:
        """A short question of a task."""
        questions: dict[str, Any] = {
            "fill-mask": (self.mask, 1, None),
            "classify": ("a", "a" if self._of_pairs else None),
            "answer": ("a", "a"),
            "choose": ("a", "", ("a", "b")),
        }
        return Kind(task), [questions.get(task, "a")]

    @property
    def _of_pairs(self) -> bool:
        """Whether it is a classifier that is asked about pairs alone."""
        return isinstance(self.family, Classify) and bool(
            self.family.pairs or self.family.pooling == "compared"
        )

    @property
    def mask(self) -> str:
        """How the mask is written in a text."""
        return self.predictor.tokenizer.special.mask

    @property
    def probe(self) -> tuple[Kind, Any]:
        """A short question that this model can answer."""
        kind, [question] = self._short(self.tasks[0])
        return kind, question

    @property
    def step_tokens(self) -> int:
        """How many tokens the model likes to compute at once."""
        return int(self.predictor.model.tokens_per_pass)

    # ---- lengths, by any thread

    @staticmethod
    def laid_out(kind: Kind, questions: Sequence[Any]) -> int:
        """How many characters `extents` lays out for questions, told without doing so: a passage counts for
        each of its options, and each option a `ROW` more."""
        if kind.task == "choose":
            return sum(characters_of(*one) + ROW * len(one[2]) for one in questions)
        return sum(map(characters, questions))

    def limit(self, task: str) -> int:
        """Tokens that a text of this task may have, special ones included."""
        if task == "embed":
            return self.predictor.embedder.limit
        if task == "fill-mask":
            return int(self.predictor.model.config.max_position_embeddings)
        if isinstance(self.family, FromPassages):
            return self.family.reading.question
        return int(cast(Any, self.family).max_length)

    def extents(self, kind: Kind, questions: Sequence[Any]) -> list[Extent]:
        """How long each question is.

        Raises:
            AlbertineError: one cannot be answered. Were it asked with others, none would be, and all would be
                asked again one by one.
        """
        limit = self.limit(kind.task)
        if kind.task == "embed":
            rows = self.predictor.tokenizer.encode_batch([self._as_embedded(text) for text in questions])
            return [_extent([len(row) + 2], limit) for row in rows]
        if kind.task == "fill-mask":
            return [self._of_masked(text, limit) for text, _, _ in questions]
        examples = [_example(kind.task, i, question) for i, question in enumerate(questions)]
        if kind.task == "answer":
            return self._of_passages(examples, limit)
        if kind.task == "tag":  # read in windows, so of any length
            data = cast(Any, self.family).encode(examples, self.predictor.tokenizer)
            return [
                Extent(int(tokens), len(text.spans.ids) + 2, limit, False)
                for tokens, text in zip(data.lengths, data.examples, strict=True)
            ]
        family = replace(cast(Any, self.family), max_length=ENDLESS)
        data = family.encode(examples, self.predictor.tokenizer)
        lengths = [len(row) for row in data.ids]
        found = [_extent(lengths[a:b], limit) for a, b in zip(data.starts[:-1], data.starts[1:], strict=True)]
        if kind.task != "choose":
            return found
        # The question with an option, the second segment with its [SEP], has a bound of its own, which goes
        # with the length of rows.
        most, seconds = question_limit(limit), [int((types == 1).sum()) - 1 for types in data.types]
        for i, (a, b) in enumerate(zip(data.starts[:-1], data.starts[1:], strict=True)):
            if max(seconds[a:b]) >= most:  # cut at that bound here too, in rows of any length
                whole = question_length(self.predictor.tokenizer, *questions[i])
                if whole > most:
                    found[i] = found[i]._replace(length=whole, limit=most, cut=True)
        return found

    def _of_masked(self, text: str, limit: int) -> Extent:
        ids = self.predictor.tokenizer.encode_with_special_tokens(text)
        if self.predictor.tokenizer.mask_id not in ids[: limit - 2]:
            raise no_mask(text, limit)
        return _extent([len(ids) + 2], limit)

    def _of_passages(self, examples: Sequence[Question], limit: int) -> list[Extent]:
        """A passage may have any length, since it is read in windows; its question may not."""
        assert self.family is not None
        data = self.family.encode(examples, self.predictor.tokenizer)
        questions = self.predictor.tokenizer.encode_batch([one.question for one in examples])
        return [
            Extent(int(tokens), len(ids), limit, len(ids) > limit)
            for tokens, ids in zip(data.lengths, questions, strict=True)
        ]

    def _as_embedded(self, text: str) -> str:
        return text.lower() if self.predictor.embedder.how.lower else text

    def spans(self, text: str) -> Spans:
        """The tokens of a text and their places, as the model reads it alone. Where masks are filled, a
        mask and the special pieces beside it are those pieces, as in
        `Tokenizer.encode_with_special_tokens`."""
        tokenizer = self.predictor.tokenizer
        return (
            tokenizer.encode_spans_with_special_tokens(text)
            if self._marked(text)
            else tokenizer.encode_spans(text)
        )

    def tokens(self, text: str) -> int:
        """How many tokens `spans` gives, in a small part of its time."""
        tokenizer = self.predictor.tokenizer
        return len(
            tokenizer.encode_with_special_tokens(text) if self._marked(text) else tokenizer.encode(text)
        )

    def _marked(self, text: str) -> bool:
        return self.tasks[0] == "fill-mask" and self.mask in text

    def beginning(self, kind: Kind, question: Any) -> Any:
        """A question with enough of its texts that the model reads what it would read of the whole: what is
        lost is lost on the right."""
        head, limit = self.predictor.tokenizer.head, self.limit(kind.task)
        if kind.task == "embed":
            return head(self._as_embedded(question), limit)
        if kind.task == "classify":
            text, pair = question
            return head(text, limit), None if pair is None else head(pair, limit)
        return question

    def ends_at_left(self, kind: Kind, text: str) -> str:
        """The end of a text that has room in a row alone: what is lost is lost on the left."""
        room = self.limit(kind.task) - 2
        if kind.task == "embed":
            text = self._as_embedded(text)  # whose places those of its tokens are
        text = self.predictor.tokenizer.tail(text, room)
        for keep in range(room, 0, -1):  # again, since a piece that is cut out of its word may become two
            starts = self.predictor.tokenizer.encode_spans(text).starts
            if len(starts) <= room:
                break
            text = text[starts[-keep] :]
        return text

    # ---- answers, by one thread

    def ask(self, kind: Kind, questions: Sequence[Any]) -> Sequence[Any]:
        """The answers to questions, at least one, in their order.

        Per task: `embed` text → vector (H,); `fill-mask` (text, candidates, ids to
        choose from or None) → `Guess`es for each mask;
        `classify` (text, pair or None) → logits (classes,); `tag` text → entities, and how sure it is of each
        or None; `answer` (question, passage) → `LikelySpans`; `choose` (passage, question, options) → a
        probability for each; `relate` text → list of `Relation`.

        Vectors and probabilities of pieces may hold NaN or infinities, so that one text that overflows does
        not fail those beside it.

        Raises:
            AlbertineError: what a client can cause.
        """
        predictor, normalize = self.predictor, kind.normalize
        asked: dict[str, Callable[[Sequence[Any]], Sequence[Any]]] = {
            "embed": lambda texts: list(predictor.embedder(texts, normalize=normalize, check=False).vectors),
            "fill-mask": self._filled,
            "classify": self._logits,
            "tag": self._entities,
            "answer": predictor.likely_spans,
            "choose": lambda choices: predictor.choose_all([(p, o, q) for p, q, o in choices]),
            "relate": predictor.relate_all,
        }
        return asked[kind.task](questions)

    def _filled(self, questions: Sequence[Any]) -> Sequence[Any]:
        """Each question is (text, candidates, ids to choose from or None)."""
        texts, counts, among = zip(*questions, strict=True)
        predictor = self.predictor
        return fill_masks(predictor.model, predictor.tokenizer, texts, counts, self.name, among, check=False)[
            0
        ]

    def _logits(self, questions: Sequence[Any]) -> Sequence[Any]:
        self.predictor.made_to("classify")
        return list(self.predictor.said([_example("classify", i, q) for i, q in enumerate(questions)])[0])

    def _entities(self, questions: Sequence[Any]) -> Sequence[Any]:
        family = self.predictor.made_to("tag")
        assert isinstance(family, Tag)
        said, data = self.predictor.said([_example("tag", i, q) for i, q in enumerate(questions)])
        found = family.answers(said, data)
        sure = [None] * len(found) if family.crf else family.sureness(said, data, found)
        return list(zip(found, sure, strict=True))

    @property
    def threshold(self) -> float:
        """Above this probability that a passage does not answer, none is given."""
        return self.predictor.threshold

    @property
    def classifier(self) -> Classify:
        """The family of a classifier, which reads its logits."""
        assert isinstance(self.family, Classify)
        return self.family


def _number_format(model: Any) -> str:
    """In which format a model computes: what `auto` comes to on this machine."""
    if isinstance(model, ExportedModel):
        if model.precision != "auto":
            return model.precision
        return next(name for name, file in GRAPHS.items() if (model.path / file).is_file())
    import torch

    with torch.inference_mode(), model.encoder.computing() as backend:
        form = backend.form
    return "int8" if form.int8 else str(form.dtype).removeprefix("torch.")


def characters(question: Any) -> int:
    """Of all texts of a question, each once."""
    if isinstance(question, str):
        return len(question)
    return sum(map(characters, question)) if isinstance(question, tuple | list) else 0


def _extent(rows: Sequence[int], limit: int) -> Extent:
    longest = max(rows)
    return Extent(sum(min(row, limit) for row in rows), longest, limit, longest > limit)


def _example(task: str, number: int, question: Any) -> Any:
    """A question as the family of its task has it."""
    name = str(number)
    if task == "answer":
        asked, passage = question
        return Question(name, asked, passage, None, "")
    if task == "choose":
        passage, asked, options = question
        return Choice(name, passage, asked, tuple(options), None, "")
    text, pair = question if task == "classify" else (question, None)
    return Example(name, text, pair, None, "")
