"""Watching a run: updates that are not finite, and learning that does not happen.

Pretraining ALBERT from scratch fails in a few known ways: the masked-LM loss stays where a model that
ignores its input is (6.6 to 7.3 nats with 30,000 pieces), a run collapses midway (accuracy .45 to .06),
sentence order stays a coin toss. Most reports come down to 0.00176, the published learning rate for batch
4096, with a smaller batch (huggingface/transformers#5984 and #4727, kamalkraj/ALBERT-TF2.0#21,
google-research/albert#29).
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
"""Context gain in nats from which on a model counts as reading: a blind one has 0, and stuck runs, where it
was measured, stay below .1 for as long as they are stuck."""

LOW = 3  # a rate so many times below what fits is raised

ALIKE = 0.9  # mean cosine of final states
LONGEST_WARMUP = 0.2  # that is advised, as a share of a run

_SMOOTH = 5  # readings in a median: two odd ones in a row are noise
_WINDOW = 12  # readings a verdict looks back on, the patience spread over them


def onset_minute(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Minutes of training up to the first evaluation with a context gain over `ONSET`; None if there is none.

    Args:
        rows: of `metrics.jsonl`.
    """
    for row in rows:
        gain = row.get("context_gain")  # null where it was not a number
        if isinstance(gain, int | float) and gain > ONSET and "elapsed" in row:
            return float(row["elapsed"]) / 60
    return None


def not_finite(step: int, cursor: Mapping[str, Any] | None, checkpoint: Path | None) -> RunError:
    """What to say of a step whose loss or gradient is not finite; its update was never made.

    Args:
        cursor: after the batch before it. checkpoint: where a branch can begin, if there are branches.
    """
    return RunError(
        f"the loss or its gradient is not finite at step {step}; the weights stay as they were",
        where=f"batch after {dict(cursor)}" if cursor else "first batch",
        remedy=f"{_slower(checkpoint)}; training.precision=float32 tells whether the number format is to "
        "blame",
    )


def weights_not_finite(step: int, name: str, checkpoint: Path | None) -> RunError:
    """What to say where weights are NaN or infinite behind an update, so that no checkpoint is made of them.

    Args:
        name: of such a tensor. checkpoint: the last one, in which all are finite, if a branch can begin
            there.
    """
    return RunError(
        f"the weights are not finite after step {step}, and were not saved: its update was too large",
        where=name,
        remedy=_slower(checkpoint),
    )


def _slower(checkpoint: Path | None) -> str:
    lower = "a lower training.learning_rate or a longer training.warmup"
    if checkpoint is None:
        return f"Begin again under another name with {lower}"
    return (
        f"Go on in a new run with {lower}: give another name and --branch-from {checkpoint} (or one before "
        "it, if the loss had grown by then)"
    )


UNMOVED = 20
"""Steps at the beginning of a run whose gradient may be exactly zero: a batch may hold nothing to learn, as
one of pairs with equal scores, but not all of so many."""


