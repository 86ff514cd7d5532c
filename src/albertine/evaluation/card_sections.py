"""The sections of a model card, from the facts of its run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from albertine.evaluation.card_metadata import amount
from albertine.evaluation.hub_results import describe_score
from albertine.evaluation.run_facts import Facts, Score, public_name
from albertine.interop.heads import max_length_of, task_in
from albertine.interop.model_folder import ModelFolder


def origin(facts: Facts) -> str:
    match facts.made:
        case "pretrained":
            begun = f"Pretrained from {facts.base}." if facts.base else "Pretrained from random weights."
            return begun + _branched(facts)
        case "tuned":
            return f"Tuned on {facts.data}, from {facts.base}."
        case "distilled":
            begun = f", begun with {facts.base}." if facts.base else "."
            return f"Distilled: a student of {facts.teacher}{begun}{_branched(facts)}"
    return "Converted or saved by Albertine; there is no run beside it, so its training is unknown."


def _branched(facts: Facts) -> str:
    if not facts.branch:
        return ""
    return f" A branch: up to update {facts.branch.get('step', 0):,} it is another run."


def data(facts: Facts) -> list[str]:
    if facts.corpus is not None:
        corpus = facts.corpus
        names = ", ".join(sorted({public_name(str(source["path"])) for source in corpus.sources}))
        lines = [f"- Text: {names}; language {corpus.language}."]
        for split in corpus.splits:
            counts = [
                f"{corpus.count(what, split):,} {what}" for what in ("documents", "sentences", "tokens")
            ]
            lines.append(
                f"- {split}: {', '.join(counts)}." + (" Never trained on." if split == "heldout" else "")
            )
        dropped = ", ".join(f"{n:,} {why}" for why, n in corpus.dropped.items() if n)
        return [
            *lines,
            f"- Documents left out: {dropped or 'none'}. Unknown tokens: {corpus.unknown_share:.3%}.",
        ]
    if facts.data:
        before = [f"- The encoder before it: {_clean(facts.pretraining)}."] if facts.pretraining else []
        return [f"- {facts.data}.", *(f"- {note}." for note in map(_clean, facts.notes)), *before]
    if facts.settings:
        return ["The corpus of the run is no longer in its place, so its sources are unknown."]
    return ["Not known: no record of a run lies beside the model."]


def _clean(note: str) -> str:
    """A note without examples from the data and without paths of a machine."""
    note = re.sub(r" \(the first: .*?\)(?=, \d|\.?$)", "", note)
    return re.sub(r"(?<!\S)(?:/[^\s,:]+)+", lambda path: public_name(path[0]), note).rstrip(".")


def training(facts: Facts) -> list[str]:
    if not facts.settings:
        return ["Not known."]
    training, objective = facts.settings.get("training") or {}, facts.settings.get("objective") or {}
    took = [f"{facts.steps:,} updates"] if facts.steps else []
    took += [f"{_tokens(facts.tokens)} tokens"] if facts.tokens else []
    took += [f"{amount(facts.seconds / 3600)} hours by the clock"] if facts.seconds else []
    early = facts.picked not in (None, facts.steps)
    picked = f"; these weights are those after update {facts.picked:,}" if early else ""
    lines = [f"- {', '.join(took)}{picked}."] if took else []
    if facts.branch:
        other = ", ".join(sorted(facts.branch.get("differences") or {})) or "nothing"
        lines.append(f"- Those of the run that it branches from are included; its other settings: {other}.")
    length = "epochs" if training.get("steps") is None else "steps"
    wanted = ("optimizer", "learning_rate", "schedule", "batch_size", length, "precision", "weight_decay")
    chosen = [f"{key} {training[key]}" for key in wanted if training.get(key) is not None]
    aims = [
        f"{key} {objective[key]}" for key in ("kind", "pairs", "max_length") if objective.get(key) is not None
    ]
    lines += [f"- {', '.join([*chosen, *aims])}; seed {facts.settings.get('seed', 0)}."]
    machine = facts.environment
    if machine:
        versions = machine.get("versions") or {}
        named = ", ".join(f"{name} {versions[name]}" for name in ("albertine", "torch") if versions.get(name))
        device = machine.get("cpu") if machine.get("device") == "cpu" else machine.get("device")
        lines.append(
            f"- On {device}, {machine.get('world_size', 1)} process(es) of {machine.get('threads')} thread(s)"
            f"; {named}."
        )
    return [*lines, "- All settings: `settings.yaml` of the run."]


def _tokens(count: int) -> str:
    return f"{count / 1e6:,.1f} million" if count >= 1_000_000 else f"{count:,}"


def scores(facts: Facts) -> list[str]:
    if not facts.scores:
        return ["None was measured."]
    lines = ["| what | score | 95 % | baseline | examples |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [_row(score) for score in facts.scores]
    lines.append("")
    if facts.seeds > 1:
        lines.append(
            f"Scores on dev are medians of {facts.seeds} seeds, with the lowest and the highest; these "
            "weights are of one of them."
        )
    else:
        lines.append("One seed: the variation between seeds was not measured.")
    if any(score.split == "dev" and score.what != "last step" for score in facts.scores):
        lines.append("The best step was chosen on the dev set, which biases scores on it upwards.")
    hows = dict.fromkeys(
        score.interval.how for score in facts.scores if score.interval and score.spread is None
    )
    lines += [f"Intervals: {', '.join(hows)}; over examples, not over seeds."] if hows else []
    if hows and facts.share_passages:
        lines.append("Questions of one passage are not independent, so their intervals are too narrow.")
    if any(score.split == "held out" and score.interval for score in facts.scores):
        lines.append(
            "Masked tokens of one passage are not independent, so intervals of held-out text are too narrow."
        )
    if any(score.interval is None and score.spread is None for score in facts.scores):
        lines.append("For scores without an interval the run has no per-example predictions to compute one.")
    return lines


def _row(score: Score) -> str:
    what = f"{score.what}: " if score.what else ""
    value = score.value if score.spread is None else score.spread.median
    if score.spread is not None:
        between = f"seeds {min(score.spread.values):.4f} to {max(score.spread.values):.4f}"
    else:
        between = f"{score.interval.low:.4f} to {score.interval.high:.4f}" if score.interval else ""
    chance = "" if score.chance is None else f"{score.chance:.4f}"
    count = "" if score.count is None else f"{score.count:,}"
    label = f"{what}{score.metric.replace('_', ' ')}, {score.split}"
    return f"| {label} | {value:.4f} | {between} | {chance} | {count} |"


def limits(found: ModelFolder, facts: Facts, spoken: Sequence[str] | None) -> list[str]:
    cut = [note for note in map(_clean, facts.notes) if " cut " in note]
    own = (
        f"It was trained on {' and '.join(spoken)}; of other languages"
        if spoken
        else "Its languages are unknown; of those it was not trained on"
    )
    lines = [
        f"- {own} it covers at most what its vocabulary contains.",
        f"- It reads {max_length_of(found)} tokens of a text; what goes on after them is cut, or read in "
        "windows." + (f" In its data: {'; '.join(cut)}." if cut else ""),
        "- It reproduces the biases of its training texts. Do not base decisions about people on it alone.",
    ]
    if task_in(found.config) is None:
        does = "predicts masked tokens or computes" if found.model.mlm is not None else "computes"
        does = "predicts tokens or computes" if found.model.lm is not None else does
        lines.append(f"- It has no task head: it {does} vectors until it is fine-tuned.")
    if facts.seeds == 1 and facts.scores:
        lines.append("- Its scores are of one seed.")
    if not facts.scores:
        lines.append("- Its quality was not measured.")
    small = [score for score in facts.scores if score.count is not None and score.count < 1000]
    if small:
        lines.append(
            f"- Measured on few examples ({small[0].count:,}): {describe_score(small[0], facts.seeds)}."
        )
    return lines
