"""How well vectors of an encoder not tuned for them rank pairs of texts: Spearman's correlation with
the scores of dev sets, for means of each depth, whitened or not, and the mean over depths.

    python -m benchmarks.vectors albertine-mini-en --text ../shared/data/en_wiki_2018 --save
    python -m benchmarks.vectors albertine-mini-zh --text ../shared/data/zh_wiki --save

The text that whitening is measured on is none of the judged.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

import albertine
from albertine.bench.machine import describe, save_result
from albertine.core.batch import Packed, pack
from albertine.evaluation.metrics import spearman
from albertine.inference.whitening import LONGEST, fit_whitening, sentences_of
from albertine.model.pooling import mean_rows, text_vectors
from albertine.tasks.dataset_registry import named
from albertine.tasks.datasets.similarity import read
from albertine.tasks.embed import Likeness

SETS = {
    "en": {"sts-b": "glue/STS-B", "sick-relatedness": "sick"},
    "zh": {"lcqmc": "lcqmc", "bq": "bq_corpus", "afqmc": "afqmc"},
}
MOST, TOGETHER = 2000, 64


def pairs_of(name: str, folder: Path) -> list[Likeness]:
    """The first pairs of a dev set that have a score."""
    return [p for p in read(named(name), folder, "dev") if p.label is not None][:MOST]


def packed(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Packed:
    """Texts as the tokenizer lays them out, with their segments."""
    return pack([ids for ids, _ in rows], [types for _, types in rows])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="whose sentences whitening sees")
    parser.add_argument("--language", choices=tuple(SETS), help="default: by the model's name")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    options = parser.parse_args()
    language = options.language or ("zh" if options.model.rstrip("/").endswith("zh") else "en")
    model = albertine.load(options.model).eval()
    tokenizer = albertine.load_tokenizer(options.model)
    sentences = sentences_of(options.text)

    def of_depth(depth: int) -> Callable[[Packed], Tensor]:
        return lambda packed: mean_rows(model.encoder(packed, depth=depth).last_hidden.float(), packed)

    ways: dict[str, Callable[[Packed], Tensor]] = {}
    for depth in range(model.config.plan.depth + 1):
        whitening = fit_whitening(model, tokenizer, sentences, depth)
        ways[f"depth {depth}"] = of_depth(depth)
        ways[f"depth {depth}, whitened"] = lambda packed, w=whitening: w(model, packed)  # type: ignore[misc]
    ways["all depths"] = lambda packed: text_vectors(model, packed, "depths")
    found: dict[str, dict[str, float]] = {way: {} for way in ways}
    for name, folder in SETS[language].items():
        pairs = pairs_of(name, options.shared / folder)
        sides = [tokenizer.encode_batch([getattr(p, side) for p in pairs]) for side in ("text", "pair")]
        rows = [[tokenizer.layout(ids, max_length=LONGEST) for ids in side] for side in sides]
        for way, vectors in ways.items():
            with torch.inference_mode():
                a, b = (
                    torch.cat([vectors(packed(r[i : i + TOGETHER])) for i in range(0, len(r), TOGETHER)])
                    for r in rows
                )
            cosines = torch.cosine_similarity(a, b).tolist()
            found[way][name] = spearman([p.label for p in pairs], cosines)
    for way, scores in found.items():
        print(f"{way:18}", *(f"{name} {score:.3f}" for name, score in scores.items()))
    if options.save:
        record = {"model": options.model, "sentences": len(sentences), "pairs": MOST, "spearman": found}
        print(save_result(f"vectors-{language}", {"machine": describe(), **record}))


if __name__ == "__main__":
    main()
