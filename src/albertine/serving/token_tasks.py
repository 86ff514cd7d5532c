"""Vectors of every token, and sparse vectors over the vocabulary, as questions to the thread of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albertine.errors import ModelError
from albertine.inference.embedding import TextEmbedder
from albertine.inference.exported_model import ExportedModel
from albertine.inference.token_outputs import SparseVector, sparse_vectors, token_vectors
from albertine.serving.views import View
from albertine.tasks.http.base import InputLength
from albertine.tasks.http.errors import invalid

if TYPE_CHECKING:
    from albertine.model.model import Model
    from albertine.tasks.predictor import Predictor

NUMBERS = 4_000_000
"""Most numbers of the token vectors of a response, some 80 MB of JSON."""
WEIGHTS = 8_000_000
"""Most weights of sparse vectors that the texts of one request can have, were none zero: 266 texts and a
vocabulary of 30,000."""


class TokenOutputs(View):
    """Outputs for the tokens of a text; a question is a text. Texts that are too long are truncated where
    the request or the server says so, as for vectors."""

    @property
    def predictor(self) -> Predictor:
        return self.model  # type: ignore[return-value]

    @property
    def limit(self) -> int:
        return int(self.predictor.model.config.max_position_embeddings)

    def lengths(self, questions: Sequence[str]) -> list[InputLength]:
        rows, limit = self.predictor.tokenizer.encode_batch(list(map(self.cased, questions))), self.limit
        return [InputLength.of_rows([len(row) + 2], limit) for row in rows]

    def cased(self, text: str) -> str:
        """A text as the model reads it."""
        return text

    def cut_right(self, question: str) -> str:
        return self.predictor.tokenizer.head(self.cased(question), self.limit)

    def cut_left(self, question: str, cut: Callable[[str], str]) -> str:
        return cut(self.cased(question))  # whose characters those of the tokens are


class TokenVectors(TokenOutputs):
    """The last state of every token, special ones included."""

    does = "gives a vector for each token"

    @classmethod
    def missing(cls, model: Model | ExportedModel) -> str | None:
        if isinstance(model, ExportedModel) and "last_hidden_state" not in model.outputs:
            return f"the exported graph has no output for each token; it gives {', '.join(model.outputs)}"
        return None

    @property
    def embedder(self) -> TextEmbedder | None:
        with suppress(ModelError):  # of a folder whose pooling is not supported
            return self.predictor.embedder
        return None

    @property
    def limit(self) -> int:
        embedder = self.embedder
        return super().limit if embedder is None else embedder.limit

    def cased(self, text: str) -> str:
        embedder = self.embedder
        return text if embedder is None else embedder.cased(text)

    def check_lengths(self, lengths: Sequence[InputLength]) -> None:
        tokens, size = sum(one.tokens for one in lengths), self.predictor.model.config.hidden_size
        if tokens > (most := NUMBERS // size):
            raise invalid(
                "batch_too_large",
                f"the texts have {tokens:,} tokens together, and the server gives the vectors of {most:,}; "
                "send fewer",
                tokens=tokens,
                limit=most,
            )

    def compute(self, questions: Sequence[str]) -> list[NDArray[np.float32]]:
        embedder = self.predictor.embedder
        return token_vectors(embedder, questions, check=False)[0]


class SparseVectors(TokenOutputs):
    """Weights of tokens of the vocabulary, by the masked-LM head."""

    does = "gives sparse vectors"
    needs = "a masked-LM head"

    @classmethod
    def missing(cls, model: Model | ExportedModel) -> str | None:
        if not isinstance(model, ExportedModel):
            return super().missing(model)
        try:
            model.check_mlm_head()
        except ModelError as error:
            return f"this needs {cls.needs}: the model {error.what}"
        return None

    @classmethod
    def has(cls, model: Model) -> bool:
        return model.mlm is not None

    def check_lengths(self, lengths: Sequence[InputLength]) -> None:
        if len(lengths) > (most := max(1, WEIGHTS // self.predictor.tokenizer.vocab_size)):
            raise invalid(
                "batch_too_large",
                f"{len(lengths):,} texts at once, and the server gives the sparse vectors of {most:,}; "
                "send fewer",
                limit=most,
            )

    def compute(self, questions: Sequence[str]) -> list[SparseVector]:
        model = self.predictor
        return sparse_vectors(model.model, model.tokenizer, questions, model.path, check=False)[0]


TOKEN_TASKS: dict[str, type[View]] = {"token-vectors": TokenVectors, "sparse-vectors": SparseVectors}
"""By the name of the task."""
