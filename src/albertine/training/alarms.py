"""Training alarms: updates that are not finite, and a model that does not learn.

Pretraining ALBERT from scratch fails in a few known ways: the masked-LM loss stays at the unigram entropy
(6.6 to 7.3 nats with 30,000 tokens), a run collapses midway (accuracy .45 to .06), sentence order stays at
chance. Most reports come down to 0.00176, the published learning rate for batch 4096, with a smaller batch
(huggingface/transformers#5984 and #4727, kamalkraj/ALBERT-TF2.0#21, google-research/albert#29).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from albertine.errors import RunError
from albertine.training.schedules import MUON_RATE, PUBLISHED, published_rate

ONSET = 0.3
"""Context gain in nats at which a model counts as using the context (the context-gain onset). Without context
the gain is 0; in stuck runs it was measured to stay below .1."""

LOW_RATE = 3  # a higher learning rate is advised below this fraction of the reference rate

SIMILAR = 0.9  # mean cosine of final states
MAX_WARMUP = 0.2  # that is advised, as a share of a run

_SMOOTH = 5  # lines in a median, which ignores two outliers in a row
_WINDOW = 12  # points over the patience on which an alarm is based


def onset_minute(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Minutes of training to the first evaluation with a context gain over `ONSET`; None if there is none.

    Args:
        rows: of `metrics.jsonl`.
    """
    for row in rows:
        gain = row.get("context_gain")  # null where it was not finite
        if isinstance(gain, int | float) and gain > ONSET and "elapsed" in row:
            return float(row["elapsed"]) / 60
    return None


def not_finite(step: int, cursor: Mapping[str, Any] | None, checkpoint: Path | None) -> RunError:
    """The error of a step whose loss or gradient is not finite; its update was not made.

    Args:
        cursor: after the batch before it. checkpoint: from which the run can be branched, if there is one.
    """
    return RunError(
        f"the loss or its gradient is not finite at step {step}; the weights stay as they were",
        where=f"batch after {dict(cursor)}" if cursor else "first batch",
        remedy=f"{_lower_rate(checkpoint)}; training.precision=float32 shows whether the number format is "
        "the cause",
    )


def weights_not_finite(step: int, name: str, checkpoint: Path | None) -> RunError:
    """The error of weights that are NaN or infinite after an update; no checkpoint of them is written.

    Args:
        name: of such a tensor. checkpoint: the last one, whose weights are finite, if the run can be
            branched.
    """
    return RunError(
        f"the weights are not finite after step {step}, and were not saved: its update was too large",
        where=name,
        remedy=_lower_rate(checkpoint),
    )


def _lower_rate(checkpoint: Path | None) -> str:
    lower = "a lower training.learning_rate or a longer training.warmup"
    if checkpoint is None:
        return f"Begin again under another name with {lower}"
    return (
        f"Go on in a new run with {lower}: give another name and --branch-from {checkpoint} (or one before "
        "it, if the loss had grown by then)"
    )


UNMOVED = 20
"""First steps of a run after which a gradient that was always exactly zero is an error. A single batch may
have a zero gradient, such as one of pairs with equal scores."""


def no_gradient(steps: int, loss: float, remedy: str) -> RunError:
    """The error of a run whose gradient was exactly zero in all of its steps.

    Args:
        loss: of the last step, a mean in nats. remedy: of the error.
    """
    which = "the only step" if steps == 1 else f"all of the first {steps} steps"
    return RunError(
        f"the gradient is exactly zero in {which}: the loss ({loss:.4g}) does not depend on the weights, so "
        "nothing is learned",
        remedy=remedy,
    )


AlarmKind = Literal["plateau", "slow_start", "divergence", "collapse", "sentence_chance", "sentence_collapse"]


@dataclass(frozen=True)
class Alarm:
    """A sign that a model does not learn.

    Attributes:
        step: at which it was raised.
        what: the observation, with numbers. advice: settings to change, the most likely cause first.
    """

    kind: AlarmKind
    step: int
    what: str
    advice: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind.upper().replace('_', ' ')}: {self.what}. " + " ".join(self.advice)


