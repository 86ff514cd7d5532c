"""What the sections of a card say, from what is known of a model."""

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
    return "Converted or saved by Albertine; no run lies beside it, so how it was trained is not told."


def _branched(facts: Facts) -> str:
    if not facts.branch:
        return ""
    return f" A branch: up to update {facts.branch.get('step', 0):,} it is another run."


def data(facts: Facts) -> list[str]:
    if facts.corpus is not None:
        corpus = facts.corpus
        names = ", ".join(sorted({public_name(str(source["path"])) for source in corpus.sources}))
        told = [f"- Text: {names}; language {corpus.language}."]
        for split in corpus.splits:
            counts = [
                f"{corpus.count(what, split):,} {what}" for what in ("documents", "sentences", "tokens")
            ]
            told.append(
                f"- {split}: {', '.join(counts)}." + (" Never trained on." if split == "heldout" else "")
            )
        dropped = ", ".join(f"{n:,} {why}" for why, n in corpus.dropped.items() if n)
        return [
            *told,
            f"- Documents left out: {dropped or 'none'}. Unknown tokens: {corpus.unknown_share:.3%}.",
        ]
    if facts.data:
        before = [f"- The encoder before it: {_clean(facts.pretraining)}."] if facts.pretraining else []
        return [f"- {facts.data}.", *(f"- {note}." for note in map(_clean, facts.notes)), *before]
    if facts.settings:
        return ["The corpus that the run read is no longer where it was, so that its sources are not told."]
    return ["Not known: no record of a run lies beside the model."]


def _clean(note: str) -> str:
    """A note without examples out of the data and the paths of a machine."""
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
    told = [f"- {', '.join(took)}{picked}."] if took else []
    if facts.branch:
        other = ", ".join(sorted(facts.branch.get("differences") or {})) or "nothing"
        told.append(
            f"- Those of the run that it branches from are counted too; set otherwise there: {other}."
        )
    length = "epochs" if training.get("steps") is None else "steps"
    wanted = ("optimizer", "learning_rate", "schedule", "batch_size", length, "precision", "weight_decay")
    chosen = [f"{key} {training[key]}" for key in wanted if training.get(key) is not None]
    aims = [
        f"{key} {objective[key]}" for key in ("kind", "pairs", "max_length") if objective.get(key) is not None
    ]
    told += [f"- {', '.join([*chosen, *aims])}; seed {facts.settings.get('seed', 0)}."]
    machine = facts.environment
    if machine:
        versions = machine.get("versions") or {}
        named = ", ".join(f"{name} {versions[name]}" for name in ("albertine", "torch") if versions.get(name))
        device = machine.get("cpu") if machine.get("device") == "cpu" else machine.get("device")
        told.append(
            f"- On {device}, {machine.get('world_size', 1)} process(es) of {machine.get('threads')} thread(s)"
            f"; {named}."
        )
    return [*told, "- All settings: `settings.yaml` of the run."]


def _tokens(count: int) -> str:
    return f"{count / 1e6:,.1f} million" if count >= 1_000_000 else f"{count:,}"


def scores(facts: Facts) -> list[str]:
    if not facts.scores:
        return ["None was measured."]
    lines = ["| what | score | 95 % | without skill | examples |", "| --- | ---: | ---: | ---: | ---: |"]
    lines += [_row(score) for score in facts.scores]
    lines.append("")
    if facts.seeds > 1:
        lines.append(
            f"Scores on dev are medians of {facts.seeds} seeds, with the lowest and the highest; these "
            "weights are of one of them."
        )
    else:
        lines.append("One seed: how far another would be from it was not measured.")
    if any(score.split == "dev" and score.what != "last step" for score in facts.scores):
        lines.append("The best step was picked by the dev set, which flatters scores on it.")
    hows = dict.fromkeys(
        score.interval.how for score in facts.scores if score.interval and score.spread is None
    )
    lines += [f"Intervals: {', '.join(hows)}; of the examples, not of other seeds."] if hows else []
    if hows and facts.share_passages:
        lines.append("Questions of one passage hang together, so that their intervals are too narrow.")
    if any(score.split == "held out" and score.interval for score in facts.scores):
        lines.append(
            "Hidden words of one passage hang together, so that those of held-out text are too narrow."
        )
    if any(score.interval is None and score.spread is None for score in facts.scores):
        lines.append("A score without an interval could not be given one from what the run left.")
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
    told = f"{what}{score.metric.replace('_', ' ')}, {score.split}"
    return f"| {told} | {value:.4f} | {between} | {chance} | {count} |"


def limits(found: ModelFolder, facts: Facts, spoken: Sequence[str] | None) -> list[str]:
    cut = [note for note in map(_clean, facts.notes) if " cut " in note]
    own = (
        f"It was trained on {' and '.join(spoken)}; of other languages"
        if spoken
        else "Its languages are not told; of those it was not trained on"
    )
    told = [
        f"- {own} it knows at most what its vocabulary happens to hold.",
        f"- It reads {max_length_of(found)} tokens of a text; what goes on after them is cut, or read in "
        "windows." + (f" In its data: {'; '.join(cut)}." if cut else ""),
        "- It says what its texts said, their prejudices included. Let it decide nothing about people alone.",
    ]
    if task_in(found.config) is None:
        does = "guesses hidden words or gives" if found.model.mlm is not None else "gives"
        does = "predicts tokens or gives" if found.model.lm is not None else does
        told.append(f"- It has no head of a task: it {does} vectors until it is tuned.")
    if facts.seeds == 1 and facts.scores:
        told.append("- Its scores are of one seed.")
    if not facts.scores:
        told.append("- Nobody measured how good it is.")
    small = [score for score in facts.scores if score.count is not None and score.count < 1000]
    if small:
        told.append(
            f"- Measured on few examples ({small[0].count:,}): {describe_score(small[0], facts.seeds)}."
        )
    return told
