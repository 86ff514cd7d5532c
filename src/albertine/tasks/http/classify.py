"""HTTP interface of classifiers: `/`, `/predict`, with a score `/rerank`, with entailment `/zero-shot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from albertine.errors import ModelError, SettingsError
from albertine.inference.probabilities import sigmoid, softmax
from albertine.inference.zero_shot import TEMPLATE, NliClasses, hypotheses, nli_classes, zero_shot_scores
from albertine.tasks.classify import Classify
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.http.base import (
    JSON,
    TEXTS,
    Answer,
    Body,
    HttpRoute,
    HttpTask,
    Several,
    Truncation,
    listed,
)
from albertine.tasks.http.errors import invalid
from albertine.tasks.http.rank import EXAMPLE, Ranking, TextsToRank, ranking, texts_to_rank

OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2, fail_fast=True)]
Pairs = Annotated[list[OneOrTwo], Field(min_length=1, fail_fast=True)]
ONE_PAIR_OR_MANY = "a text, a list of one or two texts (a pair), or a list of such lists"
MOST_PAIRS = 65_536
"""Most pairs of a text and a label that a request may consist of, whatever the limits of the server are."""
Question = tuple[str, str | None]
Logits = NDArray[np.float32]


class TextsToClassify(Truncation):
    """`/predict`."""

    inputs: str | OneOrTwo | Pairs = Field(description=ONE_PAIR_OR_MANY)
    raw_scores: bool = False


class TextAndPair(Body):
    """A pair as pipelines of transformers take it."""

    text: str
    text_pair: str | None = None


class ClassParameters(Truncation):
    """`parameters` of `/`."""

    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    top_k: int | None = Field(None, ge=1, description="a whole number from 1")


class TextsOfClasses(Body):
    """`/`: a list is of texts, not a pair."""

    inputs: (
        str | Several | TextAndPair | Annotated[list[TextAndPair], Field(min_length=1, fail_fast=True)]
    ) = Field(description=TEXTS + ', or {"text": text, "text_pair": text}, or a list of these')
    parameters: ClassParameters = ClassParameters()


class LabelScore(Answer):
    """A class or label and its score."""

    label: str
    score: float


class LabelParameters(Truncation):
    """`parameters` of `/zero-shot`."""

    candidate_labels: Annotated[list[str], Field(min_length=1, max_length=1000, fail_fast=True)] = Field(
        description="a list of 1 to 1000 labels"
    )
    hypothesis_template: str = Field(
        TEMPLATE, max_length=1000, description="a text of at most 1000 characters with {} for the label"
    )
    multi_label: bool = False


class TextsToLabel(Body):
    """`/zero-shot`, and `/` for it."""

    inputs: str | Several = Field(description=TEXTS)
    parameters: LabelParameters = Field(description='{"candidate_labels": list of labels, ...}')


class Pipeline(HttpRoute):
    """`/`: a list of classes for every text, even for one: clients take the first element."""

    schema = TextsOfClasses
    response_type = list[list[LabelScore]]
    example: ClassVar = {"inputs": "A film to see twice.", "parameters": {"top_k": 2}}

    def questions(self, task: ClassifyHttp, request: TextsOfClasses) -> list[Question]:
        inputs = listed(request.inputs)
        return [(one, None) if isinstance(one, str) else (one.text, one.text_pair) for one in inputs]

    def response(
        self,
        task: ClassifyHttp,
        request: TextsOfClasses,
        questions: Sequence[Question],
        values: Sequence[Logits],
    ) -> JSON:
        parameters = request.parameters
        found = task.classes(np.stack(values), parameters.function_to_apply)
        return [row[: parameters.top_k] for row in found]


class Predict(HttpRoute):
    """`/predict`: classes, the likeliest first; flat for a text or a pair, a list of lists for a batch."""

    schema = TextsToClassify
    response_type = list[LabelScore] | list[list[LabelScore]]
    example: ClassVar = {"inputs": [["A film to see twice."], ["A waste of time."]]}

    def questions(self, task: ClassifyHttp, request: TextsToClassify) -> list[Question]:
        rows: list[Any] = [listed(request.inputs)] if _single(request) else list(request.inputs)
        questions = [(row[0], row[1] if len(row) > 1 else None) for row in rows]
        paired = next((i for i, (_, second) in enumerate(questions) if second is not None), None)
        if paired is not None and task.classifier.pairs is False:
            raise invalid(
                "not_answerable",
                "a list of two texts is a pair, and the model was tuned with single texts. Write each in a "
                'list of its own, [["one"], ["two"]]; or use `/`, where a list is of several texts',
                index=paired,
            )
        return questions

    def response(
        self,
        task: ClassifyHttp,
        request: TextsToClassify,
        questions: Sequence[Question],
        values: Sequence[Logits],
    ) -> JSON:
        found = task.classes(np.stack(values), "none" if request.raw_scores else None)
        return found[0] if _single(request) else found


def _single(request: TextsToClassify) -> bool:
    return isinstance(request.inputs, str) or isinstance(request.inputs[0], str)


class Rerank(HttpRoute):
    """`/rerank`: by the score of query and text as a pair."""

    schema = TextsToRank
    response_type = Ranking
    example = EXAMPLE

    def questions(self, task: ClassifyHttp, request: TextsToRank) -> list[Question]:
        texts = texts_to_rank(request)
        if task.classifier.labels:
            raise invalid(
                "not_for_this_model",
                "this model predicts classes, and no score to rank by",
                wanted="rerank",
            )
        return [(request.query, text) for text in texts]

    def response(
        self,
        task: ClassifyHttp,
        request: TextsToRank,
        questions: Sequence[Question],
        values: Sequence[Logits],
    ) -> JSON:
        logits = np.stack(values)[:, 0]
        # Sorted by the logits: the sigmoids of large ones are equal.
        scores = sigmoid(logits) if request.raw_scores is False else logits
        return ranking(request, logits.tolist(), scores.tolist())


class ZeroShot(HttpRoute):
    """`/zero-shot`: the labels of the request with their scores, the best first, of equal ones in the order
    of the request; for a list of texts a list of that."""

    schema = TextsToLabel
    response_type = list[LabelScore] | list[list[LabelScore]]
    example: ClassVar = {
        "inputs": "The match was lost in the last minute.",
        "parameters": {"candidate_labels": ["sport", "politics"]},
    }

    def claims(self, body: Mapping[str, Any]) -> bool:
        parameters = body.get("parameters")
        return isinstance(parameters, dict) and "candidate_labels" in parameters

    def input_of(self, request: TextsToLabel, question: int) -> int:
        return question // len(request.parameters.candidate_labels)

    def questions(self, task: ClassifyHttp, request: TextsToLabel) -> list[Question]:
        texts, parameters = listed(request.inputs), request.parameters
        classes = task.nli_classes()
        if classes.contradiction is None and _alone(parameters):
            raise invalid(
                "not_for_this_model",
                "this model has no class that means contradiction, which a label alone is compared with; "
                "send several labels, without multi_label",
                wanted="zero-shot",
                able=[task.family.task],
            )
        if (count := len(texts) * len(parameters.candidate_labels)) > MOST_PAIRS:  # before they are made
            raise invalid(
                "batch_too_large",
                f"{count:,} pairs of a text and a label at once, and the server takes in {MOST_PAIRS:,}; "
                "send fewer",
                limit=MOST_PAIRS,
            )
        try:
            pairs = hypotheses(parameters.candidate_labels, parameters.hypothesis_template)
        except SettingsError as error:
            field = "parameters.hypothesis_template"
            raise invalid("invalid_type", f"`{field}`: {error.what}. {error.remedy}", field=field) from None
        return [(text, pair) for text in texts for pair in pairs]

    def response(
        self,
        task: ClassifyHttp,
        request: TextsToLabel,
        questions: Sequence[Question],
        values: Sequence[Logits],
    ) -> JSON:
        labels, several = request.parameters.candidate_labels, request.parameters.multi_label
        classes = task.nli_classes()
        table = zero_shot_scores(np.stack(values), classes, len(labels), multi_label=several).tolist()
        found = [
            [{"label": labels[i], "score": row[i]} for i in sorted(range(len(labels)), key=lambda i: -row[i])]
            for row in table
        ]
        return found[0] if isinstance(request.inputs, str) else found


def _alone(parameters: LabelParameters) -> bool:
    """Whether each label is scored by itself."""
    return parameters.multi_label or len(parameters.candidate_labels) == 1


class ClassifyHttp(HttpTask):
    """Classes or a score of texts and pairs; a question is (text, pair or None)."""

    does = "predicts classes"
    routes: ClassVar = {
        "/": Pipeline(),
        "/predict": Predict(),
        "/rerank": Rerank(),
        "/zero-shot": ZeroShot(),
    }

    @property
    def classifier(self) -> Classify:
        family = self.family
        assert isinstance(family, Classify)
        return family

    @property
    def probe(self) -> Question:
        of_pairs = self.classifier.pairs or self.classifier.pooling == "compared"
        return "a", "a" if of_pairs else None

    def nli_classes(self) -> NliClasses:
        """Which classes mean entailment and contradiction.

        Raises:
            HttpError: none means entailment.
        """
        try:
            return nli_classes(self.classifier.labels)
        except ModelError as error:
            message = f"this model {error.what}"
            raise invalid(
                "not_for_this_model", message, wanted="zero-shot", able=[self.family.task]
            ) from None

    def info(self) -> dict[str, Any]:
        labels = self.classifier.labels or ("score",)
        names = {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
        return {"classifier" if self.classifier.labels else "reranker": names}

    def example(self, question: Question, name: str) -> Example:
        return Example(name, *question, None, "")

    def cut_right(self, question: Question) -> Question:
        (text, pair), head, limit = question, self.model.tokenizer.head, self.limit
        return head(text, limit), None if pair is None else head(pair, limit)

    def cut_left(self, question: Question, cut: Callable[[str], str]) -> Question | None:
        text, pair = question
        return (cut(text), None) if pair is None else None

    def values(self, outputs: Any, data: Encoded) -> list[Logits]:
        """The logits of every text, (classes,)."""
        return list(self.classifier.logits(outputs))

    def classes(self, logits: Logits, function: str | None) -> list[list[dict[str, Any]]]:
        """Labels and scores of every row, the likeliest first, of equal ones in the order of the classes.

        Args:
            function: `softmax`, `sigmoid` or `none` of the logits; None: as the model was tuned.
        """
        if function is None:
            table = self.classifier.values(logits)
        else:
            table = {"softmax": softmax, "sigmoid": sigmoid}.get(function, np.asarray)(logits).tolist()
        names = self.classifier.labels or ("score",)
        pairs = [sorted(zip(names, row, strict=True), key=lambda one: -one[1]) for row in table]
        return [[{"label": name, "score": score} for name, score in row] for row in pairs]
