"""Ask a trained model: which word stands under [MASK], which of two passages comes first, which class a text
belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from albertine.errors import DataError, ModelError
from albertine.inference.answering import Answerer
from albertine.inference.embedding import TextEmbedder, cosines, how_of
from albertine.inference.options import option_rows
from albertine.inference.parity import check_int8
from albertine.inference.reading import Inquiry, Passage, read
from albertine.inference.relations import Relater, Relation
from albertine.inference.search import Draw, Search
from albertine.inference.spans import Answer
from albertine.inference.tags import best_tags, entities_of
from albertine.inference.whitening import read_whitening
from albertine.inference.writing import Written, lengths_told, source_row, write
from albertine.interop.heads import ClassifierHead, read_classifier
from albertine.interop.huggingface import read_folder
from albertine.interop.places import model_folder
from albertine.layout import Packed, longest_first, pack
from albertine.model.backend import tokens_per_pass
from albertine.model.pooling import Pooling, classified_rows
from albertine.precision import InferencePrecision
from albertine.text.load import check_vocabulary, load_tokenizer

MASK = "[MASK]"
Row = tuple[list[int], list[int]]
"""Token and segment ids."""


@dataclass(frozen=True)
class Guess:
    """One candidate for a masked position: the piece, its id and its probability in [0, 1]."""

    token: str
    token_id: int
    probability: float


class Predictor:
    """A model folder, ready to be asked.

    Args:
        path: folder with `config.json`, `model.safetensors` and the vocabulary, or a released model's name.
        device: where to compute.
        precision: format of matrix products; `auto` takes bfloat16 where hardware has it; `int8` is the
            fastest on a processor and rounds the most.

    Raises:
        ModelError, TokenizerError: the folder is missing, damaged, its vocabulary does not fit the model, or
            int8 makes another model of it.
        SettingsError: there is no int8 on that device.
    """

    def __init__(
        self, path: str | Path, *, device: str = "cpu", precision: InferencePrecision = "auto"
    ) -> None:
        self.device = torch.device(device)
        path = model_folder(path)
        self.tokenizer = load_tokenizer(path)
        self._path, self._folder = path, read_folder(path)
        self.model = self._folder.model.to(self.device).eval()
        self.model.precision = precision
        check_vocabulary(self.model.config.vocab_size, self.tokenizer, path)
        if precision == "int8":
            check_int8(self.model, path)

    @torch.inference_mode()
    def fill_mask(self, text: str, *, top_k: int = 5) -> list[list[Guess]]:
        """The `top_k` likeliest pieces for every [MASK] of `text`, best first; one list a mask."""
        ids = self.tokenizer(text, max_length=self.model.config.max_position_embeddings)["input_ids"]
        rows = [i for i, token in enumerate(ids) if token == self.tokenizer.mask_id]
        if not rows:
            raise DataError(
                f"there is no {MASK} in the text", remedy=f"Write {MASK} where a word is to be guessed"
            )
        if self.model.mlm is None:
            raise ModelError(
                "the model has no masked-LM head", remedy="Use a pretrained model, not a fine-tuned one"
            )
        logits, _ = self.model.pretraining_forward(
            pack([ids]).to(self.device), torch.tensor(rows, device=self.device)
        )
        special = torch.tensor(sorted(self.tokenizer.special_ids), device=self.device)
        logits = logits.float().index_fill(1, special, float("-inf"))[:, : self.tokenizer.vocab_size]
        probabilities, best = logits.softmax(-1).topk(top_k)
        return [
            [
                Guess(self.tokenizer.id_to_piece(token), token, probability)
                for token, probability in zip(tokens, values, strict=True)
            ]
            for tokens, values in zip(best.tolist(), probabilities.tolist(), strict=True)
        ]

    @torch.inference_mode()
    def sentence_order(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Probability that the first passage of each pair really comes before the second.

        For a model trained with next-sentence prediction: that the second follows the first at all.
        """
        if self.model.sentence is None:
            raise ModelError(
                "the model has no sentence head", remedy="Pretrain with objective.pairs sop or nsp"
            )
        encoded = [
            self.tokenizer(a, b, max_length=self.model.config.max_position_embeddings) for a, b in pairs
        ]
        packed = pack([e["input_ids"] for e in encoded], [e["token_type_ids"] for e in encoded]).to(
            self.device
        )
        _, logits = self.model.pretraining_forward(
            packed, torch.empty(0, dtype=torch.long, device=self.device)
        )
        assert logits is not None
        return list(logits.float().softmax(-1)[:, 0].tolist())

    @cached_property
    def classifier(self) -> ClassifierHead:
        """The sequence classifier of the folder.

        Raises:
            ModelError: it has none.
        """
        head = read_classifier(self._folder, self._path)
        return replace(head, weight=head.weight.to(self.device), bias=head.bias.to(self.device))

    @torch.inference_mode()
    def classify(self, texts: Sequence[str | tuple[str, str]]) -> list[dict[str, float]]:
        """For every text or pair the probability of each class, in the order of the classes; of a model that
        gives a score `{"score": value}`.

        Texts longer than the model's positions lose tokens from their end. What is computed together is
        bounded by tokens, so the list may be long.
        """
        head, positions = self.classifier, self.model.config.max_position_embeddings
        encode = self.tokenizer.encode
        rows = []
        for text in texts:
            a, b = (text, None) if isinstance(text, str) else text
            second = None if b is None else encode(b)
            rows.append(self.tokenizer.layout(encode(a), second, max_length=positions))
        results: dict[int, dict[str, float]] = {}
        lengths = [len(ids) for ids, _ in rows]
        for chosen in longest_first(lengths, tokens_per_pass(self.model.device)):
            logits = self._of_rows([rows[i] for i in chosen])
            for i, values in zip(chosen, _values(logits, head), strict=True):
                results[i] = values
        return [results[i] for i in range(len(rows))]

    @torch.inference_mode()
    def choose(self, passage: str, options: Sequence[str], *, question: str = "") -> list[float]:
        """The probability of each option.

        Args:
            passage: a text, or the beginning of one that the options go on with; "_" or "#idiom#" in it is
                filled with the option.
            question: asked about the passage, may hold a gap "_".

        Raises:
            ModelError: the model was not tuned to choose. DataError: fewer than two options.
        """
        if len(options) < 2:
            raise DataError("there is nothing to choose from", remedy="Give two options or more")
        head = self.classifier
        if len(head.bias) != 1:
            raise ModelError(
                "was tuned to classify, not to choose",
                where=self._path,
                remedy="Use a model tuned on RACE, DREAM, C3, ChID or own choices",
            )
        limit = self.model.config.max_position_embeddings
        rows, _ = option_rows(self.tokenizer, passage, question, options, limit)
        return list(self._of_rows(rows).squeeze(-1).softmax(-1).tolist())

    @torch.inference_mode()
    def tag(self, text: str) -> list[tuple[str, int, int]]:
        """The entities in a text: type, first character, end (exclusive).

        Nothing beyond the model's positions is looked at.

        Raises:
            ModelError: the model was not tuned to tag.
        """
        head, limit = self.classifier, self.model.config.max_position_embeddings
        if "O" not in head.labels:
            raise ModelError("was not tuned to tag", where=self._path, remedy="Use a model tuned on entities")
        spans = self.tokenizer.encode_spans(text)
        (logits,) = self._of_tokens([self.tokenizer.layout(spans.ids, max_length=limit)])
        return entities_of(spans, best_tags(logits[1:-1], head.labels, self._folder.extra))

    @cached_property
    def _relater(self) -> Relater:
        return Relater.of(self._folder, self._path)

    def relate(self, text: str) -> list[Relation]:
        """The relations that a text tells, each between two runs of its characters.

        Raises:
            ModelError: the model was not tuned to find relations.
        """
        return self._relater(text, self.tokenizer)

    @cached_property
    def answerer(self) -> Answerer:
        """The answering head of the folder, which also tells other likely spans and how likely it is that
        there is no answer.

        Raises:
            ModelError: the model was not tuned to answer.
        """
        return Answerer(self._folder, self.tokenizer, self._path)

    def answer(self, question: str, passage: str) -> Answer | None:
        """The part of the passage that answers the question best; None if the passage has nothing to show,
        or if the model finds that it does not answer the question (SQuAD v2.0).

        Raises:
            ModelError: the model was not tuned to answer.
            SettingsError: the question leaves no room for the passage.
        """
        return self.answerer.answer(question, passage)

    @cached_property
    def embedder(self) -> TextEmbedder:
        """What turns texts into vectors, as the folder says.

        Raises:
            ModelError: the folder has files of sentence-transformers that ask for what is not known here, or
                a whitening that does not fit.
        """
        config = self.model.config
        whitening = read_whitening(self._path, config.hidden_size, config.plan.depth)
        return TextEmbedder(self.model, self.tokenizer, how_of(self._folder, self._path), whitening)

    def embed(
        self, texts: Sequence[str], *, pooling: Pooling | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """The vectors of texts, float32 (texts, H), in their order.

        Any model can be asked. Texts longer than the model reads lose tokens from their end; `embedder` tells
        of how many.

        Args:
            pooling: as in `model.pooling`; None: as the folder says, else whitened where it can be, else the
                mean.
            normalize: whether vectors have length 1; None: as the folder says, else not.
        """
        asked = [texts] if isinstance(texts, str) else texts
        return self.embedder(asked, pooling=pooling, normalize=normalize).vectors

    def similarity(
        self, a: Sequence[str], b: Sequence[str], *, pooling: Pooling | None = None
    ) -> NDArray[np.float32]:
        """The cosine of the vector of every text of `a` with that of every text of `b`, (a, b)."""
        return cosines(self.embed(a, pooling=pooling), self.embed(b, pooling=pooling))

    @cached_property
    def lengths(self) -> tuple[int, int]:
        """The most tokens of a source and of a target that the model was tuned to generate with.

        Raises:
            ModelError: it was not.
        """
        return lengths_told(self._folder, self._path)

    @torch.inference_mode()
    def generate(
        self, text: str, pair: str | None = None, *, how: Search | Draw | None = None
    ) -> list[Written]:
        """Texts that a model tuned to generate writes after a text or a pair, by beams best first.

        Args:
            how: `Search` for the likeliest, `Draw` for drawn ones; by default two beams and the length of
                tuning.

        Raises:
            ModelError: the model was not tuned to generate. SettingsError: source and target need more
                positions than it has.
        """
        source, target = self.lengths
        encode = self.tokenizer.encode
        ids, _ = source_row(self.tokenizer, encode(text), None if pair is None else encode(pair), source)
        return write(self.model, self.tokenizer, [ids], how or Search(max_tokens=target))[0]

    @torch.inference_mode()
    def read(
        self,
        question: str,
        passages: str | Sequence[str],
        *,
        search: Search | None = None,
        extract: bool = True,
        always: bool = False,
    ) -> list[Written]:
        """The best answers to a question that passages give together, best first; "" is that there is none.

        Args:
            passages: of any length; each has a vote, a long one several.
            extract: an answer stands in a passage word for word; otherwise it is written freely.
            always: an answer is given even where every passage says that it has none.

        Raises:
            ModelError: the model was not tuned to generate. DataError: there is no passage.
        """
        source, target = self.lengths
        texts = [passages] if isinstance(passages, str) else passages
        if not texts:
            raise DataError("there is no passage to read", remedy="Give one or more")
        ids, spans = self.tokenizer.encode(question), self.tokenizer.encode_spans
        inquiry = Inquiry(tuple(Passage.of(self.tokenizer, ids, t, spans(t), source) for t in texts))
        search = search or Search(max_tokens=target)
        return read(self.model, self.tokenizer, [inquiry], search, extract=extract, always=always)[0]

    def _of_rows(self, rows: Sequence[Row]) -> torch.Tensor:
        """What the head says of every row, (rows, outputs)."""
        head = self.classifier
        x_SH = classified_rows(self.model, self._packed(rows), head.pooling)
        return F.linear(x_SH.float(), head.weight, head.bias)

    def _of_tokens(self, rows: Sequence[Row]) -> Sequence[torch.Tensor]:
        """What the head says of the tokens of every row, (tokens, outputs) each."""
        packed = self._packed(rows)
        hidden_TH = self.model.encoder(packed).last_hidden.float()
        logits = F.linear(hidden_TH, self.classifier.weight, self.classifier.bias)
        return torch.split(logits, list(packed.lengths))

    def _packed(self, rows: Sequence[Row]) -> Packed:
        return pack([ids for ids, _ in rows], [types for _, types in rows]).to(self.device)


def _values(logits: torch.Tensor, head: ClassifierHead) -> list[dict[str, float]]:
    if head.kind == "score":
        return [{"score": value} for value in logits.squeeze(-1).tolist()]
    probabilities = logits.softmax(-1) if head.kind == "single" else logits.sigmoid()
    return [dict(zip(head.labels, row, strict=True)) for row in probabilities.tolist()]
