"""What a unit of a study computes, in the process that computes it. Results are JSON data."""

from __future__ import annotations

import fcntl
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from albertine.core.files import read_json, write_json
from albertine.core.settings import resolve
from albertine.errors import AlbertineError
from albertine.study.units import MODEL, RUN
from albertine.training.metrics import read_metrics

UNIT, RESULT, FAILED, LOG, LOCK = "unit.json", "result.json", "failed.json", "log.txt", ".lock"
"""Files in the folder of a unit."""
MOST_POINTS = 60
"""Points of a curve in a result."""

Scores = dict[str, Any]


class Stopped(Exception):
    """A run ended by a signal; it was saved."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def compute(folder: Path) -> int:
    """Compute the unit that `unit.json` in a folder describes, and write `result.json`, or `failed.json` with
    the reason. Where another process computes it already, wait for it.

    Returns:
        The exit code: 0, 1 failed, 128 + the signal that ended it.
    """
    with _locked(folder):
        if (folder / RESULT).is_file():
            return 0
        (folder / FAILED).unlink(missing_ok=True)
        unit, began = read_json(folder / UNIT), time.monotonic()
        try:
            result = KINDS[unit["kind"]](unit["work"], folder, unit["needs"])
        except Stopped as stopped:
            return stopped.code
        except Exception as error:
            # Whatever ends one unit, the others go on; the log has the traceback.
            traceback.print_exc()
            bug = "" if isinstance(error, AlbertineError) else f"{type(error).__name__}: "
            write_json(folder / FAILED, {"reason": f"{bug}{error}"[:2000]})
            return 1
        result.setdefault("seconds", round(time.monotonic() - began, 1))
        now = datetime.now(UTC).replace(microsecond=0)
        write_json(folder / RESULT, {**result, "date": now.isoformat(), "machine": _machine()})
        # A finished run does not need them, and they are large.
        shutil.rmtree(folder / RUN / "checkpoints", ignore_errors=True)
    return 0


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a unit, which ends with its process. Waits for another process."""
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_running(folder: Path) -> bool:
    """Whether a process of this machine computes the unit in a folder."""
    try:
        with (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _machine() -> dict[str, Any]:
    import torch

    from albertine.bench.machine import describe

    found = describe()
    known = {key: found[key] for key in ("hardware", "cpu", "cores", "gpu", "python")}
    versions = {name: found["versions"].get(name) for name in ("albertine", "torch")}
    return {**known, "versions": versions, "threads": torch.get_num_threads()}


def _needed(folder: Path, needs: list[str], kind: str) -> Path | None:
    """The folder of a unit of a kind that another one needs."""
    return next((folder.parent / key for key in needs if key.startswith(f"{kind}-")), None)


def _corpus_of(folder: Path, needs: list[str]) -> Path:
    found = _needed(folder, needs, "corpus")
    assert found is not None
    return found / "corpus"


def _model_of(folder: Path, needs: list[str]) -> Path:
    found = _needed(folder, needs, "pretrain")
    assert found is not None
    return found / MODEL


def _corpus(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.corpus.build import build_corpus
    from albertine.corpus.source import Source

    options = {key: value for key, value in work.items() if key not in ("text", "names")}
    manifest = build_corpus(
        Source([Path(path) for path in work["text"]]), folder / "corpus", shrink=True, **options
    )
    facts = {"documents": manifest.documents, "tokens": manifest.tokens, "vocabulary": manifest.vocab_size}
    return {"scores": {}, "facts": facts}


def _pretrain(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.pretraining.run import pretrain
    from albertine.pretraining.settings import PretrainingSettings
    from albertine.training.metrics import curve

    tree = {**work["settings"], "name": RUN, "output": str(folder), "corpus": str(_corpus_of(folder, needs))}
    found = pretrain(resolve(PretrainingSettings, tree))
    if not found.outcome.done:
        raise Stopped(found.outcome.exit_code)
    metrics, outcome = found.folder / "metrics.jsonl", found.outcome
    points = curve(metrics, "mlm_loss", evaluated=True)
    shutil.rmtree(found.folder / "best", ignore_errors=True)  # the last model is what is judged
    return {
        # What depends on the clock is no score.
        "scores": {"tokens": outcome.tokens, "steps": outcome.step},
        "facts": speed_of_updates(metrics, "tokens_per_second", tokens=True),
        "seconds": round(outcome.elapsed, 1),
        "curve": points[:: max(1, len(points) // MOST_POINTS)],
    }


def speed_of_updates(metrics: Path, name: str, *, tokens: bool = False) -> Scores:
    """Seconds an update of a run, or tokens a second, without the time of evaluations and checkpoints; empty
    where its metrics file has no line of training."""
    rows = [row for row in read_metrics(metrics) if row.get("tokens_per_second")]
    before = [0, *(row["tokens"] for row in rows)]
    read = [row["tokens"] - start for row, start in zip(rows, before, strict=False)]
    seconds = sum(count / row["tokens_per_second"] for count, row in zip(read, rows, strict=True))
    if seconds <= 0:
        return {}
    return {name: sum(read) / seconds if tokens else seconds / rows[-1]["step"]}


def _held_out(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.pretraining.scores import held_out_scores, open_pretrained

    pretrained, corpus = open_pretrained(_model_of(folder, needs)), _corpus_of(folder, needs)
    how = {"max_length": work["max_length"], "sequences": work["sequences"]}
    found = held_out_scores(pretrained, corpus, pairs=False, **how)
    words = found.get("mlm") or found["lm"]
    scores = {"mlm_accuracy": words["accuracy"], "mlm_loss": words["loss"]}
    scores |= {key: words[key] for key in ("mask_accuracy", "mask_loss", "context_gain") if key in words}
    for task in work["sentence"]:
        if pretrained.model.sentence is not None:
            pairs = held_out_scores(pretrained, corpus, sentence_task=task, sequences=work["sequences"])[task]
            own = {key: pairs[key] for key in ("accuracy", "baseline", "by_length") if key in pairs}
            scores |= {f"{task}_{key}": value for key, value in own.items()}
            least = max(own["baseline"], own.get("by_length", 0.0))
            scores[f"{task}_above_baseline"] = own["accuracy"] - least
    return {"scores": scores}


def _texts(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.pretraining.probes import probe_scores
    from albertine.pretraining.scores import open_pretrained

    pretrained, files = open_pretrained(_model_of(folder, needs)), [Path(path) for path in work["files"]]
    how = {"max_length": work["max_length"], "passages": work["passages"]}
    found = probe_scores(pretrained, _corpus_of(folder, needs), files, **how)["spans"]
    return {
        "scores": {"nats_per_character": found["nats_per_character"], "words_right": found["span_accuracy"]}
    }


def _layers(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.analysis.layers import layer_statistics
    from albertine.pretraining.probes import held_out_texts
    from albertine.pretraining.scores import open_pretrained

    _, model, tokenizer = open_pretrained(_model_of(folder, needs))
    texts = held_out_texts(_corpus_of(folder, needs), tokenizer, work["texts"])
    found = layer_statistics(model, tokenizer, texts, max_length=work["max_length"])
    distance, norm = found.distance.mean, found.norm.mean[1:]
    known = distance[found.zero_start :]  # without a layer 1 that begins at zeros
    steps = abs(known[1:] - known[:-1])
    return {
        "scores": {
            "distance_last": float(distance[-1] / norm[-1]),
            "distance_change": float(steps.mean() / known.mean()) if len(steps) else 0.0,
            "turning": float(found.curvature.mean.mean()) if len(steps) else 0.0,
            "cosine_last": float(found.cosine.mean[-1]),
        },
        "layers": {
            "distance": distance.tolist(),
            "cosine": found.cosine.mean.tolist(),
            "norm": found.norm.mean.tolist(),
        },
    }


def _finetune(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.tasks.finetune import finetune
    from albertine.tasks.settings import FinetuneSettings

    settings = {**work["settings"], "name": RUN, "output": str(folder)}
    settings["encoder"] = {**settings["encoder"], "folder": str(_model_of(folder, needs))}
    found = finetune(resolve(FinetuneSettings, settings))
    if not found.outcome.done:
        raise Stopped(found.outcome.exit_code)
    scores = {name: value for name, value in found.scores.items() if name != "step"}
    task, first = work["task"], next(iter(scores.values()))
    for model in ("final", "best"):
        shutil.rmtree(found.folder / model, ignore_errors=True)
    return {
        "scores": {task: first, **{f"{task}.{name}": value for name, value in scores.items()}},
        "facts": speed_of_updates(found.folder / "metrics.jsonl", f"{task}.seconds"),
        "seconds": round(found.outcome.elapsed, 1),
    }


def _suite(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.pretraining.scores import suite_scores

    found = suite_scores(work["suite"], _model_of(folder, needs), Path(work["folder"]), limit=work["limit"])
    return {"scores": {work["suite"]: found.overall.value}}


def _cost(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.analysis.parameters import report

    config, length = _config(work, folder, needs)
    found = report(config, (length,))
    return {
        "scores": {
            "parameters": found.everything,
            "megabytes": found.memory["weights_float32"] / 1e6,
            "training_flops": found.training_flops[length],
            "inference_flops": found.inference_flops[length],
        }
    }


def _step(work: Mapping[str, Any], folder: Path, needs: list[str]) -> Scores:
    from albertine.bench.paper_table2 import measure_size

    config, _ = _config(work, folder, needs)
    size = measure_size(work["settings"]["model"]["preset"], config, **work["step"])
    return {"scores": {"tokens_per_second": size.tokens_per_second}}


def _config(work: Mapping[str, Any], folder: Path, needs: list[str]) -> tuple[Any, int]:
    """The configuration of a cell's encoder, with the vocabulary of its corpus or of its preset, and the
    tokens of a sample."""
    from albertine.corpus.manifest import load_manifest
    from albertine.model.presets import preset
    from albertine.pretraining.initial_model import new_config
    from albertine.pretraining.settings import PretrainingSettings

    settings = resolve(PretrainingSettings, {**work["settings"], "name": RUN, "corpus": "corpus"})
    assert settings.model.preset is not None
    corpus = _needed(folder, needs, "corpus")
    size = load_manifest(corpus / "corpus").vocab_size if corpus else preset(settings.model.preset).vocab_size
    return new_config(settings, size), settings.objective.max_length


KINDS: dict[str, Callable[[Mapping[str, Any], Path, list[str]], Scores]] = {
    "corpus": _corpus,
    "pretrain": _pretrain,
    "held_out": _held_out,
    "texts": _texts,
    "layers": _layers,
    "finetune": _finetune,
    "suite": _suite,
    "cost": _cost,
    "step": _step,
}
