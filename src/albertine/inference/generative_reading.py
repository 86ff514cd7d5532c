"""Generative question answering: answers copied from passages, by a vote where there are several passages.

As in bert4keras' example `task_reading_comprehension_by_seq2seq`: the source is [CLS] passage [SEP] question
[SEP]. Every passage gives the next token a probability p, and a token scores Σp²/(Σp+1) over the passages,
which favours one confident passage over many uncertain ones; with one passage it scores p. A passage whose
first predicted token is the end has no answer and no vote. A long passage is split into overlapping windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from albertine.core.token_batches import batch_longest_first
from albertine.inference.inference_mode import without_gradients
from albertine.inference.search import Hypothesis, Search, beam_search
from albertine.inference.seq2seq_rows import MAX_CACHED_TOKENS, Written
from albertine.inference.windows import Window, WindowSettings, question_room, windows_of
from albertine.tokenizers.base import Spans, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.inference.decoder import Decoder
    from albertine.model.model import Model

TokenPosition = tuple[int, int]
"""A passage by its number, and a token of it."""


@dataclass(frozen=True)
class SourcePassage:
    """A passage, encoded for one question.

    Attributes:
        spans: its tokens. windows: its overlapping parts. sources: the row of each window.
        cut: whether the question was truncated.
    """

    text: str
    spans: Spans
    windows: tuple[Window, ...]
    sources: tuple[list[int], ...]
    cut: bool

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, question: Sequence[int], text: str, spans: Spans, max_length: int
    ) -> SourcePassage:
        """
        Args:
            question: token ids. spans: tokens of `text`. max_length: maximum tokens of a source.

        Raises:
            SettingsError: the question leaves no room for the passage.
        """
        settings = WindowSettings(max_length=max_length)
        kept = question[: question_room(max_length, min(len(question), settings.question))]
        windows = windows_of(len(kept), len(spans.ids), settings, between=tokenizer.between)
        parts = (spans.ids[w.first : w.first + w.size] for w in windows)
        sources = tuple(tokenizer.layout(part, kept)[0] for part in parts)
        return cls(text, spans, tuple(windows), sources, len(kept) < len(question))


class TokenRuns:
    """An index of the token sequences of passages: where one occurs, and which tokens follow it."""

    def __init__(self, passages: Sequence[Sequence[int]]) -> None:
        self._passages = passages
        self._ends: dict[tuple[int, ...], list[TokenPosition]] = {
            (): [(p, i) for p, ids in enumerate(passages) for i in range(len(ids))]
        }

    def ends(self, run: tuple[int, ...]) -> list[TokenPosition]:
        """The positions right after each occurrence."""
        if run not in self._ends:
            before = self.ends(run[:-1])
            self._ends[run] = [(p, i + 1) for p, i in before if self._passages[p][i : i + 1] == [run[-1]]]
        return self._ends[run]

    def after(self, run: tuple[int, ...]) -> set[int]:
        """The tokens that follow any occurrence."""
        return {token for p, i in self.ends(run) for token in self._passages[p][i : i + 1]}


@dataclass(frozen=True)
class PassageQuestion:
    """A question, encoded with each of the passages that may answer it, at least one."""

    passages: tuple[SourcePassage, ...]

    @cached_property
    def runs(self) -> TokenRuns:
        return TokenRuns([passage.spans.ids for passage in self.passages])

    @property
    def cut(self) -> bool:
        """Whether the question was truncated."""
        return any(passage.cut for passage in self.passages)

    @property
    def sources(self) -> list[list[int]]:
        return [source for passage in self.passages for source in passage.sources]

    def words(self, ids: tuple[int, ...]) -> str:
        """The characters of the passage that a sequence of its tokens covers."""
        if not ids:
            return ""
        number, end = self.runs.ends(ids)[0]
        passage = self.passages[number]
        first, last = passage.spans.starts[end - len(ids)], passage.spans.ends[end - 1]
        return passage.text[first:last]


class PassageVote:
    """A decoder over questions: the next token by the vote of the passages of each.

    Attributes:
        first: (questions, V) log-scores of the first token.
    """

    def __init__(self, decoder: Decoder, sizes: Sequence[int], end: int, *, always: bool = False) -> None:
        """
        Args:
            sizes: how many of the decoder's sources each question has.
            always: where no passage has an answer, all of them vote.
        """
        import torch

        self._decoder = decoder
        rows = torch.split(torch.arange(len(decoder.first), device="cpu"), list(sizes))
        no_answer = (decoder.first.argmax(-1) == end).tolist()
        self._rows = [[r for r in own if not no_answer[r]] or own for own in (part.tolist() for part in rows)]
        self.first = _voted(decoder.first, self._rows)
        if always:
            self.first[:, end] = float("-inf")
            return
        only_end = torch.full_like(self.first[0], float("-inf"))
        only_end[end] = 0.0
        for number, own in enumerate(self._rows):
            if all(no_answer[r] for r in own):
                self.first[number] = only_end

    def next(self, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """As `Decoder.next`, with a row for each question."""
        import torch

        steps = [(r, token) for row, token in zip(rows, tokens, strict=True) for r in self._rows[row]]
        found = self._decoder.next([r for r, _ in steps], [token for _, token in steps])
        sizes = [len(self._rows[row]) for row in rows]
        self._rows = [part.tolist() for part in torch.split(torch.arange(len(steps), device="cpu"), sizes)]
        return _voted(found, self._rows)


def _voted(found: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    import torch

    return torch.stack([vote(found[list(own)]) for own in rows])


def vote(log_probabilities: Tensor) -> Tensor:
    """Combine log-probabilities (voters, V) into log Σp²/(Σp+1), (V,); those of one voter are unchanged."""
    if len(log_probabilities) == 1:
        return log_probabilities[0]
    p = log_probabilities.double().exp()  # float64, as squares of small probabilities underflow
    return (p.square().sum(0).log() - p.sum(0).log1p()).to(log_probabilities.dtype)


@without_gradients
def generate_answers(
    model: Model,
    tokenizer: Tokenizer,
    questions: Sequence[PassageQuestion],
    search: Search,
    *,
    extract: bool = True,
    always: bool = False,
    poll: Callable[[], None] = lambda: None,
) -> list[list[Written]]:
    """The best answers to every question, best first; "" means no answer.

    Args:
        extract: an answer is a token sequence of a passage, returned as the passage's characters; otherwise
            generation is unconstrained.
        always: do not return "", unless the passages are empty.
        poll: called before each batch.
    """
    from albertine.inference.decoder import Decoder

    found: list[list[Written]] = [[] for _ in questions]
    lengths = [sum(map(len, question.sources)) for question in questions]
    end = tokenizer.sep_id
    for chosen in batch_longest_first(
        lengths, max(1, (model.batch_tokens or MAX_CACHED_TOKENS) // search.beams)
    ):
        poll()
        batch = [questions[i] for i in chosen]
        sources = [source for question in batch for source in question.sources]
        decoder = Decoder(model, tokenizer, sources, unknown=extract)
        vote_decoder = PassageVote(decoder, [len(question.sources) for question in batch], end, always=always)

        def follow(row: int, ids: tuple[int, ...], batch: list[PassageQuestion] = batch) -> set[int]:
            return batch[row].runs.after(ids) | {end}

        texts = beam_search(vote_decoder.first, vote_decoder.next, end, search, follow if extract else None)
        for i, own in zip(chosen, texts, strict=True):
            found[i] = [_written(questions[i], tokenizer, f, extract) for f in own] or [Written("", 0.0)]
    return found


def _written(question: PassageQuestion, tokenizer: Tokenizer, found: Hypothesis, extract: bool) -> Written:
    return Written(question.words(found.ids) if extract else tokenizer.decode(found.ids), found.score)
