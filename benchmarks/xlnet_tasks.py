"""An XLNet fine-tuned here and by transformers and its Trainer, from equal weights, several tasks and seeds.

    python -m benchmarks.xlnet_tasks ../shared/data/glue/SST-2 ../shared/data/sick ../shared/data/glue/MRPC \\
        --tasks sst-2 sick-entailment mrpc

There is no pretrained XLNet that two cores tune in minutes, so both begin with one folder of random weights
and a cased vocabulary of the tasks' own texts: what is compared is the way from a text to a score, that is
the layout with <cls> last, segments, padding (none here, on the left there), the head, and the schedule. The
result is the mean of the differences, ours less theirs, of the same task and seed, with a 95 % interval by
Student's t. Heads and batches are drawn by different generators, so that the differences of two runs are
noise.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from albertine.bench.machine import describe
from albertine.interop.huggingface.folders import save_model
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.tasks.initial_model import open_encoder
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import read_data
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.train import train_sentencepiece
from benchmarks import peer_finetuning
from benchmarks.finetuning import ours, settings_of
from benchmarks.intervals import interval
from benchmarks.keep import keep

HIDDEN, DEPTH, PIECES = 64, 2, 1000


def texts(settings: Sequence[FinetuneSettings], any_tokenizer: Path) -> Iterator[str]:
    """The training texts of some tasks."""
    for one in settings:
        for example in read_data(one.task, load_tokenizer(any_tokenizer)).train.examples:
            yield example.text
            yield example.pair or ""


def beginning(folder: Path, lines: Iterator[str]) -> None:
    """A folder with an XLNet of random weights and its vocabulary."""
    tokenizer = train_sentencepiece(lines, folder / "vocabulary", PIECES, cls_last=True)
    config = replace(
        preset("xlnet-base"),
        vocab_size=tokenizer.vocab_size,
        embedding_size=HIDDEN,
        hidden_size=HIDDEN,
        num_attention_heads=2,
        intermediate_size=4 * HIDDEN,
        plan=SharingPlan.unshared(DEPTH),
        initializer_range=0.05,
        pad_token_id=tokenizer.pad_id,
    )
    save_model(Model(config, {"lm", "pooler"}, seed=1), tokenizer, folder / "model")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, help="of the data sets")
    parser.add_argument("--tasks", nargs="+", required=True, help="their names, in the same order")
    parser.add_argument("--examples", type=int, default=1500, help="learned from in each task")
    parser.add_argument("--seeds", type=int, default=3, help="the last of them")
    parser.add_argument("--first", type=int, default=1, help="seed, for others than were run before")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        arguments.model = Path(scratch) / "model"

        def finetune_settings(task: str, folder: Path, seed: int) -> FinetuneSettings:
            own = [f"task.dataset={task}", f"task.folder={folder}", f"task.examples={arguments.examples}"]
            own += ["task.max_length=64", f"training.epochs={arguments.epochs}"]
            own += ["training.learning_rate=0.001", "training.optimizer=adamw", "task.pooling=cls"]
            arguments.settings = own
            return settings_of(arguments, Path(scratch) / task, seed)

        pairs = list(zip(arguments.tasks, arguments.folders, strict=True))
        beginning(
            Path(scratch), texts([finetune_settings(*pair, 1) for pair in pairs], Path("albertine-mini-en"))
        )
        for task, folder in pairs:
            first = finetune_settings(task, folder, 1)
            data = read_data(first.task, open_encoder(first)[1])
            metric, rows = data.family.metrics[0], found.setdefault(task, [])
            for seed in range(arguments.first, arguments.seeds + 1):
                settings = finetune_settings(task, folder, seed)
                mine = ours(settings, metric)["score"]
                theirs = peer_finetuning.finetune(settings, data, Path(scratch) / "theirs")["score"]
                rows.append({"albertine": mine, "transformers": theirs})
                print(f"{task} {metric} seed {seed}: {mine:.4f} here, {theirs:.4f} there", flush=True)
    gaps = {task: [row["albertine"] - row["transformers"] for row in rows] for task, rows in found.items()}
    for task, own in gaps.items():
        print("{}: {:+.4f} ± {:.4f}".format(task, *interval(own)))
    every = [gap for own in gaps.values() for gap in own]
    mean, half = interval(every)
    print(f"{len(every)} pairs: {mean:+.4f} ± {half:.4f}, ours less theirs")
    if arguments.save:
        keep(
            "xlnet-tasks" if arguments.first == 1 else f"xlnet-tasks-from-{arguments.first}",
            {"machine": describe(), "first_seed": arguments.first, "runs": found, "mean": mean, "half": half},
        )


if __name__ == "__main__":
    main()
