"""HTTP interface of relations: `/` and `/relate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pydantic import Field

from albertine.inference.triples import Relation
from albertine.tasks.encoded import Encoded
from albertine.tasks.http.base import JSON, TEXTS, Answer, HttpRoute, HttpTask, Several, Truncation, listed


class TextsToRelate(Truncation):
    """`/relate`."""

    inputs: str | Several = Field(description=TEXTS)


class Place(Answer):
    """A part of a text by its characters."""

    text: str
    start: int
    end: int


class FoundRelation(Answer):
    """A relation between two parts of a text."""

    subject: Place
    object: Place
    predicate: str


class RelateTexts(HttpRoute):
    """`/relate`: subject, predicate and object with their characters; for a list of texts a list of that."""

    schema = TextsToRelate
    response_type = list[FoundRelation] | list[list[FoundRelation]]
    example: ClassVar = {"inputs": "Goethe wrote Faust."}

    def questions(self, task: RelateHttp, request: TextsToRelate) -> list[str]:
        return listed(request.inputs)

    def response(
        self,
        task: RelateHttp,
        request: TextsToRelate,
        questions: Sequence[str],
        values: Sequence[list[Relation]],
    ) -> JSON:
        found = [
            [
                {
                    part: {"text": text[slice(*span)], "start": span[0], "end": span[1]}
                    for part, span in (("subject", one.subject), ("object", one.object))
                }
                | {"predicate": one.predicate}
                for one in relations
            ]
            for text, relations in zip(questions, values, strict=True)
        ]
        return found[0] if isinstance(request.inputs, str) else found


class RelateHttp(HttpTask):
    """Relations in texts."""

    does = "finds relations"
    routes: ClassVar = {"/": RelateTexts(), "/relate": RelateTexts()}

    def cut_left(self, question: Any, cut: Callable[[str], str]) -> None:
        return None

    def values(self, outputs: list[list[Relation]], data: Encoded) -> list[list[Relation]]:
        return outputs
