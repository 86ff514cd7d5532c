"""A plain ALBERT that transformers pretrains on a corpus of ours, as a folder to tune and to compare with.

    python -m benchmarks.transformers_baseline CORPUS albertine-mini-en runs/transformers-en --minutes 150
    python -m benchmarks.transformers_baseline CORPUS albertine-mini-en runs/transformers-en --updates 30000

`AlbertForMaskedLM` of the depth and widths of MODEL, with the corpus' tokenizer, in transformers' own
`Trainer` with its `DataCollatorForLanguageModeling`: masked words alone, 80/10/10, AdamW, linear decay over
the clock, or over as many updates as that clock would allow on a quiet machine (as many as two minutes make
there), for a machine that is not: these go on where they were stopped. Documents are cut into windows of
`--max-length` tokens with [CLS] and [SEP]; held-out ones are left out. The folder is what `save_pretrained`
writes, with `training.json` beside it.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

import albertine
from albertine.bench.machine import describe
from albertine.corpus.reader import Corpus
from albertine.interop.model_names import model_folder
from albertine.model.config import EncoderConfig
from benchmarks.peer_pretraining import ActiveClock

LEAST = 8
"""Tokens of text, fewer of which at a document's end are left out."""


class Windows(Dataset[dict[str, Any]]):
    """[CLS] tokens [SEP], cut from the documents one after the other; none crosses the end of one."""

    def __init__(self, corpus: Corpus, max_length: int) -> None:
        tokenizer, room = corpus.tokenizer(), max_length - 2
        self.ends = tokenizer.cls_id, tokenizer.sep_id
        self.windows: list[np.ndarray] = []
        for number in range(corpus.num_shards):
            shard = corpus.shard(number)
            tokens, sentences = np.asarray(shard.tokens), np.asarray(shard.sentences)
            borders = sentences[np.asarray(shard.documents)]
            for begin, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
                cut = (tokens[at : min(at + room, end)] for at in range(begin, end, room))
                self.windows += [window for window in cut if len(window) >= LEAST]

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": [self.ends[0], *self.windows[i].tolist(), self.ends[1]]}


class Budget(TrainerCallback):
    """Ends the run when its minutes are over, if it has no number of updates; `factor` is the share of the
    rate, by the same clock or number."""

    def __init__(self, minutes: float, updates: int | None, warmup: float) -> None:
        self.clock, self.seconds, self.updates, self.warmup = ActiveClock(), minutes * 60, updates, warmup
        self.steps = 0

    def factor(self, step: int) -> float:
        done = min(1.0, step / self.updates if self.updates else self.clock.seconds / self.seconds)
        return max(1e-3, done / self.warmup) if done < self.warmup else max(0.0, 1 - done)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.clock.restart()

    def on_step_end(self, args: Any, state: Any, control: Any, **__: Any) -> None:
        self.clock.tick()
        self.steps = state.global_step
        if not self.updates:
            control.should_training_stop = self.clock.seconds >= self.seconds


def plain_albert(shape: EncoderConfig, pieces: int) -> AlbertForMaskedLM:
    """ALBERT of a shape: one block, learned positions, no dropout, transformers' own initial weights."""
    config = AlbertConfig(
        vocab_size=pieces,
        embedding_size=shape.embedding_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        intermediate_size=shape.intermediate_size,
        max_position_embeddings=shape.max_position_embeddings,
        hidden_act="gelu_new",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return AlbertForMaskedLM(config)


def optimizer_of(model: torch.nn.Module, rate: float) -> torch.optim.AdamW:
    still = {id(p) for n, p in model.named_parameters() if n.endswith("bias") or "orm" in n}
    groups = [
        {"params": [p for p in model.parameters() if id(p) not in still], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if id(p) in still], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, fused=True)


def pretrain(arguments: argparse.Namespace) -> None:
    """Train for the minutes and save the folder."""
    corpus = Corpus(arguments.corpus)
    tokenizer = AutoTokenizer.from_pretrained(arguments.corpus / "tokenizer")
    shape = albertine.load(model_folder(arguments.model)).config
    torch.manual_seed(arguments.seed)
    model = plain_albert(shape, corpus.tokenizer().vocab_size)
    optimizer = optimizer_of(model, arguments.rate)
    budget = Budget(arguments.minutes, arguments.updates, arguments.warmup)
    kept = arguments.output.with_name(f"{arguments.output.name}-kept")  # from which a run of updates goes on
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(kept),
            per_device_train_batch_size=arguments.batch_size,
            max_steps=arguments.updates or 10_000_000,
            save_strategy="steps" if arguments.updates else "no",
            save_steps=arguments.keep_every,
            save_total_limit=1,
            logging_strategy="steps",
            logging_steps=200,
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            seed=arguments.seed,
            bf16=arguments.bf16,
            remove_unused_columns=False,
        ),
        train_dataset=Windows(corpus, arguments.max_length),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, budget.factor)),
        callbacks=[budget],
    )
    trainer.train(resume_from_checkpoint=bool(arguments.updates) and any(kept.glob("checkpoint-*")))
    model.save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)
    for path in (arguments.corpus / "tokenizer").iterdir():  # spiece.model, where transformers writes none
        if not (arguments.output / path.name).exists():
            (arguments.output / path.name).write_bytes(path.read_bytes())
    recorded = {k: v for k, v in vars(arguments).items() if k not in ("corpus", "output", "model")}
    record = {"machine": describe(), "settings": recorded, "steps": budget.steps}
    if not arguments.updates:  # whose clock began anew with every command
        record["seconds"] = budget.clock.seconds
    (arguments.output / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(kept, ignore_errors=True)
    print(
        f"{arguments.output}: {budget.steps:,} steps, {budget.clock.seconds / 60:.1f} minutes of this command"
    )


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("model", help="whose shape it gets: a folder, or a released name")
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=150)
    parser.add_argument("--updates", type=int, help="so many instead of minutes, however often stopped")
    parser.add_argument("--keep-every", type=int, default=500, help="updates between two checkpoints")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--rate", type=float, default=1e-3, help="peak, AdamW")
    parser.add_argument("--warmup", type=float, default=0.05, help="share of the minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="the Trainer's automatic mixed precision")
    arguments = parser.parse_args(words)
    if (arguments.output / "config.json").is_file():
        print(f"{arguments.output}: there is a model already; name another folder to train one")
        return
    pretrain(arguments)


if __name__ == "__main__":
    main()
