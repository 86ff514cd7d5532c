"""transformers' own pretraining on a corpus of ours: `AlbertForPreTraining` in its `Trainer`.

    python -m benchmarks.peer_pretraining CORPUS --preset albert-tiny-zh --minutes 30 --save NAME

Same text, vocabulary, encoder, batch size, optimizer, peak rate and schedule over the clock as our run; its
own dynamic masking (`DataCollatorForLanguageModeling`), padded batches and dense masked-LM head.
transformers has no sentence-order data, so the pairs are made here by the plain rule: fill up with sentences
to the length, split at random, swap half of them. The held-out loss is measured on exactly the batches that
judge our model, outside the clock. A pause of the process (SIGSTOP) does not count either.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    AlbertConfig,
    AlbertForPreTraining,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from albertine.bench.machine import describe
from albertine.core.batch import to_padded
from albertine.corpus.reader import Corpus
from albertine.model.presets import preset
from albertine.objectives.batch import PretrainingBatch
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.settings import ObjectiveChoice
from benchmarks.keep import keep


class ActiveClock:
    """Seconds of work: a gap far beyond the usual step (the process was stopped) counts as one usual step."""

    def __init__(self) -> None:
        self.seconds, self._last, self._steps = 0.0, time.monotonic(), deque[float](maxlen=50)

    def restart(self) -> None:
        self._last = time.monotonic()

    def tick(self) -> None:
        now = time.monotonic()
        took = now - self._last
        usual = statistics.median(self._steps) if self._steps else took
        self._steps.append(min(took, 5 * usual))
        self.seconds += took if took < max(5.0, 8 * usual) else usual
        self._last = now


class SentenceOrderPairs(Dataset[dict[str, Any]]):
    """[CLS] A [SEP] B [SEP] from consecutive sentences; label 1 where the two were swapped."""

    def __init__(self, corpus: Corpus, max_length: int, seed: int) -> None:
        tokenizer = corpus.tokenizer()
        rng = np.random.default_rng(seed)
        self.samples: list[tuple[np.ndarray, int, int]] = []
        room = max_length - 3
        for shard_index in range(corpus.num_shards):
            shard = corpus.shard(shard_index)
            tokens, sentences, documents = (
                np.asarray(x) for x in (shard.tokens, shard.sentences, shard.documents)
            )
            for first, last in pairwise(documents):
                start = int(first)
                while start < last:
                    end = start + 1
                    while end < last and sentences[end] - sentences[start] < room:
                        end += 1
                    if end - start >= 2:
                        cut = int(rng.integers(start + 1, end))
                        a, b = (
                            tokens[sentences[start] : sentences[cut]],
                            tokens[sentences[cut] : sentences[end]],
                        )
                        while len(a) + len(b) > room:
                            a, b = (a[:-1], b) if len(a) > len(b) else (a, b[:-1])
                        label = int(rng.random() < 0.5)
                        a, b = (b, a) if label else (a, b)
                        ids = np.concatenate(
                            [[tokenizer.cls_id], a, [tokenizer.sep_id], b, [tokenizer.sep_id]]
                        )
                        self.samples.append((ids.astype(np.int32), len(a) + 2, label))
                    start = end

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> dict[str, Any]:
        ids, first, label = self.samples[i]
        types = [0] * first + [1] * (len(ids) - first)
        return {"input_ids": ids.tolist(), "token_type_ids": types, "sentence_order_label": label}


@torch.no_grad()
def judge_peer(model: AlbertForPreTraining, batches: list[PretrainingBatch]) -> dict[str, float]:
    """The scores of `pretraining.held_out.judge` for a transformers model on the same batches."""
    was_training = model.training
    model.eval()
    sums = {"mlm": [0.0, 0, 0], "sentence": [0.0, 0, 0]}
    for batch in batches:
        packed = batch.packed
        rows, length = packed.num_sequences, packed.max_length
        index = torch.cat([torch.arange(n) + i * length for i, n in enumerate(packed.lengths)])
        hidden = model.albert(
            input_ids=to_padded(packed.input_ids, index, rows, length),
            attention_mask=to_padded(torch.ones_like(packed.input_ids), index, rows, length),
            token_type_ids=to_padded(packed.token_type_ids, index, rows, length),
        )
        at_masks = hidden.last_hidden_state.reshape(rows * length, -1)[index][batch.mlm_positions]
        parts = {"mlm": (model.predictions(at_masks), batch.mlm_labels)}
        if batch.sentence_labels is not None:
            parts["sentence"] = (model.sop_classifier(hidden.pooler_output), batch.sentence_labels)
        for name, (logits, labels) in parts.items():
            keep = labels != -100
            sums[name][0] += float(
                torch.nn.functional.cross_entropy(logits[keep], labels[keep], reduction="sum")
            )
            sums[name][1] += int((logits[keep].argmax(1) == labels[keep]).sum())
            sums[name][2] += int(keep.sum())
    model.train(was_training)
    return {
        key: value
        for name, (loss, correct, count) in sums.items()
        if count
        for key, value in ((f"{name}_loss", loss / count), (f"{name}_accuracy", correct / count))
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="albert-tiny-zh")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=float, default=0.05)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument(
        "--evaluate-every", type=float, default=2.0, help="minutes of training between evaluations"
    )
    parser.add_argument("--held-out-sequences", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="the Trainer's automatic mixed precision")
    parser.add_argument("--save", metavar="NAME", help="write the curve under benchmarks/results as NAME")
    arguments = parser.parse_args()

    corpus = Corpus(arguments.corpus)
    tokenizer = AutoTokenizer.from_pretrained(arguments.corpus / "tokenizer")
    shape = preset(arguments.preset)
    torch.manual_seed(arguments.seed)
    model = AlbertForPreTraining(
        AlbertConfig(
            vocab_size=corpus.tokenizer().vocab_size,
            embedding_size=shape.embedding_size,
            hidden_size=shape.hidden_size,
            num_hidden_layers=shape.num_hidden_layers,
            num_attention_heads=shape.num_attention_heads,
            intermediate_size=shape.intermediate_size,
            hidden_act="gelu_new",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            classifier_dropout_prob=0.0,
        )
    )
    pairs = SentenceOrderPairs(corpus, arguments.max_length, arguments.seed)
    held_out = held_out_batches(
        arguments.corpus,
        ObjectiveChoice(max_length=arguments.max_length),
        sequences=arguments.held_out_sequences,
    )
    clock, budget = ActiveClock(), arguments.minutes * 60
    curve: list[dict[str, float]] = []

    def progress() -> float:
        return min(1.0, clock.seconds / budget)

    def factor(_: int) -> float:
        done = progress()
        return done / arguments.warmup if done < arguments.warmup else max(0.0, 1 - done)

    class Budget(TrainerCallback):
        next_look = arguments.evaluate_every * 60

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            clock.restart()

        def on_step_end(self, args: Any, state: Any, control: Any, **__: Any) -> None:
            clock.tick()
            over = clock.seconds >= budget
            if over or clock.seconds >= self.next_look:
                self.next_look += arguments.evaluate_every * 60
                row = {
                    "step": state.global_step,
                    "minutes": clock.seconds / 60,
                    **judge_peer(model, held_out),
                }
                curve.append(row)
                print(json.dumps(row), flush=True)
                clock.restart()
            control.should_training_stop = over

    no_decay = [
        p for n, p in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n or "layer_norm" in n
    ]
    excluded = {id(p) for p in no_decay}
    optimizer = torch.optim.AdamW(
        [
            {
                "params": [p for p in model.parameters() if id(p) not in excluded],
                "weight_decay": arguments.weight_decay,
            },
            {"params": no_decay, "weight_decay": 0.0},
        ],
        lr=arguments.learning_rate,
        fused=True,
    )
    scratch = tempfile.TemporaryDirectory()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=scratch.name,
            per_device_train_batch_size=arguments.batch_size,
            max_steps=10_000_000,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            seed=arguments.seed,
            bf16=arguments.bf16,
            dataloader_num_workers=1,
            remove_unused_columns=False,
        ),
        train_dataset=pairs,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)),
        callbacks=[Budget()],
    )
    trainer.train()
    scratch.cleanup()
    if arguments.save:
        settings = {
            k: str(v) if isinstance(v, Path) else v for k, v in vars(arguments).items() if k != "corpus"
        }
        keep(arguments.save, {"machine": describe(), "settings": settings, "curve": curve})


if __name__ == "__main__":
    main()
