"""The served model: its tasks, the lengths of questions, and answers, by `Predictor` and the family of its
task, as the command line answers and as the model was scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

from albertine.errors import ModelError
from albertine.inference.fill_mask import fill_masks, no_mask
from albertine.serving.engine import finite
from albertine.serving.token_tasks import TOKEN_TASKS
from albertine.serving.views import VIEWS, View
from albertine.tasks.families import FAMILIES
from albertine.tasks.http.base import HttpTask, InputLength
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.base import Spans


class BatchKey(NamedTuple):
    """Questions of equal keys are computed together.

    Attributes:
        task: `embed`, `fill-mask`, the task of a family, or the name of a view.
        normalize: of vectors, whether they have length 1.
    """

    task: str
    normalize: bool = True


class VectorsHttp(HttpTask):
    """Vectors of texts, by any encoder. Routes are those of every server (`routes.py`)."""

    does = "gives vectors"
    routes: ClassVar = {}

    def __init__(self, model: Predictor) -> None:
        super().__init__(model)
        self.embedder = model.embedder

    @property
    def limit(self) -> int:
        return self.embedder.limit

    def info(self) -> dict[str, Any]:
        return {"embedding": {"pooling": self.embedder.how.pooling}}

    def lengths(self, questions: Sequence[str]) -> list[InputLength]:
        limit = self.limit
        rows = self.embedder.tokens(questions, whole=True)
        return [InputLength.of_rows([len(row) + 2], limit, row) for row in rows]

    def vectors(self, questions: Sequence[str | list[int]], *, normalize: bool) -> list[Any]:
        """The vector of each question; of one that was measured, its token ids suffice."""
        rows = [one if isinstance(one, list) else self.embedder.tokens([one])[0] for one in questions]
        return list(self.embedder.of_tokens(rows, normalize=normalize, check=False).vectors)

    def cut_right(self, question: str) -> str:
        return self.model.tokenizer.head(self.embedder.cased(question), self.limit)

    def cut_left(self, question: str, cut: Callable[[str], str]) -> str:
        return cut(self.embedder.cased(question))  # whose characters those of the tokens are


class MasksHttp(HttpTask):
    """Tokens under masks; a question is (text, candidates, ids to choose from or None)."""

    does = "fills masks"
    routes: ClassVar = {}

    def __init__(self, model: Predictor) -> None:
        super().__init__(model)
        self._limit = int(model.model.config.max_position_embeddings)

    @property
    def probe(self) -> tuple[str, int, None]:
        return self.model.tokenizer.special.mask, 1, None

    @property
    def limit(self) -> int:
        return self._limit

    def lengths(self, questions: Sequence[Any]) -> list[InputLength]:
        tokenizer, found = self.model.tokenizer, []
        for text, *how in questions:
            ids = tokenizer.encode_with_special_tokens(text)
            if tokenizer.mask_id not in ids[: self.limit - 2]:
                raise no_mask(text, self.limit)
            found.append(InputLength.of_rows([len(ids) + 2], self.limit, (ids, *how)))
        return found


OWN: dict[str, type[HttpTask]] = {"fill-mask": MasksHttp, "embed": VectorsHttp}
"""Tasks of pretrained models, which tuned ones may have too."""


class ServedModel:
    """A model and its tasks.

    Attributes:
        tasks: their names, that of the head first; each is tried once, which also warms the model up.
        views: by name of a view (`albertine.serving.views`, `token_tasks`) why the model does
            not have it; None: it does.
        facts: the response of `/analyze/model`, once it was requested.
        number_format: in which it computes: `float32`, `bfloat16`, `float16` or `int8`. device: where.

    Args:
        predictor: from now on used by one thread alone; lengths may be measured by others.
        name: of the model in responses.

    Raises:
        ModelError: it has no task that the server knows.
    """

    def __init__(self, predictor: Predictor, name: str) -> None:
        self.predictor, self.name = predictor, name
        self.facts: dict[str, Any] | None = None
        self.family = None
        with suppress(ModelError):
            self.family = predictor.family
        self.number_format = predictor.number_format
        self.device = str(getattr(predictor.model, "device", "cpu"))
        self._tasks: dict[str, HttpTask] = {}
        self._find_tasks()
        self.tasks = tuple(self._tasks)
        views = VIEWS | TOKEN_TASKS
        self.views = {name: view.missing(predictor.model) for name, view in views.items()}
        self._tasks |= {name: view(predictor) for name, view in views.items() if self.views[name] is None}
        if not self.tasks:
            raise ModelError(
                "has no task that the server offers",
                where=name,
                remedy="Serve a model that was tuned for a task, has vectors, or fills masks",
            )

    def _find_tasks(self) -> None:
        if self.family is not None and (http := FAMILIES[self.family.task].http) is not None:
            name = str(self.family.task)
            task = self._tasks[name] = http()(self.predictor)
            self.answer(BatchKey(name), [task.probe])
        for name, made in OWN.items():
            try:
                task = self._tasks[name] = made(self.predictor)
                works = finite(self.answer(BatchKey(name), [task.probe]))
            except ModelError:
                works = False
            if not works:
                self._tasks.pop(name, None)

    def task(self, name: str) -> HttpTask:
        """One of `tasks`, or of `views` that the model has."""
        return self._tasks[name]

    @property
    def of_family(self) -> HttpTask | None:
        """The task of its head."""
        return None if self.tasks[0] in OWN else self._tasks[self.tasks[0]]

    @property
    def mask(self) -> str:
        """The mask token."""
        return self.predictor.tokenizer.special.mask

    @property
    def probe(self) -> tuple[BatchKey, Any]:
        """A short question that this model can answer."""
        return BatchKey(self.tasks[0]), self._tasks[self.tasks[0]].probe

    @property
    def step_tokens(self) -> int:
        """How many tokens are fast to compute at once."""
        return int(self.predictor.model.tokens_per_pass)

    # ---- lengths, by any thread

    def lengths(self, key: BatchKey, questions: Sequence[Any]) -> list[InputLength]:
        """The length of every question.

        Raises:
            AlbertineError: one cannot be answered. In a batch with others, it would fail them all, and each
                would be computed again alone.
        """
        return self._tasks[key.task].lengths(questions)

    def characters(self, key: BatchKey, questions: Sequence[Any]) -> int:
        """How many characters `lengths` encodes for questions."""
        return sum(map(self._tasks[key.task].characters, questions))

    def spans(self, text: str) -> Spans:
        """The tokens of a text alone and their characters. Where masks are filled, a mask and the special
        tokens beside it are those tokens, as in `Tokenizer.encode_with_special_tokens`."""
        tokenizer = self.predictor.tokenizer
        return (
            tokenizer.encode_spans_with_special_tokens(text)
            if self._marked(text)
            else tokenizer.encode_spans(text)
        )

    def tokens(self, text: str) -> int:
        """How many tokens `spans` gives, in a small part of its time."""
        tokenizer = self.predictor.tokenizer
        return len(
            tokenizer.encode_with_special_tokens(text) if self._marked(text) else tokenizer.encode(text)
        )

    def _marked(self, text: str) -> bool:
        return self.tasks[0] == "fill-mask" and self.mask in text

    def end_that_fits(self, key: BatchKey, text: str) -> str:
        """The end of a text that fits a row."""
        room = self._tasks[key.task].limit - 2
        text = self.predictor.tokenizer.tail(text, room)
        for keep in range(room, 0, -1):  # again, since a token that is cut out of its word may become two
            starts = self.predictor.tokenizer.encode_spans(text).starts
            if len(starts) <= room:
                break
            text = text[starts[-keep] :]
        return text

    # ---- answers, by one thread

    def answer(self, key: BatchKey, questions: Sequence[Any]) -> Sequence[Any]:
        """The answers to questions, at least one, in their order, each a question as it was requested or what
        `InputLength.encoded` holds of it: of `embed` a vector (H,), of `fill-mask`
        `Guess`es for each mask, of a view what its `compute` gives, of a family what its `HttpTask.values`
        gives.

        Vectors and probabilities of tokens may hold NaN or infinities, so that one text that overflows does
        not fail those beside it.

        Raises:
            AlbertineError: what a client can cause.
        """
        predictor = self.predictor
        task = self._tasks[key.task]
        if isinstance(task, VectorsHttp):
            return task.vectors(questions, normalize=key.normalize)
        if key.task == "fill-mask":
            texts, counts, among = zip(*questions, strict=True)
            model, tokenizer = predictor.model, predictor.tokenizer
            return fill_masks(model, tokenizer, texts, counts, self.name, among, check=False)[0]
        if isinstance(task, View):
            return task.compute(questions)
        return task.values(*predictor.outputs_of(task.encode(questions)))


def ability(task: str) -> str:
    """A task as a verb with its object, for errors."""
    if task in OWN:
        return OWN[task].does
    known = FAMILIES[task]
    return (known.http and known.http().does) or f"can {known.words}"
