"""Answers written after passages: taken from them word for word, and voted on where there are several.

As bert4keras' example `task_reading_comprehension_by_seq2seq` does it: [CLS] passage [SEP] question
[SEP] is the source. Every passage gives the next token a probability p, and a token scores Σp²/(Σp+1) over
the passages, which favours one sure passage over many unsure ones; alone it scores p. A passage whose first
token is the end has no answer, and no vote. A long passage is several: windows that overlap.
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
    """A text that is read for one question.

    Attributes:
        spans: its tokens. windows: the parts of it that are shown. sources: the rows that show them.
        cut: whether the question lost tokens.
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
            question: its token ids. spans: of `text`. max_length: of a source.

        Raises:
            SettingsError: the question leaves no room for the passage.
        """
        reading = WindowSettings(max_length=max_length)
        asked = question[: question_room(max_length, min(len(question), reading.question))]
        windows = windows_of(len(asked), len(spans.ids), reading, between=tokenizer.between)
        parts = (spans.ids[w.first : w.first + w.size] for w in windows)
        sources = tuple(tokenizer.layout(part, asked)[0] for part in parts)
        return cls(text, spans, tuple(windows), sources, len(asked) < len(question))


class TokenRuns:
    """The runs of tokens in some passages: which tokens go on with one, and where it stands."""

    def __init__(self, passages: Sequence[Sequence[int]]) -> None:
        self._passages = passages
        self._ends: dict[tuple[int, ...], list[TokenPosition]] = {
            (): [(p, i) for p, ids in enumerate(passages) for i in range(len(ids))]
        }

    def ends(self, run: tuple[int, ...]) -> list[TokenPosition]:
        """The places right after each occurrence."""
        if run not in self._ends:
            before = self.ends(run[:-1])
            self._ends[run] = [(p, i + 1) for p, i in before if self._passages[p][i : i + 1] == [run[-1]]]
        return self._ends[run]

    def after(self, run: tuple[int, ...]) -> set[int]:
        """The tokens that follow it anywhere."""
        return {token for p, i in self.ends(run) for token in self._passages[p][i : i + 1]}


@dataclass(frozen=True)
class PassageQuestion:
    """A question, as it is put to a model: the passages that may answer it, at least one."""

    passages: tuple[SourcePassage, ...]

    @cached_property
    def runs(self) -> TokenRuns:
        return TokenRuns([passage.spans.ids for passage in self.passages])

    @property
    def cut(self) -> bool:
        """Whether the question lost tokens."""
        return any(passage.cut for passage in self.passages)

    @property
    def sources(self) -> list[list[int]]:
        return [source for passage in self.passages for source in passage.sources]

    def words(self, ids: tuple[int, ...]) -> str:
        """The characters of the passage that a run of its tokens stands for."""
        if not ids:
            return ""
        number, end = self.runs.ends(ids)[0]
        passage = self.passages[number]
        first, last = passage.spans.starts[end - len(ids)], passage.spans.ends[end - 1]
        return passage.text[first:last]


class PassageVote:
    """The passages of each question as one asker: their votes on the next token.

    Attributes:
        first: (questions, V) logarithms of the scores of the first token.
    """

    def __init__(self, speaker: Decoder, sizes: Sequence[int], end: int, *, always: bool = False) -> None:
        """
        Args:
            sizes: how many of the speaker's sources each question has.
            always: a question that no passage answers is answered all the same, by all of them.
        """
        import torch

        self._speaker = speaker
        rows = torch.split(torch.arange(len(speaker.first), device="cpu"), list(sizes))
        silent = (speaker.first.argmax(-1) == end).tolist()
        self._rows = [[r for r in own if not silent[r]] or own for own in (part.tolist() for part in rows)]
        self.first = _voted(speaker.first, self._rows)
        if always:
            self.first[:, end] = float("-inf")
            return
        nothing = torch.full_like(self.first[0], float("-inf"))
        nothing[end] = 0.0
        for number, own in enumerate(self._rows):
            if all(silent[r] for r in own):
                self.first[number] = nothing

    def next(self, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """As `Speaker.next`, in questions' rows."""
        import torch

        asked = [(r, token) for row, token in zip(rows, tokens, strict=True) for r in self._rows[row]]
        said = self._speaker.next([r for r, _ in asked], [token for _, token in asked])
        sizes = [len(self._rows[row]) for row in rows]
        self._rows = [part.tolist() for part in torch.split(torch.arange(len(asked), device="cpu"), sizes)]
        return _voted(said, self._rows)


def _voted(said: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
    import torch

    return torch.stack([vote(said[list(own)]) for own in rows])


def vote(said: Tensor) -> Tensor:
    """Logarithms of probabilities (voters, V) to those of Σp²/(Σp+1), (V,); of a single voter they stay."""
    if len(said) == 1:
        return said[0]
    p = said.double().exp()  # the square of a small number is a very small one
    return (p.square().sum(0).log() - p.sum(0).log1p()).to(said.dtype)


@without_gradients
def generate_answers(
    model: Model,
    tokenizer: Tokenizer,
    inquiries: Sequence[PassageQuestion],
    search: Search,
    *,
    extract: bool = True,
    always: bool = False,
    poll: Callable[[], None] = lambda: None,
) -> list[list[Written]]:
    """The best answers to every question, best first; "" is that there is none.

    Args:
        extract: an answer is a run of tokens of a passage, and is given in the passage's characters;
            otherwise it is free.
        always: "" is no answer, unless the passages are empty.
        poll: called before each batch.
    """
    from albertine.inference.decoder import Decoder

    found: list[list[Written]] = [[] for _ in inquiries]
    lengths = [sum(map(len, inquiry.sources)) for inquiry in inquiries]
    end = tokenizer.sep_id
    for chosen in batch_longest_first(
        lengths, max(1, (model.batch_tokens or MAX_CACHED_TOKENS) // search.beams)
    ):
        poll()
        asked = [inquiries[i] for i in chosen]
        sources = [source for inquiry in asked for source in inquiry.sources]
        speaker = Decoder(model, tokenizer, sources, unknown=extract)
        panel = PassageVote(speaker, [len(inquiry.sources) for inquiry in asked], end, always=always)

        def follow(asker: int, ids: tuple[int, ...], asked: list[PassageQuestion] = asked) -> set[int]:
            return asked[asker].runs.after(ids) | {end}

        texts = beam_search(panel.first, panel.next, end, search, follow if extract else None)
        for i, own in zip(chosen, texts, strict=True):
            found[i] = [_written(inquiries[i], tokenizer, f, extract) for f in own] or [Written("", 0.0)]
    return found


def _written(inquiry: PassageQuestion, tokenizer: Tokenizer, found: Hypothesis, extract: bool) -> Written:
    return Written(inquiry.words(found.ids) if extract else tokenizer.decode(found.ids), found.score)
