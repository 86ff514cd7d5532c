"""What the page shows beside the answers of a model's head. It needs the encoder of torch, and is computed by
the thread of the model as any question is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from albertine.inference.exported_model import ExportedModel
from albertine.tasks.http.base import HttpTask, InputLength
from albertine.tasks.http.errors import HttpError, invalid

if TYPE_CHECKING:
    from albertine.analysis.lens import Lens
    from albertine.model.model import Model

TOKENS = 128
"""Most tokens of a text whose attention or states are shown."""
PREDICTED = 40
"""Most masks of a text, or most tokens of a text without one, each of which is masked in a copy."""
GUESSES = 60_000
"""Most guesses of a response, some 4 MB of JSON."""
TEXTS = 32
"""Most texts of one statistic."""
STATISTICS = 3
"""How often the time of a forward pass its pass and the statistics of its states take together, about."""
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
    def torch_model(self) -> Model:
        return self.model.model  # type: ignore[attr-defined,no-any-return]

    @property
    def limit(self) -> int:
        return int(self.torch_model.config.max_position_embeddings)

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

    def rows(self, question: tuple[str, str]) -> list[int]:
        first, second = (self.model.tokenizer.encode(text) for text in question)
        return [len(first) + len(second) + 3]

    def compute(self, questions: Sequence[tuple[str, str]]) -> list[float]:
        from albertine.inference.pretraining_heads import sentence_order_probabilities

        return sentence_order_probabilities(self.torch_model, self.model.tokenizer, questions)[0]


class LensView(View):
    """Guesses of the masked-LM head over depth; a question is (text, number of guesses)."""

    does = "predicts masked tokens over depth"
    needs = "a masked-LM head"

    @classmethod
    def has(cls, model: Model) -> bool:
        return model.mlm is not None

    def lengths(self, questions: Sequence[tuple[str, int]]) -> list[InputLength]:
        from albertine.analysis.lens import default_depths

        tokenizer, found = self.model.tokenizer, []
        layers, depths = self.torch_model.config.plan.depth, default_depths(self.torch_model)
        for text, top in questions:
            ids = tokenizer.encode_with_special_tokens(text)
            masks, most = ids.count(tokenizer.mask_id), self.predicted(len(depths), top)
            # Without a mask, each token is masked in a copy of the text.
            limit, copies = (self.limit, 1) if masks else (min(self.limit, most), max(1, len(ids)))
            if (length := len(ids) + 2) > limit:
                raise too_long(length, limit)
            if masks > most:
                message = f"the text has {masks:,} masks, and this view takes {most}; give fewer"
                raise invalid("input_too_long", message, tokens=masks, limit=most)
            # The encoder computes every token at every depth, the head every mask, at about the same cost.
            computed = length * copies * depths[-1] + (masks or copies) * len(depths)
            found.append(InputLength(math.ceil(computed / layers), length, limit, False))
        return found

    @staticmethod
    def predicted(depths: int, top: int) -> int:
        """Most masks of a text, for a number of depths and of guesses at each."""
        return min(PREDICTED, max(1, GUESSES // (depths * top)))

    def compute(self, questions: Sequence[tuple[str, int]]) -> list[Lens]:
        from albertine.analysis.lens import lens

        return [lens(self.torch_model, self.model.tokenizer, text, top=top) for text, top in questions]

    def as_json(self, found: Lens) -> dict[str, Any]:
        """The response; not by the thread of the model."""
        tokenizer = self.model.tokenizer
        decode = cache(lambda token: tokenizer.decode([token], skip_special=False))
        positions = [
            {
                "place": one.place,
                "answer": one.answer,
                "probability": one.probability,
                "guesses": [
                    [
                        {
                            "token_str": decode(guess.token_id),
                            "token": guess.token_id,
                            "score": guess.probability,
                        }
                        for guess in at_depth
                    ]
                    for at_depth in one.guesses
                ],
            }
            for one in found.positions
        ]
        facts = {"tokens": found.tokens, "layers": found.layers, "depths": found.depths}
        return facts | {"positions": positions}


class AttentionView(View):
    """Attention weights of all layers and heads; a question is a text."""

    does = "shows attention weights"

    @property
    def limit(self) -> int:
        config = self.torch_model.config
        pairs = NUMBERS // (config.plan.depth * config.num_attention_heads)
        return min(super().limit, TOKENS, max(8, math.isqrt(pairs)))

    def compute(self, questions: Sequence[str]) -> list[dict[str, Any]]:
        from albertine.analysis.attention import attention_of

        found = [attention_of(self.torch_model, self.model.tokenizer, text) for text in questions]
        numbers = ("weights", "entropy", "distance", "similarity")
        # The lists are made where the response is, not by the thread of the model.
        return [
            {"tokens": one.tokens, "blocks": list(one.blocks)}
            | {name: getattr(one, name) for name in numbers}
            for one in found
        ]


class LayersView(View):
    """What each layer does to the states of texts; a question is a tuple of texts."""

    does = "compares the states of layers"

    @property
    def limit(self) -> int:
        return min(super().limit, TOKENS)

    def rows(self, question: Sequence[str]) -> list[int]:
        return [len(row) + 2 for row in self.model.tokenizer.encode_batch(list(question))]

    def lengths(self, questions: Sequence[Sequence[str]]) -> list[InputLength]:
        return [one._replace(tokens=STATISTICS * one.tokens) for one in super().lengths(questions)]

    def compute(self, questions: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        from albertine.analysis.layers import layer_statistics

        found = [
            layer_statistics(self.torch_model, self.model.tokenizer, texts, max_length=TOKENS)
            for texts in questions
        ]
        return [{name: without_nan(value) for name, value in one.as_dict().items()} for one in found]


def without_nan(value: Any) -> Any:
    """JSON data with None in place of NaN."""
    if isinstance(value, dict):
        return {name: without_nan(one) for name, one in value.items()}
    if isinstance(value, list):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


VIEWS: dict[str, type[View]] = {
    "sentence-order": SentenceOrder,
    "lens": LensView,
    "attention": AttentionView,
    "layers": LayersView,
}
"""By the name of the view."""
