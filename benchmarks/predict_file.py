"""A million short texts through `albertine predict classify --file`: how fast, in how much memory, killed.

    python -m benchmarks.predict_file --shared ../shared/data --rows 1000000 --save

The model is tiny and untrained (two depths of 64), so that reading, cutting and writing weigh as much as
they ever do; the texts are those of SST-2, over and over. Beside the command, half before and half after it:
the same texts as a list in memory (`Predictor.classify`) and as rows (`Predictor.predict`); the command with
`--workers 1`; and transformers' pipeline with batches on a share of them. Then the command is killed three
times on its way, and what it leaves in the end is compared.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import lzma
import subprocess
import sys
import time
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import albertine
from albertine.bench.machine import describe, save_result
from albertine.bench.process import megabytes
from albertine.interop.heads import head_config
from albertine.interop.huggingface.folders import save_model
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier

PIPELINE_SHARE = 20
"""One row in so many goes through transformers' pipeline."""


def model_folder(folder: Path) -> Path:
    """A small ALBERT with a classifier, random weights, and the vocabulary of the released English model."""
    tokenizer = albertine.load_tokenizer("albertine-mini-en")
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=64,
        hidden_size=64,
        num_attention_heads=2,
        intermediate_size=256,
        max_position_embeddings=128,
        plan=SharingPlan.shared(2),
    )
    base = Model(config, {"pooler"}, seed=1)
    extra_config = head_config("albert", "classify", 0.0, names=("no", "yes"), kind="single", max_length=64)
    save_model(
        base, tokenizer, folder, extra_tensors=Classifier(base, 2, seed=1).head, extra_config=extra_config
    )
    return folder


def table(shared: Path, path: Path, rows: int) -> list[str]:
    """A CSV of numbered texts, and the texts."""
    lines = lzma.decompress((shared / "glue" / "SST-2" / "train.tsv.xz").read_bytes()).decode().splitlines()
    texts = list(islice(cycle([line.split("\t")[0] for line in lines[1:]]), rows))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "text"])
        writer.writerows(enumerate(texts))
    return texts


def command(model: Path, source: Path, output: Path) -> list[str]:
    words = ["predict", "classify", str(model), "--file", str(source), "--output", str(output), "--overwrite"]
    return [sys.executable, "-m", "albertine", *words, "--precision", "float32"]


def whole(model: Path, source: Path, output: Path, *words: str) -> dict[str, Any]:
    """The command from begin to end: seconds, and the most memory that it and its workers have together."""
    begin, most = time.perf_counter(), 0.0
    process = subprocess.Popen(
        [*command(model, source, output), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None:
        most = max(most, megabytes([process.pid, *workers_of(process.pid)]) or 0.0)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
    if process.returncode:
        raise SystemExit(f"albertine predict ended with {process.returncode}")
    return {"seconds": time.perf_counter() - begin, "megabytes": most}


def workers_of(process: int) -> list[int]:
    """The processes that it forked."""
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


def killed(model: Path, source: Path, output: Path, seconds: float) -> int:
    """The command, killed three times on its way, then let finish; how many kills met it at work."""
    met = 0
    for _ in range(3):
        process = subprocess.Popen(
            command(model, source, output), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(seconds / 4)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            met += 1
    subprocess.run(command(model, source, output), check=True, capture_output=True)
    return met


def in_memory(model: Path, texts: list[str]) -> tuple[float, float]:
    """Seconds of `Predictor.classify` for the texts, and of `Predictor.predict` for as many rows."""
    predictor = albertine.Predictor(model, precision="float32")
    predictor.classify(texts[:1000])
    begin = time.perf_counter()
    for at in range(0, len(texts), 4096):
        predictor.classify(texts[at : at + 4096])
    half = time.perf_counter()
    for _ in predictor.predict({"text": text} for text in texts):
        pass
    return half - begin, time.perf_counter() - half


def of_transformers(model: Path, texts: list[str]) -> float:
    """Texts a second of transformers' pipeline with batches of 64, sorted by nothing, as it is documented."""
    from transformers import pipeline

    classify = pipeline("text-classification", model=str(model), device="cpu", batch_size=64)
    classify(texts[:640], truncation=True, max_length=64)
    begin = time.perf_counter()
    classify(texts, truncation=True, max_length=64)
    return len(texts) / (time.perf_counter() - begin)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args(words)
    with TemporaryDirectory() as place:
        folder = Path(place)
        model, source = model_folder(folder / "model"), folder / "in.csv"
        table(arguments.shared, source, arguments.rows // 10)
        tenth = whole(model, source, folder / "tenth.csv")
        texts = table(arguments.shared, source, arguments.rows)
        # Half of them before the file and half after it: machines have better minutes and worse.
        before = in_memory(model, texts[::2])
        file = whole(model, source, folder / "out.csv")
        one = whole(model, source, folder / "one.csv", "--workers", "1")
        listed, rows = (
            len(texts) / (a + b) for a, b in zip(before, in_memory(model, texts[1::2]), strict=True)
        )
        rates = {
            "file": len(texts) / file["seconds"],
            "file, one process": len(texts) / one["seconds"],
            "memory": listed,
            "memory, as rows": rows,
            "transformers": of_transformers(model, texts[::PIPELINE_SHARE]),
        }
        kills = killed(model, source, folder / "again.csv", file["seconds"])
        result = {
            "rows": len(texts),
            "texts_a_second": rates,
            "of_memory": rates["file"] / rates["memory"],
            "of_rows_in_memory": rates["file"] / rates["memory, as rows"],
            "of_one_process": rates["file"] / rates["file, one process"],
            "of_transformers": rates["file"] / rates["transformers"],
            "peak_megabytes": {
                "a tenth of the rows": tenth["megabytes"],
                "all": file["megabytes"],
                "all, one process": one["megabytes"],
            },
            "kills": kills,
            "the_same_after_kills": digest(folder / "out.csv") == digest(folder / "again.csv"),
        }
    print(json.dumps(result, indent=2))
    if arguments.save:
        print(f"written: {save_result('predict-file', {'machine': describe(), **result})}")


if __name__ == "__main__":
    main()
