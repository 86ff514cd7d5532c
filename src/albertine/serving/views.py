"""What the page shows beside the answers of a model's head. It needs the encoder of torch, and is computed by
the thread of the model as any question is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from albertine.inference.onnx_session import ExportedModel
from albertine.tasks.http.base import HttpTask, InputLength
from albertine.tasks.http.errors import HttpError, invalid

if TYPE_CHECKING:
    from albertine.model.model import Model

TOKENS = 128
"""Most tokens of a text of a view: guesses are computed at every token and depth, attention at every pair."""
NUMBERS = 600_000
"""Most attention weights of a response, some 4 MB of JSON."""


class View(HttpTask):
    """A kind of question to an encoder; a question is a text, or a tuple that begins with one.

    Attributes:
        needs: the part of a model that it needs, for errors.
    """

    routes: ClassVar = {}
    needs: ClassVar[str] = ""

    @classmethod
    def missing(cls, model: Model | ExportedModel) -> str | None:
        """Why a model does not have this view; None: it does."""
        if isinstance(model, ExportedModel):
            return (
                "this needs torch, and the model is an exported graph, which gives its outputs alone; serve "
                "the folder that it was exported from"
            )
        return None if cls.has(model) else f"this needs {cls.needs}, which the model does not have"

    @classmethod
    def has(cls, model: Model) -> bool:
        """Whether a model has what the view needs."""
        return True

    @property
    def limit(self) -> int:
        positions = self.torch_model.config.max_sequence_length
        return TOKENS if positions is None else min(TOKENS, positions)

    @property
    def torch_model(self) -> Model:
        return self.model.model  # type: ignore[attr-defined,no-any-return]

    def rows(self, question: Any) -> list[int]:
        """The length of every row of a question, special tokens included."""
        text = question if isinstance(question, str) else question[0]
        return [len(self.model.tokenizer.encode_with_special_tokens(text)) + 2]

    def lengths(self, questions: Sequence[Any]) -> list[InputLength]:
        found = [InputLength.of_rows(self.rows(question), self.limit) for question in questions]
        # Never truncated, also by a server that does: half a figure would be taken for the whole.
        if one := next((one for one in found if one.cut), None):
            raise too_long(one.length, one.limit)
        return found

    def compute(self, questions: Sequence[Any]) -> list[Any]:
        """The answers to questions, in their order."""
        raise NotImplementedError


def too_long(length: int, limit: int) -> HttpError:
    """The error for a text of more tokens than a view computes."""
    message = f"the text has {length:,} tokens, and this view takes {limit}; shorten it"
    return invalid("input_too_long", message, tokens=length, limit=limit)


class SentenceOrder(View):
    """The probability that two passages are in their order; a question is (first, second)."""

    does = "predicts the order of passages"
    needs = "a head of sentence order"

    @classmethod
    def has(cls, model: Model) -> bool:
        return model.sentence is not None

    @property
    def limit(self) -> int:
        return int(self.torch_model.config.max_position_embeddings)

    def rows(self, question: tuple[str, str]) -> list[int]:
        first, second = (self.model.tokenizer.encode(text) for text in question)
        return [len(first) + len(second) + 3]

    def compute(self, questions: Sequence[tuple[str, str]]) -> list[float]:
        from albertine.inference.pretraining_heads import sentence_order_probabilities

        return sentence_order_probabilities(self.torch_model, self.model.tokenizer, questions)[0]


VIEWS: dict[str, type[View]] = {"sentence-order": SentenceOrder}
"""By the name of the view."""


def attention_limit(layers: int, heads: int) -> int:
    """Most tokens of a text whose attention weights of all layers and heads are in one response."""
    return max(8, min(TOKENS, math.isqrt(NUMBERS // (layers * heads))))
