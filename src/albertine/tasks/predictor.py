"""`Predictor`: predictions of a model folder, by torch, or by onnxruntime for exported models.

A tuned model predicts as it was evaluated: with the same family, lengths and thresholds.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from albertine.core.exit_rule import ExitRule
from albertine.core.files import user_path
from albertine.core.number_formats import InferencePrecision, Runtime
from albertine.errors import (
    DataError,
    ModelError,
    NotFinite,
    SettingsError,
    check_integer,
    missing_torch_error,
)
from albertine.inference.embedding import TextEmbedder, cosines, vector_settings
from albertine.inference.exported_model import ExportedModel
from albertine.inference.fill_mask import Guess, fill_masks
from albertine.inference.generative_reading import PassageQuestion, SourcePassage, generate_answers
from albertine.inference.probabilities import softmax
from albertine.inference.search import Draw, Search
from albertine.inference.seq2seq_rows import Written, generate_texts, source_row
from albertine.inference.spans import AnswerSpan, LikelySpans
from albertine.inference.tags import Entity
from albertine.inference.token_outputs import SparseVector, sparse_vectors, token_vectors
from albertine.inference.triples import Relation
from albertine.inference.whitening import read_whitening
from albertine.inference.zero_shot import TEMPLATE, hypotheses, nli_classes, zero_shot_scores
from albertine.interop.exported_folder import is_exported
from albertine.interop.heads import Task, left_to_right, task_of
from albertine.interop.huggingface.config import encoder_in, our_flags
from albertine.interop.model_files import files_of_model
from albertine.interop.model_folder import ModelDescription, ModelFolder
from albertine.interop.model_names import model_folder
from albertine.interop.runtimes import resolve_runtime
from albertine.model.config import Pooling
from albertine.tasks.answer import Question
from albertine.tasks.answerability import AnswerOrNot
from albertine.tasks.classify import Classify
from albertine.tasks.early_exit import ExitingClassify, check_exits, with_exit
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.families import family_of, load_state, tuned_model, wrong_task_error
from albertine.tasks.family import ArgumentFields, Family, Fields
from albertine.tasks.generate import Read, Write
from albertine.tasks.input_texts import text_of, texts_of
from albertine.tasks.multiple_choice import by_option, choices_of
from albertine.tasks.prediction_columns import answer_columns, chunks, with_answers
from albertine.tasks.prediction_rows import rows_to_predict
from albertine.tasks.readers.table import Header, Row
from albertine.tasks.readers.values import plain
from albertine.tokenizers.load import check_tokenizer, load_tokenizer

if TYPE_CHECKING:
    from albertine.inference.continuation import Going
    from albertine.model.model import Model
    from albertine.tasks.family import AnyModel

CHUNK = 4096
"""Rows of a table that are encoded and computed together."""


class Predictor:
    """Predictions of a model folder.

    Texts are a list, an array, a Series or a column of a table, of any length: they are split into batches by
    tokens. `DataError` names an element that is not text. Methods may be called from several threads; on CPU
    that is no faster than one thread, preferably always the same, since torch starts workers for each.

    Attributes:
        cut: how many rows of tokens (texts, options, questions) were too long so far and were truncated.

    Args:
        path: folder with `config.json`, `model.safetensors` (or, exported, a graph in `onnx`) and the
            vocabulary; a run folder, for its best model; a released model's name; or `owner/name` on the hub,
            optionally with `@revision`.
        device: where to compute.
        precision: format of matrix products; `auto` takes bfloat16 where hardware has it; `int8`, on CPU
            only, rounds more, and is faster where there is no AMX.
        batch_tokens: most tokens in one forward pass, which bounds memory; a longer text is computed alone.
            Default: what is fast on the device. Results differ by rounding only.
        runtime: `torch`; `onnx` or `openvino`, which compute an exported folder, or the one beside the model
            (`export` in its folder); `auto`, the fastest of these by the measurement of `albertine doctor` on
            this processor. Default: torch, and of an exported folder onnxruntime where it has such a graph.
        exit: of a classifier that was tuned with `training.exits`, when a text needs no further layers:
            `patience=2`, when two further layers predict the same, or `confidence=0.9`, when the prediction
            is that probable. Default: all layers. Answers do not depend on the other texts of a call, but for
            a text so near the limit that rounding decides.
        layers: another number of layers than the model has, as of `model.resharing.with_layers`: other loops
            of a repeated core, also more than in training, or the first layers of another encoder. Its
            head reads the last of them; a whitening is left out. Default: all.

    Raises:
        ModelError, TokenizerError: the folder is missing, damaged, its vocabulary does not fit the model, or
            int8 changes its predictions too much; the export of a runtime is missing, or of other weights;
            it has no head after every layer for `exit`; it has one, or is an exported graph, and `layers`
            is given.
        SettingsError: there is no such device or runtime, or no int8 on it; `batch_tokens` is less than 1;
            `exit` is no rule; the encoder cannot compute `layers` layers.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: str = "cpu",
        precision: InferencePrecision = "auto",
        batch_tokens: int | None = None,
        runtime: Runtime | None = None,
        exit: str | ExitRule | None = None,
        layers: int | None = None,
    ) -> None:
        if batch_tokens is not None and batch_tokens < 1:
            raise SettingsError("batch_tokens must be at least 1", remedy="Leave batch_tokens out")
        if layers is not None:
            check_integer("layers", layers, 1)
        self._exit, self._layers = ExitRule.parse(exit) if isinstance(exit, str) else exit, layers
        if (self._exit is not None or layers is not None) and runtime == "auto":
            runtime = None  # a graph always computes all layers
        path, self._runtime = resolve_runtime(model_folder(path).absolute(), runtime, precision, device)
        self._path, self.cut = path, 0
        self.model: Model | ExportedModel
        self._folder: ModelDescription
        if is_exported(path):
            if layers is not None:
                raise ModelError(
                    "is an exported graph, which always computes all layers",
                    where=path,
                    remedy="Use the model folder that it was exported from, with --runtime torch; or leave "
                    "--layers out",
                )
            self.model = ExportedModel(path, precision, batch_tokens, device, self._runtime)
            self._folder = self.model.folder
        else:
            self._folder = _read_folder(path, device, precision, batch_tokens, layers)
            if layers is not None and encoder_in(self._folder.config, path)[1].num_hidden_layers == layers:
                self._layers = None  # those of the folder
            self.model = self._folder.model
        self.tokenizer = load_tokenizer(path)  # last: a missing model is reported before a missing vocabulary
        check_tokenizer(self.model.config, self.tokenizer, path)
        if precision == "int8" and not isinstance(self.model, ExportedModel):
            from albertine.inference.int8_parity import check_int8

            check_int8(self.model, path)
        if self._exit is not None:
            check_exits(our_flags(self._folder.config).get("exits") is True, path)
            self.family  # noqa: B018  (raises here if it cannot exit)
        with suppress(ModelError):  # raised again where vectors are requested
            self.embedder  # noqa: B018  (read while the folder is there)

    @cached_property
    def family(self) -> Family:
        """The family of the model's task.

        Raises:
            ModelError: the folder holds no head of a task.
        """
        family = family_of(self._folder, self.tokenizer, self._path)
        load_state(family, self._folder)  # here, since two threads may each build a family
        return (
            family
            if self._exit is None
            else with_exit(family, self._exit, self._path, exported=is_exported(self._path))
        )

    @property
    def exits(self) -> bool:
        """Whether texts leave early."""
        return self._exit is not None

    @property
    def layers_used(self) -> Counter[int]:
        """With early exit, how many texts have left after each number of layers so far; else empty."""
        if self._exit is None or not isinstance(self.family, ExitingClassify):
            return Counter()
        return self.family.layers_used

    @cached_property
    def tuned(self) -> AnyModel:
        """The model with the head of its task. Raises as `family`."""
        if isinstance(self.model, ExportedModel):
            return self.model
        assert isinstance(self._folder, ModelFolder)
        return tuned_model(self._folder, self.family, self._path)

    @property
    def path(self) -> Path:
        """The folder that was read."""
        return self._path

    @property
    def number_format(self) -> str:
        """The number format that `auto` stands for on this machine, or that was given."""
        if isinstance(self.model, ExportedModel):
            return self.model.graph.precision
        with self._inference_mode(), self.model.encoder.forward_pass() as backend:
            form = backend.form
        return "int8" if form.int8 else str(form.dtype).removeprefix("torch.")

    @property
    def fingerprint(self) -> str:
        """A digest of all that determines predictions: the files of the folder, the precision, the runtime,
        the rule of early exit, the number of layers.

        Raises:
            ModelError: the folder is gone.
        """
        layers = "" if self._layers is None else f"layers={self._layers}"
        digest = hashlib.blake2b(
            f"{self.model.precision}{self._runtime or ''}{self._exit or ''}{layers}".encode(), digest_size=16
        )
        if not (files := files_of_model(self._path)):
            raise ModelError("is gone, so that it has no fingerprint", where=self._path)
        for path in files:
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
        digest.update(self.tokenizer.fingerprint.encode())
        return digest.hexdigest()

    def _inference_mode(self) -> AbstractContextManager[object]:
        """The context of all computation."""
        if isinstance(self.model, ExportedModel):
            return nullcontext()
        import torch

        return torch.inference_mode()

    def _torch_model(self, to: str) -> Model:
        """The model of torch.

        Args:
            to: what it is needed for, as a verb.

        Raises:
            ModelError: it was exported, and its graph cannot do that.
        """
        if not isinstance(self.model, ExportedModel):
            return self.model
        raise ModelError(
            f"is an exported graph, which is not made to {to}",
            where=self._path,
            remedy="Use the model folder that it was exported from",
        )

    def outputs(self, examples: Sequence[Any]) -> tuple[Any, Encoded]:
        """The outputs for one or more examples of the family, and the encoded examples.

        Raises:
            NotFinite: a number is NaN or infinite; names the first such example.
        """
        return self.outputs_of(self.family.encode(examples, self.tokenizer))

    def outputs_of(self, data: Encoded) -> tuple[Any, Encoded]:
        """The outputs for one or more encoded examples. Returns and raises as `outputs`."""
        self.cut += data.truncated + data.cut_questions
        try:
            return self._predicted(data), data
        except NotFinite as error:
            place = self._first_not_finite(data)
            where = getattr(data.source_examples[place], "where", "") or f"text {place + 1:,}"
            raise NotFinite(where=where) from error

    def _predicted(self, data: Encoded) -> Any:
        with self._inference_mode():
            return self.family.predict(self.tuned, data)

    def _first_not_finite(self, data: Encoded) -> int:
        """The index of the first example with an output that is not finite, found by bisection."""
        first, end = 0, len(data.examples)
        while end - first > 1:
            middle = (first + end) // 2
            try:
                self._predicted(data.some(range(first, middle)))
                first = middle
            except NotFinite:
                end = middle
        return first

    def predict(
        self,
        source: Any,
        *,
        text: str | int | None = None,
        pair: str | int | None = None,
        options: str | int | None = None,
        top: int = 0,
        header: Header = True,
        encoding: str = "utf-8",
    ) -> Iterator[dict[str, Any]]:
        """Every row of a table with its `prediction` and probability or score as further columns.

        Args:
            source: a file in any format that `finetune` reads for the model's task; rows in memory, in any
                form that `rows_of` reads; or a list of texts.
            text, pair, options: columns by name or number; default: those of the task (`Fields`).
            top: also return this many of the most probable classes, options or spans.
            header: of a CSV or TSV file, whether it begins with a line of names; or the names, if it does
                not.
            encoding: of a text file.

        Raises:
            ModelError: the folder has no task head. DataError: a row does not fit the task, or has a column
                with the name of a prediction column.
        """
        default = self.family.fields
        requested = {"text": text, "pair": pair, "options": options}
        columns = {name: str(column) for name, column in requested.items() if column is not None}
        fields = ArgumentFields(**{**asdict(default), **columns})
        if isinstance(source, str | Path):
            source = user_path(source, instead="A text stands in a list: predict([text])")
        elif isinstance(source, list | tuple) and source and isinstance(source[0], str):
            source = [{fields.text: one} for one in source]
        rows, named = rows_to_predict(source, self.family, fields, header=header, encoding=encoding)
        yield from (with_answers(row, columns) for row, columns in self.columns(rows, named, top=top))

    def columns(
        self, rows: Iterable[Row], fields: Fields | None = None, *, top: int = 0
    ) -> Iterator[tuple[Row, dict[str, Any]]]:
        """Every row with its prediction columns: `prediction`, and its probability or score.

        Rows are read and computed a few thousand at a time, so there may be any number of them.

        Args:
            fields: the columns with the input; default: those of the task.
            top: also return this many of the most probable classes, options or spans.

        Raises:
            ModelError: the folder has no task head. DataError: a row does not fit the task.
            SettingsError: `top` is negative.
        """
        check_integer("top", top, 0)
        family, fields = self.family, fields or self.family.fields
        family = family.with_top(top)
        for chunk in chunks(rows, CHUNK):
            outputs, data = self.outputs([family.example(row, fields) for row in chunk])
            predictions = family.predictions(outputs, data, family.answers(outputs, data))
            for row, prediction in zip(chunk, predictions, strict=True):
                yield row, answer_columns(prediction, top)

    def made_to(self, task: Task) -> Family:
        """The family of a model that was tuned for a task. Raises ModelError: it was not."""
        found = task_of(self._folder)
        if found is None and task == "classify" and (self._folder.shapes or self._folder.left_aside):
            found = self.family.task  # of a folder whose config.json names no head
        if found == "generate" and isinstance(self.family, Read):
            found = "read"  # by the same head
        if found != task:
            raise wrong_task_error(found, task, self._path)
        return self.family

    def fill_mask(self, text: str, *, top_k: int = 5) -> list[list[Guess]]:
        """For every [MASK] in `text` the `top_k` most probable tokens, best first."""
        return self.fill_mask_all([text], top_k=top_k)[0]

    def fill_mask_all(
        self,
        texts: Iterable[str],
        *,
        top_k: int | Sequence[int] = 5,
        among: Sequence[Collection[int] | None] | None = None,
    ) -> list[list[list[Guess]]]:
        """`fill_mask` of many texts, computed together.

        Args:
            top_k: for all texts, or one for each text.
            among: for every text the ids of the only tokens to choose from, or None for all.

        Raises:
            ModelError, DataError, SettingsError: as `fill_masks`.
        """
        found, cut = fill_masks(self.model, self.tokenizer, texts_of(texts), top_k, self._path, among)
        self.cut += cut
        return found

    def sentence_order(self, pairs: Iterable[tuple[str, str]]) -> list[float]:
        """Probability that the passages of each pair are in their original order; for a model trained with
        next-sentence prediction, that the second follows the first."""
        model = self._torch_model("predict the order of passages")
        from albertine.inference.pretraining_heads import sentence_order_probabilities

        chances, cut = sentence_order_probabilities(
            model, self.tokenizer, texts_of(pairs, "pairs", pairs=True)
        )
        self.cut += cut
        return chances

    def classify(
        self, texts: str | Iterable[str | tuple[str, str]], *, logits: bool = False
    ) -> list[dict[str, float]]:
        """For every text or pair the probability of each class, in the order of the classes; for a regression
        model `{"score": value}`.

        Args:
            logits: return logits instead of probabilities, and a score before any sigmoid.

        Raises:
            ModelError: the model was not tuned to classify.
        """
        family = self.made_to("classify")
        assert isinstance(family, Classify)
        pairs = [(text, None) if isinstance(text, str) else text for text in texts_of(texts, pairs=None)]
        if not pairs:
            return []
        examples = [Example(str(i), a, b, None, f"text {i + 1}") for i, (a, b) in enumerate(pairs)]
        outputs, _ = self.outputs(examples)
        names = family.labels or ("score",)
        values = family.logits(outputs).tolist() if logits else family.values(outputs)
        return [dict(zip(names, row, strict=True)) for row in values]

    def zero_shot(
        self,
        texts: str | Iterable[str],
        labels: Sequence[str],
        *,
        template: str = TEMPLATE,
        multi_label: bool = False,
    ) -> list[dict[str, float]]:
        """For every text the score of each label, in the order of the labels, by a model that was tuned for
        natural language inference: whether the text entails the label in a template. As the
        `zero-shot-classification` pipeline of transformers.

        Args:
            labels: one or more, each once. template: with one {} where the label goes.
            multi_label: score each label by itself, against contradiction; otherwise the scores of a text sum
                to 1.

        Raises:
            ModelError: the model was not tuned to classify, or no class means entailment.
            SettingsError: there is no label, or one is there twice, or the template has not one place.
        """
        family = self.made_to("classify")
        assert isinstance(family, Classify)
        classes = nli_classes(family.labels, self._path)
        labels = texts_of(labels, "labels")
        if not labels or len(set(labels)) < len(labels):
            raise SettingsError(
                f"`{next(x for x in labels if labels.count(x) > 1)}` is there twice"
                if labels
                else "no label",
                where="labels",
                remedy="Give one or more labels, each once",
            )
        firsts, seconds = texts_of(texts), hypotheses(labels, template)
        pairs = [(first, second) for first in firsts for second in seconds]
        if not pairs:
            return []
        examples = [
            Example(str(i), a, b, None, f"text {i // len(labels) + 1}") for i, (a, b) in enumerate(pairs)
        ]
        logits = family.logits(self.outputs(examples)[0])
        table = zero_shot_scores(logits, classes, len(labels), multi_label=multi_label)
        return [dict(zip(labels, row, strict=True)) for row in table.tolist()]

    def choose(
        self, passage: str, options: Sequence[str], *, question: str = "", logits: bool = False
    ) -> list[float]:
        """The probability of each option.

        Args:
            passage: a text, or the beginning of a text that the options continue; "_" or "#idiom#" in it is
                replaced by the option.
            question: about the passage; may contain a gap "_".
            logits: return the logit of each option instead; probabilities are their softmax.

        Raises:
            ModelError: the model was not tuned to choose. DataError: as `choices_of`.
        """
        return self.choose_all([(passage, options, question)], logits=logits)[0]

    def choose_all(
        self, asked: Sequence[tuple[str, Sequence[str], str]], *, logits: bool = False
    ) -> list[list[float]]:
        """As `choose`, of many (passage, options, question) at once."""
        self.made_to("choose")
        examples = choices_of([plain(one, f"asked[{i}]") for i, one in enumerate(asked)])
        if not examples:
            return []
        outputs, data = self.outputs(examples)
        table = by_option(outputs, data.sizes)
        values = (table if logits else softmax(table)).tolist()
        return [row[:count] for row, count in zip(values, data.sizes, strict=True)]

    def tag(self, text: str) -> list[Entity]:
        """The entities in a text: type, first character, end (exclusive).

        Raises:
            ModelError: the model was not tuned to tag.
        """
        return self.tag_all([text])[0]

    def tag_all(self, texts: Iterable[str]) -> list[list[Entity]]:
        """As `tag`, of many texts at once."""
        family = self.made_to("tag")
        examples = [Example(str(i), text, None, None, "") for i, text in enumerate(texts_of(texts))]
        return family.answers(*self.outputs(examples)) if examples else []

    def relate(self, text: str) -> list[Relation]:
        """The relations in a text, each between two spans of characters.

        Raises:
            ModelError: the model was not tuned to find relations.
        """
        return self.relate_all([text])[0]

    def relate_all(self, texts: Iterable[str]) -> list[list[Relation]]:
        """As `relate`, of many texts at once."""
        self.made_to("relate")
        examples = [Example(str(i), text, None, None, "") for i, text in enumerate(texts_of(texts))]
        return list(self.outputs(examples)[0]) if examples else []

    def answer(self, question: str, passage: str) -> AnswerSpan | None:
        """The span of the passage that answers the question best; None if the passage is empty, or if the
        model predicts that it has no answer (SQuAD v2.0).

        Raises:
            ModelError: the model was not tuned to answer.
            SettingsError: the question leaves no room for the passage.
        """
        return self.likely_spans([(question, passage)])[0].best(self.threshold)

    def likely_spans(self, asked: Iterable[tuple[str, str]]) -> list[LikelySpans]:
        """For every (question, passage) the most probable spans of the passage, and the probability that it
        has no answer. Raises as `answer`."""
        self.made_to("answer")
        pairs = texts_of(asked, "asked", pairs=True)
        examples = [Question(str(i), q, p, None, "") for i, (q, p) in enumerate(pairs)]
        return list(self.outputs(examples)[0]) if examples else []

    @property
    def threshold(self) -> float:
        """`answer` returns None above this probability that the passage has no answer."""
        self.made_to("answer"), self.tuned  # `tuned` reads the threshold from the folder
        return self.family.threshold if isinstance(self.family, AnswerOrNot) else 1.0

    @cached_property
    def embedder(self) -> TextEmbedder:
        """The encoder of texts to vectors, with the pooling of the folder.

        Raises:
            ModelError: the folder has files of sentence-transformers with modules that are not supported, or
                a whitening that does not fit.
        """
        config, whitening = self.model.config, None
        # An exported graph includes the whitening; other layers have another one, which is not there.
        if not isinstance(self.model, ExportedModel) and self._layers is None:
            whitening = read_whitening(self._path, config.hidden_size, config.plan.depth)
        return TextEmbedder(self.model, self.tokenizer, vector_settings(self._folder, self._path), whitening)

    def embed(
        self, texts: str | Iterable[str], *, pooling: Pooling | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """The vectors of texts, float32 (texts, H), in their order.

        Any model can be used. Texts longer than its positions are truncated at the end; `cut` counts them.

        Args:
            pooling: as in `model.pooling`; None: that of the folder, else whitened if possible, else mean.
            normalize: scale vectors to length 1; None: as set in the folder, else not.
        """
        found = self.embedder(texts_of(texts), pooling=pooling, normalize=normalize)
        self.cut += found.cut
        return found.vectors

    def embed_all(self, texts: str | Iterable[str]) -> list[NDArray[np.float32]]:
        """The last state of every token of every text, special tokens included, float32 (tokens, H) each.
        Texts are truncated as for `embed`."""
        found, cut = token_vectors(self.embedder, texts_of(texts))
        self.cut += cut
        return found

    def embed_sparse(self, texts: str | Iterable[str]) -> list[SparseVector]:
        """The sparse vector of every text over the vocabulary by the masked-LM head: token ids and positive
        weights, the maximum over the tokens of the text of log(1 + relu(logit)), as SPLADE.

        Raises:
            ModelError: the model has no masked-LM head.
        """
        found, cut = sparse_vectors(self.model, self.tokenizer, texts_of(texts), self._path)
        self.cut += cut
        return found

    def similarity(
        self, a: Iterable[str], b: Iterable[str], *, pooling: Pooling | None = None
    ) -> NDArray[np.float32]:
        """The cosine of the vector of every text of `a` with that of every text of `b`, (a, b)."""
        return cosines(self.embed(a, pooling=pooling), self.embed(b, pooling=pooling))

    @property
    def writer(self) -> Write:
        """The lengths and the search of a model that was tuned to generate. Raises ModelError: it was not."""
        return cast("Write", self.made_to("generate"))

    @property
    def reader(self) -> Read:
        """The same of a model that was tuned to read."""
        return cast("Read", self.made_to("read"))

    def generate(
        self, text: str, pair: str | None = None, *, how: Search | Draw | None = None
    ) -> list[Written]:
        """Texts generated from a text or a pair, best first.

        Args:
            how: `Search` for beam search, `Draw` for sampling; by default as it was evaluated.

        Raises:
            ModelError: the model was not tuned to generate. SettingsError: source and target need more
                positions than it has.
        """
        model, family, encode = self._torch_model("generate"), self.writer, self.tokenizer.encode
        second = None if pair is None else encode(text_of(pair, "pair"))
        ids, cut = source_row(self.tokenizer, encode(text_of(text, "text")), second, family.room.source)
        self.cut += cut
        return generate_texts(model, self.tokenizer, [ids], how or family.search)[0]

    def go_on(self, text: str, how: Search | Draw, going: Going | None = None) -> list[Written]:
        """Continuations of a text by a pretrained XLNet or Transformer-XL, best first.

        Args:
            going: length of the segment memory and direction of training; default: as set in its folder.

        Raises:
            DataError: there is no text. ModelError: another kind of model.
        """
        model = self._torch_model("go on with a text")
        from albertine.inference.continuation import Going

        if model.config.positions != "relative" or model.lm is None:
            raise ModelError(
                "is no language model with relative positions, and cannot go on with a text",
                where=self._path,
                remedy="Use an XLNet, or pretrain with positions=relative and kind causal or permutation",
            )
        if not (ids := self.tokenizer.encode(text_of(text, "text"))):
            raise DataError("there is no text to go on with", remedy="Give a word or more")
        going = going or Going()
        if going.left_to_right is None:
            going = replace(going, left_to_right=left_to_right(self._folder))
        return generate_texts(model, self.tokenizer, [ids], how, going=going)[0]

    def read(
        self,
        question: str,
        passages: str | Iterable[str],
        *,
        search: Search | None = None,
        extract: bool = True,
        always: bool | None = None,
    ) -> list[Written]:
        """The answers to a question generated from passages together, best first; "" means no answer.

        Args:
            passages: of any length; each window of a passage has a vote.
            search: by default as it was evaluated.
            extract: restrict answers to spans of a passage; otherwise they are generated freely.
            always: return an answer even if all passages predict none; default: as it was evaluated.

        Raises:
            ModelError: the model was not tuned to read. DataError: there is no passage.
        """
        model, family, texts = self._torch_model("read"), self.reader, texts_of(passages, "passages")
        if not texts:
            raise DataError("there is no passage to read", remedy="Give one or more")
        ids, room = self.tokenizer.encode(text_of(question, "question")), family.room.source
        spans = self.tokenizer.encode_spans
        inquiry = PassageQuestion(
            tuple(SourcePassage.of(self.tokenizer, ids, t, spans(t), room) for t in texts)
        )
        self.cut += inquiry.cut
        how, always = search or family.search, family.always if always is None else always
        return generate_answers(model, self.tokenizer, [inquiry], how, extract=extract, always=always)[0]


def _read_folder(
    path: Path, device: str, precision: InferencePrecision, batch_tokens: int | None, layers: int | None
) -> ModelFolder:
    """A model folder with its model on the device, in evaluation mode."""
    try:
        from albertine.core.devices import parse_device
        from albertine.interop.huggingface.folders import read_folder
    except ModuleNotFoundError as error:
        raise missing_torch_error(error, where=path) from error
    place, folder = parse_device(device), read_folder(path, layers=layers)
    model = folder.model.to(place).eval()
    model.precision, model.batch_tokens = precision, batch_tokens
    return folder
