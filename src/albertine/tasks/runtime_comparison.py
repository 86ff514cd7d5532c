"""The ways to compute a model and its export, timed in turns on texts of three shapes, and whether each of
them predicts the same.

A way is a runtime in a number format: torch, and the graphs of the export. Its predictions are compared with
those of float32, by torch where there are weights.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from albertine.core.number_formats import InferencePrecision, Runtime
from albertine.errors import AlbertineError, ModelError
from albertine.interop.exported_folder import REPORT, graphs_in
from albertine.interop.runtimes import Timed, check_export
from albertine.interop.weights import read_json
from albertine.tasks.classify import Classify
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.base import Tokenizer

SHAPES = {"one text": (16,), "mixed lengths": tuple(range(8, 129, 8)), "full batch": (128,) * 8}
"""Tokens of the texts of each shape; fewer where the model or its head reads fewer."""
ROUNDS, SECONDS = 7, 2.0
"""Rounds of a shape; fewer, but at least three, once they have taken this time for each way."""
EXACT = 1e-3
"""Greatest difference of a probability, a score or a cosine from 1 in float32."""
SAME, COSINE = 0.9, 0.99
"""Least share of equal predictions, and least cosine of a vector, in coarser formats."""
_TEXTS = (
    "The old lighthouse stood on the northern cliff, and every evening the keeper climbed its stairs, wrote "
    "down the weather and the names of the ships, and lit the lamp. In winter nobody came for weeks. When a "
    "boat was lost in the storm of March, he rowed out with his daughter and brought nine people to land.",
    "旧灯塔立在北面的山崖上，看守人每天傍晚走上楼梯，记下天气和船只的名字，再点亮灯火。冬天常常几个星期没有人来。"
    "三月的风暴中一艘船沉没，他和女儿划船出去，把九个人带回岸上。",
)


@dataclass
class Way:
    """A runtime in a number format.

    Attributes:
        default: what the precision `auto` chooses in this runtime.
        same: share of predictions equal to those of float32. difference: the greatest of their numbers; for
            vectors, of the cosine from 1.
        refused: why it is not used; empty: it is.
    """

    runtime: str
    precision: str
    default: bool
    predictor: Predictor | None = None
    seconds: dict[str, list[float]] = field(default_factory=dict)
    same: float = 1.0
    difference: float = 0.0
    refused: str = ""

    @property
    def name(self) -> str:
        return f"{self.runtime} {self.precision}"

    @property
    def timed(self) -> Timed:
        """Its medians."""
        medians = {name: 1e3 * statistics.median(times) for name, times in self.seconds.items()}
        return Timed(self.runtime, self.precision, self.default, medians)


def compare(folder: Path, export: Path) -> list[Way]:
    """Open, compare and time each way to compute a model.

    Args:
        folder: of the model. export: what lies beside it, or the folder itself if it has no weights.

    Raises:
        ModelError: the export is of other weights, or float32 cannot be opened.
    """
    if export != folder:
        check_export(folder, export)
    answers = str(read_json(export / REPORT).get("answers"))
    ways = [] if export == folder else list(_of_torch(folder))
    ways += _of_graphs(folder, export)
    usable = [way for way in ways if way.predictor is not None]
    right = next((way for way in usable if way.precision == "float32"), None)
    if right is None:
        why = "; ".join(f"{way.name}: {way.refused}" for way in ways)
        raise ModelError(f"cannot be computed in float32 ({why})", where=folder)
    texts = {name: texts_of(right.predictor.tokenizer, lengths) for name, lengths in SHAPES.items()}  # type: ignore[union-attr]
    for way in usable:
        assert way.predictor is not None and right.predictor is not None
        for rows in texts.values():  # which also warms up
            _judge(
                way, _predictions(way.predictor, answers, rows), _predictions(right.predictor, answers, rows)
            )
    usable = [way for way in usable if not way.refused]
    for name, rows in texts.items():
        _time(usable, name, answers, rows)
    return ways


def _of_torch(folder: Path) -> Iterator[Way]:
    first = _opened(folder, "torch", "auto", True)
    yield first
    others: tuple[InferencePrecision, ...] = ("float32", "int8")
    for precision in others:
        if first.precision != precision:
            yield _opened(folder, "torch", precision, False)


def _of_graphs(folder: Path, export: Path) -> Iterator[Way]:
    for graph in graphs_in(export):
        default = graph.precision == "float32"
        yield _opened(folder, graph.runtime, graph.precision, default)  # type: ignore[arg-type]


def _opened(folder: Path, runtime: Runtime, precision: InferencePrecision, default: bool) -> Way:
    try:
        predictor = Predictor(folder, runtime=runtime, precision=precision)
    except AlbertineError as error:
        return Way(runtime, precision, default, refused=error.what)
    return Way(runtime, predictor.number_format, default, predictor)


def texts_of(tokenizer: Tokenizer, lengths: Sequence[int]) -> list[str]:
    """Texts of about so many tokens, each with another beginning, in the language of the vocabulary."""
    unknown = [tokenizer.encode(text).count(tokenizer.unk_id) / len(text) for text in _TEXTS]
    text = _TEXTS[int(np.argmin(unknown))]
    words = text.split() if " " in text else list(text)
    tokens = max(1.0, len(tokenizer.encode(text)) / len(words))
    found = []
    for i, length in enumerate(lengths):
        count = max(1, round((length - 2) / tokens))
        turned = [words[(7 * i + j) % len(words)] for j in range(count)]
        found.append((" " if " " in text else "").join(turned))
    return found


def _predictions(predictor: Predictor, answers: str, texts: Sequence[str]) -> list[Any]:
    """What is predicted for the texts: vectors, words under a mask, or the answers of the task."""
    if answers in ("embed", "features"):
        return list(predictor.embed(texts, normalize=True))
    if answers == "fill-mask":
        mask = predictor.tokenizer.id_to_piece(predictor.tokenizer.mask_id)
        return [guesses[0][0] for guesses in predictor.fill_mask_all([f"{mask} {x}" for x in texts], top_k=1)]
    other = texts[-1]
    more = {"pair": other, "question": other[:40], "options": [other[:20], other[20:40], other[40:60]]}
    rows = [{"text": text, "context": text, **more} for text in texts]
    family = predictor.family
    of_pairs = isinstance(family, Classify) and (family.pairs or family.pooling == "compared")
    return list(predictor.predict(rows, pair="pair" if of_pairs else None))


def _judge(way: Way, found: Sequence[Any], right: Sequence[Any]) -> None:
    """Record how far predictions are from those of float32, and refuse the way if that is too far."""
    exact = way.precision == "float32"
    equal = 0
    for one, two in zip(found, right, strict=True):
        if isinstance(one, np.ndarray):
            apart, same = 1 - float(one @ two), True
            same = apart <= (EXACT if exact else 1 - COSINE)
        else:
            (labels, numbers), (others, known) = _parted(one), _parted(two)
            same = labels == others and len(numbers) == len(known)
            apart = float(np.abs(np.subtract(numbers, known)).max(initial=0.0)) if same else 0.0
        equal += same
        way.difference = max(way.difference, apart)
    way.same = min(way.same, equal / len(found))
    apart = way.same < (1.0 if exact else SAME) or (exact and way.difference > EXACT)
    if apart and way.runtime != "torch":  # torch checks its int8 itself, and is used by default
        way.refused = f"other predictions than float32 ({way.same:.0%} alike)"


def _parted(prediction: Any) -> tuple[list[Any], list[float]]:
    """The parts of a prediction that are no fractions, and those that are."""
    labels: list[Any] = []
    numbers: list[float] = []
    ahead = [vars(prediction) if hasattr(prediction, "__dict__") else prediction]
    while ahead:
        part = ahead.pop()
        if isinstance(part, Mapping):
            ahead += [part[name] for name in sorted(part)]
        elif isinstance(part, list | tuple):
            ahead += part
        elif isinstance(part, float):
            numbers.append(part)
        else:
            labels.append(part)
    return labels, numbers


def _time(ways: Sequence[Way], name: str, answers: str, texts: Sequence[str]) -> None:
    """Time all ways in turns."""
    begin = time.perf_counter()
    for number in range(ROUNDS):
        if number >= 3 and time.perf_counter() - begin > SECONDS * len(ways):
            break
        for way in ways:
            assert way.predictor is not None
            start = time.perf_counter()
            _predictions(way.predictor, answers, texts)
            way.seconds.setdefault(name, []).append(time.perf_counter() - start)
