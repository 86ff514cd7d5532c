"""Preparing a corpus against the same work in `datasets.map`: rate, memory, and bytes for any workers.

    python -m benchmarks.prepare --save
    python -m benchmarks.prepare --megabytes 8 --memory-megabytes 0      a quick look

The text (one paragraph a line, a blank line between documents) is written to a temporary folder from the real
data sets beside the checkout. The peer reads it with `load_dataset("text")` and maps over it, in two
processes, the same sentence splitter and the same vocabulary as a fast tokenizer of transformers. The
variants take turns and the fastest of their rounds counts, because other work on the machine only ever adds
time. Rates are megabytes of raw UTF-8 text a second of wall time.

Memory is the largest sum over all processes of what each alone holds (PSS: shared pages are divided among
those who share them), sampled while a corpus is made from `--memory-megabytes` of text.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from albertine.bench.machine import describe
from albertine.corpus.prepare import write_corpus
from albertine.text.documents import Document, read_documents
from albertine.text.sentences import Language, split_sentences
from albertine.tokenizers.load import load_tokenizer
from benchmarks.keep import keep

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SOURCES: dict[Language, list[str]] = {"en": ["en_wiki_2018", "en_books"], "zh": ["zh_wiki", "zh_laws"]}
TOKENIZERS: dict[Language, str] = {"en": "albert-en-30k", "zh": "bert-zh-21128"}
FILE_BYTES = 32_000_000
SHORTEST = 200


def distinct_documents(language: Language) -> Iterator[str]:
    """The documents of the real data again and again, each made distinct by a last line, without end."""
    for turn in count():
        # from both sources in turn, so that a small part of the text has both kinds
        streams = [read_documents([DATA / name]) for name in SOURCES[language]]
        while streams:
            for stream in list(streams):
                taken = _next_characters(stream, 200_000)
                if not taken:
                    streams.remove(stream)
                for document in taken:
                    lines = [*document.paragraphs, f"Copy {turn}."] if turn else document.paragraphs
                    yield "\n".join(lines)


def _next_characters(stream: Iterator[Document], characters: int) -> list[Document]:
    taken: list[Document] = []
    for document in stream:
        if document.characters >= SHORTEST:
            taken.append(document)
            characters -= document.characters
            if characters <= 0:
                break
    return taken


def write_text(folder: Path, language: Language, megabytes: float) -> int:
    """Files of raw text in `folder`; their size in bytes."""
    folder.mkdir()
    documents, written = distinct_documents(language), 0
    for number in count():
        if written >= megabytes * 1e6:
            return written
        size = 0
        with (folder / f"text-{number:03d}.txt").open("wb") as file:
            for document in documents:
                size += file.write(document.encode() + b"\n\n")
                if size >= FILE_BYTES or written + size >= megabytes * 1e6:
                    break
        written += size
    raise AssertionError("count() never ends")


def ours(text: Path, folder: Path, language: Language, workers: int) -> int:
    """One corpus; its tokens."""
    tokenizer = load_tokenizer(DATA / "tokenizers" / TOKENIZERS[language])
    return write_corpus([text], folder, tokenizer, language, format="paragraphs", workers=workers).tokens


class Peer:
    """`datasets` doing the same: documents to sentences to ids and offsets, in two processes."""

    def __init__(self, text: Path, tokenizer: Path, language: Language, cache: Path) -> None:
        from transformers import AutoTokenizer

        self.files = sorted(str(path) for path in text.iterdir())
        self.tokenizer = AutoTokenizer.from_pretrained(tokenizer)
        self.language, self.cache = language, cache

    def encode(self, batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        tokens: list[list[int]] = []
        ends: list[list[int]] = []
        for document in batch["text"]:
            sentences = [s for line in document.split("\n") for s in split_sentences(line, self.language)]
            flat: list[int] = []
            offsets: list[int] = []
            if sentences:
                for ids in self.tokenizer(sentences, add_special_tokens=False)["input_ids"]:
                    flat += ids
                    offsets.append(len(flat))
            tokens.append(flat)
            ends.append(offsets)
        return {"tokens": tokens, "sentence_ends": ends}

    def run(self) -> dict[str, float]:
        """Seconds of reading and of mapping, and the tokens found."""
        import datasets

        datasets.disable_progress_bars()
        shutil.rmtree(self.cache, ignore_errors=True)
        begin = time.perf_counter()
        read = datasets.load_dataset(
            "text", data_files=self.files, sample_by="paragraph", split="train", cache_dir=str(self.cache)
        )
        middle = time.perf_counter()
        mapped = read.map(
            self.encode,
            batched=True,
            batch_size=200,
            num_proc=2,
            remove_columns=["text"],
            load_from_cache_file=False,
        )
        end = time.perf_counter()
        tokens = sum(len(row) for batch in mapped.iter(1000) for row in batch["tokens"])
        return {"read_seconds": middle - begin, "map_seconds": end - middle, "tokens": tokens}


def rates(work: Path, language: Language, megabytes: float, rounds: int) -> dict[str, Any]:
    """Megabytes a second of ours with one and two workers and of the peer, in turn."""
    size = write_text(work / "text", language, megabytes)
    load_tokenizer(DATA / "tokenizers" / TOKENIZERS[language]).save(work / "tokenizer")
    peer = Peer(work / "text", work / "tokenizer", language, work / "cache")
    seconds: dict[str, list[float]] = {
        "1 worker": [],
        "2 workers": [],
        "datasets": [],
        "datasets, map alone": [],
    }
    tokens: dict[str, int] = {}
    for _ in range(rounds):
        for workers in (1, 2):
            shutil.rmtree(work / "corpus", ignore_errors=True)
            begin = time.perf_counter()
            tokens["ours"] = ours(work / "text", work / "corpus", language, workers)
            seconds[f"{workers} worker{'s' * (workers > 1)}"].append(time.perf_counter() - begin)
        found = peer.run()
        tokens["datasets"] = int(found["tokens"])
        seconds["datasets"].append(found["read_seconds"] + found["map_seconds"])
        seconds["datasets, map alone"].append(found["map_seconds"])
    best = {name: size / 1e6 / min(values) for name, values in seconds.items()}
    return {
        "megabytes": round(size / 1e6, 1),
        "rounds": rounds,
        "seconds": seconds,
        "megabytes_per_second": best,
        "tokens": tokens,
        "ratio_whole": best["2 workers"] / best["datasets"],
        "ratio_to_map_alone": best["2 workers"] / best["datasets, map alone"],
    }


def same_bytes(work: Path, language: Language) -> dict[str, Any]:
    """Whether the corpus has the same bytes for 1 and 4 workers."""
    digests = {}
    for workers in (1, 4):
        shutil.rmtree(work / "corpus", ignore_errors=True)
        ours(work / "text", work / "corpus", language, workers)
        whole = hashlib.sha256()
        files = sorted(path for path in (work / "corpus").rglob("*") if path.is_file())
        for path in files:
            whole.update(f"{path.relative_to(work)}\0".encode() + path.read_bytes())
        digests[f"{workers} workers"] = whole.hexdigest()
    return {"files": len(files), "sha256": digests, "equal": len(set(digests.values())) == 1}


def tree(process: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    found = [process]
    for member in found:
        found += children.get(member, [])
    return found


def memory(process: int) -> tuple[int, int]:
    """Bytes held by a process and its descendants: PSS, and RSS (shared pages counted by each)."""
    pss = rss = 0
    for member in tree(process):
        try:
            lines = Path(f"/proc/{member}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        values = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
        pss += 1024 * int(values.get("Pss", 0))
        rss += 1024 * int(values.get("Rss", 0))
    return pss, rss


def _hooks_on(text: Path, folder: Path, language: Language, workers: int) -> None:
    ours(text, folder, language, workers)


def peak_memory(work: Path, language: Language, megabytes: float, workers: int) -> dict[str, Any]:
    """The largest PSS and RSS of `write_corpus` and its processes on that much text."""
    size = write_text(work / "large", language, megabytes)
    process = multiprocessing.get_context("spawn").Process(
        target=_hooks_on, args=(work / "large", work / "large-corpus", language, workers)
    )
    begin = time.perf_counter()
    process.start()
    pss = rss = 0
    while process.is_alive():
        assert process.pid is not None
        now = memory(process.pid)
        pss, rss = max(pss, now[0]), max(rss, now[1])
        time.sleep(0.1)
    process.join()
    seconds = time.perf_counter() - begin
    if process.exitcode:
        raise RuntimeError(f"prepare ended with code {process.exitcode}")
    return {
        "megabytes": round(size / 1e6, 1),
        "workers": workers,
        "peak_pss_megabytes": round(pss / 1e6),
        "peak_rss_megabytes": round(rss / 1e6),
        "megabytes_per_second": size / 1e6 / seconds,
    }


def report(result: dict[str, Any]) -> None:
    speed, equal = result["rates"], result["bytes"]
    for name, rate in speed["megabytes_per_second"].items():
        print(f"{name:22} {rate:7.2f} MB/s")
    print(f"2 workers against datasets: {speed['ratio_whole']:.2f}x")
    print(f"2 workers against its map alone: {speed['ratio_to_map_alone']:.2f}x")
    print(f"tokens: {speed['tokens']}")
    print(f"bytes for 1 and 4 workers: {'equal' if equal['equal'] else 'DIFFERENT'} ({equal['files']} files)")
    if held := result.get("memory"):
        print(
            f"peak memory on {held['megabytes']:,.0f} MB: {held['peak_pss_megabytes']:,} MB PSS, "
            f"{held['peak_rss_megabytes']:,} MB RSS ({held['workers']} workers, "
            f"{held['megabytes_per_second']:.1f} MB/s)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--language", choices=("en", "zh"), default="en")
    parser.add_argument("--megabytes", type=float, default=48, help="text of the comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--memory-megabytes", type=float, default=1100, help="text of the memory test; 0 leaves it out"
    )
    parser.add_argument("--memory-workers", type=int, default=2)
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    result: dict[str, Any] = {"machine": describe(), "language": arguments.language}
    steps: dict[str, Callable[[Path], Any]] = {
        "rates": lambda work: rates(work, arguments.language, arguments.megabytes, arguments.rounds),
        "bytes": lambda work: same_bytes(work, arguments.language),
    }
    if arguments.memory_megabytes:
        steps["memory"] = lambda work: peak_memory(
            work, arguments.language, arguments.memory_megabytes, arguments.memory_workers
        )
    with tempfile.TemporaryDirectory() as temporary:
        for name, step in steps.items():
            result[name] = step(Path(temporary))
    report(result)
    if arguments.save:
        keep("prepare" if arguments.language == "en" else f"prepare-{arguments.language}", result)


if __name__ == "__main__":
    main()