class _Evaluation(NamedTuple):
    """Context gain in nats, and mean cosine of final states, of an evaluation.

    The alarm depends on the gain alone. In runs of benchmarks/ladder.py the cosine was .88 for a model that
    used the context, at a loss of 6.1 on [MASK], and .55 for one that hardly did, at 6.7.
    """

    step: int
    gain: float
    cosine: float


@dataclass
class TrainingAlarms:
    """Checks every metrics line; an alarm is raised once, and again only after its condition has ended.

    Whether a model uses the context is decided by the evaluations, where they have its loss on [MASK]: the
    context gain is how far that is below the unigram entropy. The training loss is a substitute, as it falls
    already by copying, which is possible for a tenth of the predicted tokens.

    Attributes:
        unigram_entropy: cross-entropy in nats of predicting tokens by their frequency.
        unigram_accuracy: accuracy of always predicting the most frequent token.
        majority_accuracy: accuracy of always predicting the same label of sentence pairs, which is above a
            half for next sentences.
        learning_rate: the peak. batch_size: sequences per update. optimizer: `lamb`, `adamw` or `muon`.
        measured_rate: at which such a model was measured to learn, with any batch size; None: the published
            rate for the batch size is the reference.
        suggest_higher_rate: whether a low rate may be the cause; False for a run that starts from weights.
        warmup: share of the run. total_steps: None for a run by the clock.
        masked_entropy: unigram entropy at the [MASK] positions of the evaluations; None: unknown.
        uninformative_stages: in which an evaluation does not show whether the model learns, because they
            train next tokens, fewer layers, or fewer learned positions.
        plateau_advice, slow_start_advice: advice that comes first at these alarms.
        objective: messages name [MASK] only if it is masked.
        patience: steps after the warm-up, or after the start of a branch, before a plateau is an alarm;
            default 15 % of the run, at least 1000 but no more than half of it. Healthy runs stay at the
            unigram entropy for a while, too.
    """

    unigram_entropy: float
    learning_rate: float
    batch_size: int
    unigram_accuracy: float = 0.05
    majority_accuracy: float = 0.5
    optimizer: str = "lamb"
    measured_rate: float | None = None
    suggest_higher_rate: bool = True
    warmup: float = 0.0
    total_steps: int | None = None
    masked_entropy: float | None = None
    uninformative_stages: frozenset[int] = frozenset()
    plateau_advice: tuple[str, ...] = ()
    slow_start_advice: tuple[str, ...] = ()
    objective: Literal["masked", "causal", "permutation"] = "masked"
    patience: int | None = None
    _recent: dict[str, deque[float]] = field(default_factory=dict)
    _best: dict[str, float] = field(default_factory=dict)
    _history: list[tuple[int, float, float]] = field(default_factory=list)
    _raised: dict[AlarmKind, int] = field(default_factory=dict)
    _stage: Any = None
    _first: int = 0  # step of the start: of a branch, of its checkpoint
    _previous: int = 0  # step of the previous training line
    _informative_from: int = 0  # step at which the last uninformative stage ended
    _pairs_from: int | None = None  # step of the first sentence pairs
    _reached_unigram: bool = False  # in any stage
    _evaluations: list[_Evaluation] = field(default_factory=list)

    def begin(self, step: int) -> None:
        """Set the first step, before any line: a branch has not trained the steps of its checkpoint."""
        self._first = step

    def context_gain(self, scores: Mapping[str, Any]) -> float | None:
        """Unigram entropy minus the loss on [MASK], in nats: `mask_loss` of an evaluation, or in a stage of
        fewer layers `stage_mask_loss`. None without either.
        """
        loss = scores.get("stage_mask_loss", scores.get("mask_loss"))
        if not isinstance(loss, int | float) or not math.isfinite(loss):
            return None
        return self._unigram_mask_loss - loss

    @property
    def _unigram_mask_loss(self) -> float:
        """Loss of the unigram baseline at the [MASK] positions of the evaluations, in nats."""
        return self.unigram_entropy if self.masked_entropy is None else self.masked_entropy

    def update(self, row: Mapping[str, Any], progress: float) -> list[Alarm]:
        """Add a metrics line; returns the alarms that it raises.

        Args:
            row: with `step`, and loss and accuracy of the parts, and `stage` in a run with stages; other keys
                are ignored. The scores under `evaluation` take effect at the next training line.
            progress: share of the run that is done.
        """
        if row.get("stage", self._stage) != self._stage:  # evaluations have no stage
            # Losses with other lengths, masks or layers are not comparable.
            if self._stage in self.uninformative_stages and row["stage"] not in self.uninformative_stages:
                self._informative_from = self._previous
            self._stage = row["stage"]
            for values in (self._recent, self._best, self._history):
                values.clear()
        gain = self.context_gain(row.get("evaluation") or {})
        known = (
            not self.uninformative_stages or self._stage is not None
        )  # unknown before the first line of a branch
        if gain is not None and known and self._stage not in self.uninformative_stages:
            cosine = row["evaluation"].get("cosine")
            self._evaluations.append(
                _Evaluation(int(row["step"]), gain, math.nan if cosine is None else cosine)
            )
        loss = self._median(row, "mlm_loss")
        accuracy = self._median(row, "mlm_accuracy")
        order = self._median(row, "sentence_accuracy")
        if loss is None or accuracy is None:
            return []
        step = int(row["step"])
        if order is not None and self._pairs_from is None:
            self._pairs_from = self._previous
        self._previous = step
        past = step - max(self._first, self.warmup * self._total(step, progress))  # the warm-up
        patience = self._patience(step, progress)
        self._remember(step, loss, order if order is not None else float("nan"), patience)
        found: dict[AlarmKind, bool] = {
            "plateau": min(past, step - self._informative_from) >= patience
            and self._stuck(step, loss, patience),
            "divergence": self._diverges(loss),
            "slow_start": self._above_unigram(loss) and past >= patience,
            "collapse": self._collapsed("mlm_accuracy", accuracy, self.unigram_accuracy, 3.0, 0.5),
        }
        if order is not None:
            found["sentence_collapse"] = self._collapsed(
                "sentence_accuracy", order, self.majority_accuracy, 1.3, 0.25
            )
            # Sentence order is learned after words, so at a plateau only that is raised.
            stuck = found["plateau"] or self._lately("plateau", step, patience)
            collapsed = found["sentence_collapse"]
            paired = min(past, step - (self._pairs_from or 0))
            found["sentence_chance"] = not stuck and not collapsed and self._at_chance(step, patience, paired)
        found["plateau"] = found["plateau"] and not (found["collapse"] or found["slow_start"])
        begun = [kind for kind, there in found.items() if there and not self._lately(kind, step, patience)]
        self._raised |= {kind: step for kind, there in found.items() if there}
        return [self._alarm(kind, step, row, loss) for kind in begun]

    def _lately(self, kind: AlarmKind, step: int, patience: float) -> bool:
        """Whether a condition held so recently that noise may have interrupted it, so that it is not raised
        again."""
        return kind in self._raised and step - self._raised[kind] <= patience / 2

    def _median(self, row: Mapping[str, Any], key: str) -> float | None:
        value = row.get(key)
        if not isinstance(value, int | float):
            return None
        values = self._recent.setdefault(key, deque(maxlen=_SMOOTH))
        values.append(float(value))
        return statistics.median(values)

    def _full(self, key: str) -> bool:
        return len(self._recent[key]) == _SMOOTH

    def _total(self, step: int, progress: float) -> float:
        return float(self.total_steps or step / max(progress, 1e-9))

    def _patience(self, step: int, progress: float) -> float:
        total = self._total(step, progress)
        return self.patience or min(max(1000.0, 0.15 * total), 0.5 * total)

    def _remember(self, step: int, loss: float, order: float, patience: float) -> None:
        # At most `_WINDOW` points over the patience.
        if not self._history or step - self._history[-1][0] >= patience / _WINDOW:
            self._history.append((step, loss, order))
        oldest = step - 2.5 * patience
        while len(self._history) > 2 and self._history[1][0] <= oldest:
            self._history.pop(0)

    def _since(self, begin: float) -> list[tuple[int, float, float]]:
        return [point for point in self._history if point[0] >= begin]

    def _stuck(self, step: int, loss: float, patience: float) -> bool:
        """Whether the loss is near the unigram baseline, and did not fall during the patience."""
        gains = [one.gain for one in self._evaluations if one.step >= step - patience]
        if len(gains) > 1:
            return gains[-1] <= ONSET and gains[-1] - min(gains) < 0.05
        # With one evaluation, whether the loss falls is decided by the training loss.
        low = gains[0] <= ONSET if gains else loss >= self.unigram_entropy - 0.6
        recent = self._since(step - patience)
        if not low or len(recent) < _WINDOW / 2:
            return False
        half = len(recent) // 2
        before, after = (statistics.fmean(r[1] for r in part) for part in (recent[:half], recent[half:]))
        return before - after < 0.05

    def _diverges(self, loss: float) -> bool:
        """Whether the loss is above the unigram baseline after having been below it."""
        key = "mlm_loss"
        if self._full(key):
            self._best[key] = min(self._best.get(key, loss), loss)
        return loss > self.unigram_entropy + 1.0 and loss > self._best.get(key, loss) + 1.0

    def _above_unigram(self, loss: float) -> bool:
        """Whether the loss was never as low as the unigram baseline, which a model reaches first."""
        level = self.unigram_entropy + 1.0
        self._reached_unigram = self._reached_unigram or (self._full("mlm_loss") and loss <= level)
        return not self._reached_unigram and loss > level

    def _at_chance(self, step: int, patience: float, past: float) -> bool:
        wait = 2 * patience
        recent = [order for _, _, order in self._since(step - wait) if not math.isnan(order)]
        last = recent[-len(recent) // 3 :]
        if past < wait or len(recent) < _WINDOW:
            return False
        return max(map(statistics.fmean, (recent, last))) < self.majority_accuracy + 0.03

    def _collapsed(self, key: str, value: float, floor: float, above: float, share: float) -> bool:
        """Whether an accuracy that was well above its floor has lost most of that gain."""
        if self._full(key):
            self._best[key] = max(self._best.get(key, 0.0), value)
        best = self._best.get(key, 0.0)
        return best > floor * above and value - floor < share * (best - floor)

    def _alarm(self, kind: AlarmKind, step: int, row: Mapping[str, Any], loss: float) -> Alarm:
        level, name = f"{self.unigram_entropy:.2f}", self._name
        what = {
            "plateau": self._plateau(loss),
            "slow_start": f"the {name} loss is still {loss:.2f} nats; the unigram baseline has {level}",
            "divergence": f"the {name} loss is {loss:.2f} nats; the unigram baseline has {level}",
            "collapse": f"{name} accuracy fell {self._fall('mlm_accuracy', row)}",
            "sentence_chance": f"sentence accuracy stays at {100 * self.majority_accuracy:.1f}%, that of a "
            "constant answer, while masked words are being learned",
            "sentence_collapse": f"sentence accuracy fell {self._fall('sentence_accuracy', row)}",
        }[kind]
        return Alarm(kind, step, what, self._advice(kind))

    def _plateau(self, loss: float) -> str:
        if not self._evaluations:
            level = f"{self.unigram_entropy:.2f}"
            return f"the {self._name} loss stays at {loss:.2f} nats; the unigram baseline has {level}"
        last = self._evaluations[-1]
        where = "on [MASK] " if self.objective == "masked" else ""
        what = (
            f"the context gain is {last.gain:.2f} nats: {where}the held-out loss is "
            f"{self._unigram_mask_loss - last.gain:.2f}, and the unigram baseline has "
            f"{self._unigram_mask_loss:.2f}"
        )
        if math.isnan(last.cosine):
            return what
        similar = "nearly the same for every word, " if last.cosine > SIMILAR else ""
        return f"{what}; final states are {similar}of mean cosine {last.cosine:.2f}"

    @property
    def _name(self) -> str:
        """The name of the loss in the log."""
        return "masked-LM" if self.objective == "masked" else "LM"

    def _fall(self, key: str, row: Mapping[str, Any]) -> str:
        return f"from {100 * self._best.get(key, 0.0):.1f}% to {100 * float(row.get(key, 0.0)):.1f}%"

    def _advice(self, kind: AlarmKind) -> tuple[str, ...]:
        if kind == "sentence_chance":
            return (
                "Sentence order is learned after words: give it more steps.",
                "If masked-LM accuracy has long been good, look at the data: sentences split wrongly, or "
                "documents of one sentence, leave nothing to order.",
            )
        longer = min(MAX_WARMUP, max(0.05, 2 * self.warmup))
        warm = (f"Warm up for longer: training.warmup={longer:g}.",) if longer > self.warmup else ()
        if kind == "plateau":
            wait = (
                "If the rate is right, this takes more steps or a larger batch; the published run saw "
                "512,000,000 sequences."
            )
            return *self.plateau_advice, self._rate_advice(), *warm, wait
        if kind == "slow_start":
            if self._is_low:
                return *self.slow_start_advice, self._rate_advice()
            return (
                *self.slow_start_advice,
                f"If the loss is falling, it needs more steps or a larger rate: training.learning_rate="
                f"{2 * self.learning_rate:.2g}. If it is not:",
                self._rate_advice(),
            )
        if kind == "divergence":
            return self._rate_advice(rises=False), *warm
        return (
            self._rate_advice(rises=False),
            *warm,
            "Branch a new run off the last good checkpoint (--branch-from); this one would repeat it.",
        )

    @property
    def _is_low(self) -> bool:
        return self.suggest_higher_rate and self.learning_rate * LOW_RATE < self._reference_rate

    @property
    def _batch_free_rate(self) -> float | None:
        return MUON_RATE if self.optimizer == "muon" else self.measured_rate

    @property
    def _reference_rate(self) -> float:
        """The usual rate for this model and batch size."""
        return self._batch_free_rate or published_rate(self.optimizer, self.batch_size)

    def _rate_advice(self, *, rises: bool = True) -> str:
        """Advice on the learning rate.

        Args:
            rises: whether a higher one may help; not after a collapse.
        """
        rate, fitting = self.learning_rate, self._reference_rate
        if rises and self._is_low:
            return (
                f"The learning rate {rate:.3g} is {fitting / rate:.0f} times below what fits; raise it: "
                f"training.learning_rate={fitting:.2g}."
            )
        if self._batch_free_rate is not None:
            far = rate > LOW_RATE * fitting
            lower, name = (fitting, "the rate that fits") if far else (rate / 2, "half the learning rate")
            return f"Try {name}: training.learning_rate={lower:.2g}."
        published, batch = PUBLISHED[self.optimizer]
        if rate > 8 * fitting:
            # The rule is of wide models and large batches; narrow models allow higher rates.
            return (
                f"By the square-root rule the published {published:g} for batch {batch} becomes "
                f"{fitting:.2g} for batch {self.batch_size}, and {rate:.3g} is {rate / fitting:.0f} times "
                f"that. Try a third, training.learning_rate={rate / 3:.2g}, or a larger batch."
            )
        if rate > 1.25 * fitting:
            return (
                f"The learning rate {rate:.3g} is too large for batch {self.batch_size}: {published:g} fits "
                f"{batch}. The square-root rule gives training.learning_rate={fitting:.2g}."
            )
        return (
            f"The learning rate {rate:.3g} fits batch {self.batch_size} by the square-root rule; try half of "
            f"it, training.learning_rate={rate / 2:.2g}."
        )
