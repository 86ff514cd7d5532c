"""Fine-tuning as transformers has it: its own heads in its `Trainer`, padded to the longest of a batch.

The examples are those that our readers read; texts become tokens here, by the peer's own fast tokenizer, in
the manner of its example scripts. The outputs of the model are turned into answers and scored by our metrics,
which are the official ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForMultipleChoice,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from albertine.core.devices import fast_bfloat16
from albertine.evaluation.metrics import score
from albertine.inference.tags import bio_spans
from albertine.interop.weights import read_json
from albertine.tasks.dataset_files import Data
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.tag import tags_for
from albertine.tokenizers.base import Spans

Features = list[dict[str, Any]]
QUESTION = 16
"""Tokens of a question of usual length."""


class Classes:
    """One class a text or pair."""

    auto, collator = AutoModelForSequenceClassification, DataCollatorWithPadding

    def __init__(self, data: Data) -> None:
        self.number = {name: i for i, name in enumerate(data.family.labels)}
        self.names = data.family.labels
        self.config = {"num_labels": len(self.names)}

    def features(self, examples: Sequence[Any], tokenizer: Any, length: int) -> Features:
        pairs = [e.pair for e in examples] if examples[0].pair is not None else None
        found = tokenizer(
            [e.text for e in examples],
            pairs,
            truncation=True,
            max_length=length,
            return_token_type_ids=True,  # left out by default
        )
        return [
            {**{name: found[name][i] for name in found}, "labels": self.number[str(e.label)]}
            for i, e in enumerate(examples)
        ]

    def answers(self, logits: Any, examples: Sequence[Any], features: Features) -> list[Any]:
        return [self.names[i] for i in np.argmax(logits, -1).tolist()]


class Options:
    """Several options a question, all of as many."""

    auto, collator = AutoModelForMultipleChoice, DataCollatorForMultipleChoice

    def __init__(self, data: Data) -> None:
        self.config: dict[str, Any] = {}

    def features(self, examples: Sequence[Any], tokenizer: Any, length: int) -> Features:
        most = max(len(e.options) for e in examples)
        features = []
        for e in examples:
            # The model wants as many options for every question: short ones repeat their last.
            options = [*e.options, *[e.options[-1]] * (most - len(e.options))]
            questions = [f"{e.question} {option}" for option in options]
            found = tokenizer(
                [e.passage] * most, questions, truncation=True, max_length=length, return_token_type_ids=True
            )
            features.append({**{name: found[name] for name in found}, "labels": e.label})
        return features

    def answers(self, logits: Any, examples: Sequence[Any], features: Features) -> list[Any]:
        return [
            int(np.argmax(row[: len(e.options)])) for row, e in zip(np.asarray(logits), examples, strict=True)
        ]


class Tags:
    """A tag for every token."""

    auto, collator = AutoModelForTokenClassification, DataCollatorForTokenClassification

    def __init__(self, data: Data) -> None:
        self.names = data.family.labels
        self.number = {name: i for i, name in enumerate(self.names)}
        self.config = {"num_labels": len(self.names)}

    def features(self, examples: Sequence[Any], tokenizer: Any, length: int) -> Features:
        features = []
        for e in (cut.example for cut in examples):
            found = tokenizer(e.text, truncation=True, max_length=length, return_offsets_mapping=True)
            places = found.pop("offset_mapping")
            spans = Spans(found["input_ids"][1:-1], *(list(x) for x in zip(*places[1:-1], strict=True)))
            tags = [self.number[tag] for tag in tags_for(spans, e.label)]
            features.append({**found, "labels": [-100, *tags, -100], "spans": spans})
        return features

    def answers(self, logits: Any, examples: Sequence[Any], features: Features) -> list[Any]:
        found = []
        for row, feature in zip(np.argmax(logits, -1).tolist(), features, strict=True):
            spans = feature["spans"]
            tags = [self.names[i] for i in row[1 : len(spans.ids) + 1]]
            found.append([(kind, spans.starts[a], spans.ends[b - 1]) for kind, a, b in bio_spans(tags)])
        return found


class Answers:
    """A span of the passage, over overlapping windows."""

    auto, collator = AutoModelForQuestionAnswering, DataCollatorWithPadding

    def __init__(self, data: Data) -> None:
        self.config: dict[str, Any] = {}
        self.reading = data.family.reading

    def overlap(self, length: int) -> int:
        """Its tokenizer counts what windows share, where Google and we count the way from one to the next;
        with this, questions of usual length give as many windows."""
        return max(1, length - 3 - QUESTION - self.reading.stride)

    def features(self, examples: Sequence[Any], tokenizer: Any, length: int) -> Features:
        examples_once = list({id(e): e.example for e in examples}.values())  # of ours, one a window
        found = tokenizer(
            [e.question for e in examples_once],
            [e.passage for e in examples_once],
            truncation="only_second",
            max_length=length,
            stride=self.overlap(length),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
        )
        owners, places = found.pop("overflow_to_sample_mapping"), found.pop("offset_mapping")
        features = []
        for i, owner in enumerate(owners):
            inside = [n == 1 for n in found.sequence_ids(i)]
            row = {name: found[name][i] for name in found}
            text, begin = examples_once[owner].answers[0] if examples_once[owner].answers else ("", -1)
            first, last = _place(places[i], inside, begin, begin + len(text))
            features.append(
                {
                    **row,
                    "start_positions": first,
                    "end_positions": last,
                    "owner": owner,
                    "places": places[i],
                    "inside": inside,
                }
            )
        return features

    def answers(self, logits: Any, examples: Sequence[Any], features: Features) -> list[Any]:
        best, how = [(float("-inf"), "")] * len(examples), self.reading
        for start, end, feature in zip(*logits, features, strict=True):
            count, owner, places = len(feature["inside"]), feature["owner"], feature["places"]
            for a in np.argsort(-start[:count])[: how.best].tolist():
                for b in np.argsort(-end[:count])[: how.best].tolist():
                    if feature["inside"][a] and feature["inside"][b] and a <= b < a + how.longest:
                        passage = examples[owner].example.passage
                        found = (float(start[a] + end[b]), passage[places[a][0] : places[b][1]])
                        best[owner] = max(best[owner], found)
        return [text for _, text in best]


def _place(
    places: Sequence[tuple[int, int]], inside: Sequence[bool], begin: int, end: int
) -> tuple[int, int]:
    """First and last token of the characters from `begin` to `end`, or 0, 0 where the window lacks them."""
    shown = [i for i, there in enumerate(inside) if there]
    if not shown or begin < 0 or places[shown[0]][0] > begin or places[shown[-1]][1] < end:
        return 0, 0
    hit = [i for i in shown if places[i][0] < end and places[i][1] > begin]
    return (hit[0], hit[-1]) if hit else (0, 0)


TASKS: dict[str, Any] = {"classify": Classes, "choose": Options, "tag": Tags, "answer": Answers}
OWN = {"spans", "owner", "places", "inside"}
"""What a feature has for us, and the model does not see."""
DROPOUT = {
    "albert": "classifier_dropout_prob",
    "bert": "classifier_dropout",
    "roformer": "classifier_dropout",
    "xlnet": "summary_last_dropout",
}
"""What each layout calls the dropout before its head."""


def finetune(settings: FinetuneSettings, data: Data, scratch: Path) -> dict[str, float]:
    """Seconds, and the score of the dev set after the last update."""
    begin = time.perf_counter()
    training, length = settings.training, settings.task.max_length
    assert data.dev is not None
    task = TASKS[data.family.task](data)
    tokenizer = AutoTokenizer.from_pretrained(settings.encoder.folder)
    torch.manual_seed(settings.seed)
    layout = read_json(settings.encoder.folder / "config.json")["model_type"]
    dropout = {DROPOUT[layout]: settings.encoder.classifier_dropout}
    model = task.auto.from_pretrained(settings.encoder.folder, **task.config, **dropout)
    train = task.features(data.train.examples, tokenizer, length)
    dev = task.features(data.dev.examples, tokenizer, length)
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(scratch),
            per_device_train_batch_size=training.batch_size,
            per_device_eval_batch_size=2 * training.batch_size,
            num_train_epochs=training.epochs,
            learning_rate=training.learning_rate * (1 - training.warmup),
            adam_epsilon=1e-6,
            lr_scheduler_type="linear",
            warmup_steps=training.warmup,  # a share of the run, being less than one
            weight_decay=training.weight_decay,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            bf16=fast_bfloat16(torch.device("cpu")),
            seed=settings.seed,
        ),
        train_dataset=_seen(train),  # type: ignore[arg-type]
        data_collator=task.collator(tokenizer),
    )
    trainer.train()
    predictions = trainer.predict(_seen(dev)).predictions  # type: ignore[arg-type]
    answers = task.answers(predictions, data.dev.examples, dev)
    name = data.family.metrics[0]
    value = score(data.family.gold(data.dev), answers, (name,))[name]
    return {"seconds": time.perf_counter() - begin, "score": value}


def _seen(features: Features) -> Features:
    return [{name: value for name, value in row.items() if name not in OWN} for row in features]