def no_gradient(steps: int, loss: float, remedy: str) -> RunError:
    """What to say of a run whose gradient was exactly zero in all of its steps so far.

    Args:
        loss: the last one, a mean in nats. remedy: what to look at.
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
    """A way of not learning.

    Attributes:
        kind: its name. step: when it was noticed.
        what: what is seen, with numbers. advice: what to change, most likely first.
    """

    kind: AlarmKind
    step: int
    what: str
    advice: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind.upper().replace('_', ' ')}: {self.what}. " + " ".join(self.advice)


class _Judged(NamedTuple):
    """What an evaluation says of reading: the context gain in nats, and the mean cosine of final states.

    The gain decides and the cosine is only told: of the kept runs of benchmarks/ladder.py one that read, at a
    loss of 6.1 on [MASK], had a cosine of .88, and one that hardly did, at 6.7, one of .55.
    """

    step: int
    gain: float
    cosine: float


@dataclass
class TrainingAlarms:
    """Looks at every metrics line and names what goes wrong, each thing once until it has passed.

    Whether a model reads is told by evaluations, where they tell its loss on [MASK]: its context gain is what
    it saves there over guessing by frequency. A training loss is no more than a substitute, because a tenth
    of the chosen tokens can be copied and the loss falls by that alone.

    Attributes:
        unigram_entropy: cross-entropy in nats of guessing masked pieces by their frequency alone; where a
            stuck model stays.
        unigram_accuracy: accuracy of always guessing the commonest piece.
        one_order: accuracy on sentence pairs of one and the same answer, which more than half of the pairs of
            next sentences have.
        learning_rate: the peak. batch_size: sequences per update. optimizer: `lamb`, `adamw` or `muon`.
        fitting: the rate that such a model was measured to learn with, at any batch; None: the published one
            for the batch.
        may_rise: whether a low rate may be to blame; where a run begins with weights it is meant.
        warmup: share of the run. total_steps: None for a run by the clock.
        masked_entropy: that of guessing the evaluations' own [MASK] by frequency; None: not known apart.
        untold: stages in which an evaluation does not tell whether the model learns, because it trains on
            something else: next tokens, fewer depths, or fewer places than a table of them has.
        hints, beginning: advice on a plateau and on a slow start from who knows more of the settings, given
            first.
        objective: what is predicted; only of a masked one alarms speak of [MASK].
        patience: steps after the warm-up, or after the beginning of a branch, before a plateau counts;
            default 15 % of the run, at least 1000 but no more than half of it. A healthy run also rests at
            the unigram loss for a while.
    """

    unigram_entropy: float
    learning_rate: float
    batch_size: int
    unigram_accuracy: float = 0.05
    one_order: float = 0.5
    optimizer: str = "lamb"
    fitting: float | None = None
    may_rise: bool = True
    warmup: float = 0.0
    total_steps: int | None = None
    masked_entropy: float | None = None
    untold: frozenset[int] = frozenset()
    hints: tuple[str, ...] = ()
    beginning: tuple[str, ...] = ()
    objective: Literal["masked", "causal", "permutation"] = "masked"
    patience: int | None = None
    _readings: dict[str, deque[float]] = field(default_factory=dict)
    _best: dict[str, float] = field(default_factory=dict)
    _history: list[tuple[int, float, float]] = field(default_factory=list)
    _raised: dict[AlarmKind, int] = field(default_factory=dict)
    _stage: Any = None
    _first: int = 0  # where the run began: of a branch the step of its checkpoint
    _seen: int = 0  # step of the training line before this one
    _told_from: int = 0  # where evaluations began to tell, behind a stage in which they did not
    _orders_from: int | None = None  # where sentence pairs began
    _began: bool = False  # was as good as a guess by frequency, in whatever stage
    _judged: list[_Judged] = field(default_factory=list)

    def begin(self, step: int) -> None:
        """Before anything is seen: a branch has not trained the steps of its checkpoint."""
        self._first = step

    def context_gain(self, scores: Mapping[str, Any]) -> float | None:
        """Nats that the context saves on a [MASK], of the scores of an evaluation with `mask_loss`, or where
        a stage computes fewer depths, of these, `stage_mask_loss`.
        """
        loss = scores.get("stage_mask_loss", scores.get("mask_loss"))
        if not isinstance(loss, int | float) or not math.isfinite(loss):
            return None
        return self._blind - loss

    @property
    def _blind(self) -> float:
        """Loss of a blind model on the [MASK] of evaluations: of few, not that of all chosen tokens."""
        return self.unigram_entropy if self.masked_entropy is None else self.masked_entropy

    def see(self, row: Mapping[str, Any], progress: float) -> list[Alarm]:
        """Take in a metrics line; returns the alarms that begin with it.

        Args:
            row: with `step`, and of the parts those keys that there are, and of a run with stages `stage`;
                others are ignored. The scores under `evaluation` are remembered, and the next line of
                training is judged by them.
            progress: share of the run that is done.
        """
        if row.get("stage", self._stage) != self._stage:  # lines of evaluations name none
            # Readings of other lengths, masks or depths say nothing of these: no best was lost here.
            if self._stage in self.untold and row["stage"] not in self.untold:
                self._told_from = self._seen
            self._stage = row["stage"]
            for memory in (self._readings, self._best, self._history):
                memory.clear()
        gain = self.context_gain(row.get("evaluation") or {})
        known = not self.untold or self._stage is not None  # before a branch's first line it is not
        if gain is not None and known and self._stage not in self.untold:
            cosine = row["evaluation"].get("cosine")
            self._judged.append(_Judged(int(row["step"]), gain, math.nan if cosine is None else cosine))
        loss = self._median(row, "mlm_loss")
        accuracy = self._median(row, "mlm_accuracy")
        order = self._median(row, "sentence_accuracy")
        if loss is None or accuracy is None:
            return []
        step = int(row["step"])
        if order is not None and self._orders_from is None:
            self._orders_from = self._seen
        self._seen = step
        past = step - max(self._first, self.warmup * self._total(step, progress))  # the warm-up
        patience = self._patience(step, progress)
        self._remember(step, loss, order if order is not None else float("nan"), patience)
        found: dict[AlarmKind, bool] = {
            "plateau": min(past, step - self._told_from) >= patience and self._stuck(step, loss, patience),
            "divergence": self._diverges(loss),
            "slow_start": self._never_began(loss) and past >= patience,
            "collapse": self._fell("mlm_accuracy", accuracy, self.unigram_accuracy, 3.0, 0.5),
        }
        if order is not None:
            found["sentence_collapse"] = self._fell("sentence_accuracy", order, self.one_order, 1.3, 0.25)
            # A model that has not begun to read words cannot order sentences, so the plateau alone is named.
            stuck = found["plateau"] or self._lately("plateau", step, patience)
            fell = found["sentence_collapse"]
            paired = min(past, step - (self._orders_from or 0))
            found["sentence_chance"] = not stuck and not fell and self._coin_toss(step, patience, paired)
        found["plateau"] = found["plateau"] and not (found["collapse"] or found["slow_start"])
        begun = [kind for kind, there in found.items() if there and not self._lately(kind, step, patience)]
        self._raised |= {kind: step for kind, there in found.items() if there}
        return [self._alarm(kind, step, row, loss) for kind in begun]

    def _lately(self, kind: AlarmKind, step: int, patience: float) -> bool:
        """Whether a thing was seen so lately that it counts as still there: noise repeats no alarm."""
        return kind in self._raised and step - self._raised[kind] <= patience / 2

    def _median(self, row: Mapping[str, Any], key: str) -> float | None:
        value = row.get(key)
        if not isinstance(value, int | float):
            return None
        readings = self._readings.setdefault(key, deque(maxlen=_SMOOTH))
        readings.append(float(value))
        return statistics.median(readings)

    def _full(self, key: str) -> bool:
        return len(self._readings[key]) == _SMOOTH

    def _total(self, step: int, progress: float) -> float:
        return float(self.total_steps or step / max(progress, 1e-9))

    def _patience(self, step: int, progress: float) -> float:
        total = self._total(step, progress)
        return self.patience or min(max(1000.0, 0.15 * total), 0.5 * total)

    def _remember(self, step: int, loss: float, order: float, patience: float) -> None:
        # Readings closer together than a twelfth of the patience say nothing new.
        if not self._history or step - self._history[-1][0] >= patience / _WINDOW:
            self._history.append((step, loss, order))
        oldest = step - 2.5 * patience
        while len(self._history) > 2 and self._history[1][0] <= oldest:
            self._history.pop(0)

    def _since(self, begin: float) -> list[tuple[int, float, float]]:
        return [reading for reading in self._history if reading[0] >= begin]

    def _stuck(self, step: int, loss: float, patience: float) -> bool:
        """Little better than a guess by frequency, and not getting better in the whole patience."""
        gains = [one.gain for one in self._judged if one.step >= step - patience]
        if len(gains) > 1:
            return gains[-1] <= ONSET and gains[-1] - min(gains) < 0.05
        # One evaluation tells where it stands; whether it moves, the training loss must tell.
        low = gains[0] <= ONSET if gains else loss >= self.unigram_entropy - 0.6
        recent = self._since(step - patience)
        if not low or len(recent) < _WINDOW / 2:
            return False
        half = len(recent) // 2
        before, after = (statistics.fmean(r[1] for r in part) for part in (recent[:half], recent[half:]))
        return before - after < 0.05

    def _diverges(self, loss: float) -> bool:
        """Worse than a guess by frequency after having been better."""
        key = "mlm_loss"
        if self._full(key):
            self._best[key] = min(self._best.get(key, loss), loss)
        return loss > self.unigram_entropy + 1.0 and loss > self._best.get(key, loss) + 1.0

    def _never_began(self, loss: float) -> bool:
        """Never as good as a guess by frequency, which is the first thing a model learns."""
        level = self.unigram_entropy + 1.0
        self._began = self._began or (self._full("mlm_loss") and loss <= level)
        return not self._began and loss > level

    def _coin_toss(self, step: int, patience: float, past: float) -> bool:
        wait = 2 * patience
        recent = [order for _, _, order in self._since(step - wait) if not math.isnan(order)]
        last = recent[-len(recent) // 3 :]
        if past < wait or len(recent) < _WINDOW:
            return False
        return max(map(statistics.fmean, (recent, last))) < self.one_order + 0.03

    def _fell(self, key: str, value: float, floor: float, above: float, share: float) -> bool:
        """Whether an accuracy that once stood well above its floor lost most of that height."""
        if self._full(key):
            self._best[key] = max(self._best.get(key, 0.0), value)
        best = self._best.get(key, 0.0)
        return best > floor * above and value - floor < share * (best - floor)

    def _alarm(self, kind: AlarmKind, step: int, row: Mapping[str, Any], loss: float) -> Alarm:
        level, name = f"{self.unigram_entropy:.2f}", self._name
        what = {
            "plateau": self._plateau(loss),
            "slow_start": f"the {name} loss is still {loss:.2f} nats; guessing by frequency has {level}",
            "divergence": f"the {name} loss is {loss:.2f} nats; guessing by frequency has {level}",
            "collapse": f"{name} accuracy fell {self._fall('mlm_accuracy', row)}",
            "sentence_chance": f"sentence accuracy stays at the {100 * self.one_order:.1f}% that one and the "
            "same answer has while masked words are being learned",
            "sentence_collapse": f"sentence accuracy fell {self._fall('sentence_accuracy', row)}",
        }[kind]
        return Alarm(kind, step, what, self._advice(kind))

    def _plateau(self, loss: float) -> str:
        if not self._judged:
            level = f"{self.unigram_entropy:.2f}"
            return f"the {self._name} loss stays at {loss:.2f} nats; a blind model has {level}"
        last = self._judged[-1]
        where = "on [MASK] " if self.objective == "masked" else ""
        said = (
            f"the context gain is {last.gain:.2f} nats: {where}the held-out loss is "
            f"{self._blind - last.gain:.2f}, and a blind model has {self._blind:.2f}"
        )
        if math.isnan(last.cosine):
            return said
        alike = "nearly the same for every word, " if last.cosine > ALIKE else ""
        return f"{said}; final states are {alike}of mean cosine {last.cosine:.2f}"

    @property
    def _name(self) -> str:
        """What loss and accuracy are called, as in the lines of the log."""
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
        longer = min(LONGEST_WARMUP, max(0.05, 2 * self.warmup))
        warm = (f"Warm up for longer: training.warmup={longer:g}.",) if longer > self.warmup else ()
        if kind == "plateau":
            wait = (
                "If the rate is right, this takes more steps or a larger batch; the published run saw "
                "512,000,000 sequences."
            )
            return *self.hints, self._rate_advice(), *warm, wait
        if kind == "slow_start":
            if self._low:
                return *self.beginning, self._rate_advice()
            return (
                *self.beginning,
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
    def _low(self) -> bool:
        return self.may_rise and self.learning_rate * LOW < self._fitting

    @property
    def _at_any_batch(self) -> float | None:
        return MUON_RATE if self.optimizer == "muon" else self.fitting

    @property
    def _fitting(self) -> float:
        """The rate that fits this model and batch."""
        return self._at_any_batch or published_rate(self.optimizer, self.batch_size)

    def _rate_advice(self, *, rises: bool = True) -> str:
        """What to do about the learning rate; of a run that fell, a higher one is no help."""
        rate, fitting = self.learning_rate, self._fitting
        if rises and self._low:
            return (
                f"The learning rate {rate:.3g} is {fitting / rate:.0f} times below what fits; raise it: "
                f"training.learning_rate={fitting:.2g}."
            )
        if self._at_any_batch is not None:
            far = rate > LOW * fitting
            lower, name = (fitting, "the rate that fits") if far else (rate / 2, "half the learning rate")
            return f"Try {name}: training.learning_rate={lower:.2g}."
        published, batch = PUBLISHED[self.optimizer]
        if rate > 8 * fitting:
            # The rule was found with wide models and large batches; a narrow one bears more than it allows.
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
