"""HTTP interface of entities: `/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from albertine.inference.tags import Entity
from albertine.tasks.encoded import Encoded, EncodedExample
from albertine.tasks.http.base import (
    JSON,
    TEXTS,
    Answer,
    Body,
    HttpRoute,
    HttpTask,
    InputLength,
    Several,
    Truncation,
    listed,
)
from albertine.tasks.tag import Tag

NONE: Any = None
Found = tuple[list[Entity], list[float] | None]
"""The entities of a text, and the score of each; None with a CRF."""


class TagParameters(Truncation):
    """`parameters` of `/`. Entities are joined from tokens by the tagging scheme, whatever the strategy."""

    aggregation_strategy: Literal["simple", "first", "average", "max"] = Field(
        "simple", description='"simple", "first", "average" or "max": entities are given, not single tokens'
    )
    ignore_labels: list[str] = Field([], fail_fast=True, description="a list of labels")
    stride: None = Field(None, description="left out: a text is read in one row, up to the model's length")


class TextsToTag(Body):
    """`/`."""

    inputs: str | Several = Field(description=TEXTS)
    parameters: TagParameters = TagParameters()


class FoundEntity(Answer):
    """An entity by its characters."""

    entity_group: str
    score: float | None
    word: str
    start: int
    end: int


class Pipeline(HttpRoute):
    """`/`: entities; the score is null where a CRF decodes whole sequences."""

    schema = TextsToTag
    response_type = list[FoundEntity] | list[list[FoundEntity]]
    example: ClassVar = {"inputs": "Marie Curie worked in Paris."}

    def questions(self, task: TagHttp, request: TextsToTag) -> list[str]:
        return listed(request.inputs)

    def response(
        self, task: TagHttp, request: TextsToTag, questions: Sequence[str], values: Sequence[Found]
    ) -> JSON:
        ignored = frozenset(request.parameters.ignore_labels)
        found = [
            [
                {"entity_group": name, "score": score, "word": text[a:b], "start": a, "end": b}
                for (name, a, b), score in zip(entities, scores or len(entities) * [NONE], strict=True)
                if name not in ignored
            ]
            for text, (entities, scores) in zip(questions, values, strict=True)
        ]
        return found[0] if isinstance(request.inputs, str) else found


class TagHttp(HttpTask):
    """Entities of texts of any length, which are read in windows."""

    does = "tags entities"
    routes: ClassVar = {"/": Pipeline()}

    def lengths(self, questions: Sequence[str]) -> list[InputLength]:
        data = self.family.encode(self.examples(questions), self.model.tokenizer)
        return [
            InputLength(int(tokens), len(text.spans.ids) + 2, self.limit, False, EncodedExample(data, i))
            for i, (tokens, text) in enumerate(zip(data.lengths, data.examples, strict=True))
        ]

    def cut_left(self, question: Any, cut: Callable[[str], str]) -> None:
        return None

    def values(self, outputs: Any, data: Encoded) -> list[Found]:
        family = self.family
        assert isinstance(family, Tag)
        found = family.answers(outputs, data)
        scores = [None] * len(found) if family.crf else family.entity_probabilities(outputs, data, found)
        return list(zip(found, scores, strict=True))
