"""What the commands do, from Python: `albertine.prepare`, `pretrain`, `distill`, `finetune` and others.

Each takes the settings of its command, runs the same code and leaves the same folder, so that either goes on
with what the other began.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from albertine.arithmetic import InferencePrecision
from albertine.errors import DataError, SettingsError, check_whole, needs_torch
from albertine.files import from_home
from albertine.settings import RunSettings, merged, read_recipe, resolve
from albertine.tasks.given import texts_of
from albertine.tasks.readers.values import plain
from albertine.text.columns import is_table

if TYPE_CHECKING:
    from albertine.cli.vocabulary import Kind
    from albertine.corpus.manifest import Manifest
    from albertine.pretraining.run import PretrainResult
    from albertine.pretraining.scores import SentenceTask
    from albertine.tasks.finetune import FinetuneResult
    from albertine.tasks.judge import Judged
    from albertine.text.documents import FileReport
    from albertine.training.progress import Reporter

S = TypeVar("S", bound=RunSettings)
R = TypeVar("R", "PretrainResult", "FinetuneResult")
Part = Mapping[str, Any]
IN_MEMORY = "Give files and folders; a corpus of texts in memory is made by albertine.prepare(texts=[…])"
ROWS = 'Give the path of a file, or rows: [{"text": …, "label": …}, …]'
"""What to give where a text stands for a file."""


@needs_torch
def prepare(
    text: str | Path | Sequence[str | Path] | None = None,
    output: str | Path | None = None,
    *,
    texts: Iterable[str] | None = None,
    tokenizer: str | Path | None = None,
    kind: Kind | None = None,
    vocab_size: int | None = None,
    language: str = "auto",
    **options: Any,
) -> Manifest:
    """Text to a corpus, or go on with one that the same call began.

    Args:
        text: files and folders. output: folder of the corpus.
        texts: instead of files texts in memory, each a document: a list, an array, a Series or a column of a
            table. The corpus is the same wherever and whenever it is made of them.
        tokenizer: all that `albertine.load_tokenizer` takes; default: a vocabulary is trained from the text.
        kind: of that vocabulary, "sentencepiece", "wordpiece" or "xlnet"; default by the language.
        vocab_size: of that vocabulary; default one that fits the text. language: "en", "zh" or "auto".
        options: as `corpus.prepare.prepare` has them, such as `format`, `text_field`, `encoding`,
            `held_out`, `words`, `workers`, `seed`.

    Returns:
        What the corpus holds, as `albertine info` tells it.

    Raises:
        AlbertineError: there is no such option, the text cannot be read, or the folder belongs to another
            call.
    """
    from albertine.cli.source import Source
    from albertine.cli.text_to_corpus import corpus_of, unwatched
    from albertine.corpus.prepare import prepare as run

    own, more = (signature(one).parameters.values() for one in (prepare, run))
    known = [one.name for one in own if one.kind is not Parameter.VAR_KEYWORD]
    known += [one.name for one in more if one.kind is Parameter.KEYWORD_ONLY]
    for name in options:  # before a vocabulary is trained
        if name not in known:
            near = get_close_matches(name, known, n=1)
            remedy = f"Did you mean `{near[0]}`?" if near else f"Known are {', '.join(known)}"
            raise SettingsError(f"there is no option `{name}`", where="albertine.prepare", remedy=remedy)
    vocab_size, options = plain(vocab_size, "vocab_size"), plain(options, "albertine.prepare")
    if vocab_size is not None:
        check_whole("vocab_size", vocab_size, 1)
    if output is None or (text is not None and texts is not None):
        what = "needs an output" if output is None else "takes files as text, or texts in memory as texts"
        remedy = 'albertine.prepare("FOLDER", "corpora/mine") or prepare(texts=[…], output="corpora/mine")'
        raise SettingsError(what, where="albertine.prepare", remedy=remedy)
    folder = from_home(output)
    options |= {"tokenizer": tokenizer, "kind": kind, "vocab_size": vocab_size, "language": language}
    reading = {name: options.pop(name) for name in ("format", "text_field", "encoding") if name in options}
    if texts is None:
        return corpus_of(Source(_paths(text), **reading), folder, watch=unwatched, **options)
    if reading:
        what = f"{', '.join(reading)} is for files, and texts are in memory"
        raise SettingsError(what, where="albertine.prepare", remedy="Leave it out")
    with TemporaryDirectory() as name:
        file = _written(texts, Path(name))
        return corpus_of(
            Source([file], format="jsonl"), folder, watch=unwatched, named="texts in memory", **options
        )


@needs_torch
def pretrain(
    config: str | Path | None = None,
    *,
    resume: str | Path = "auto",
    branch_from: str | Path | None = None,
    reporter: Reporter | None = None,
    **settings: Any,
) -> PretrainResult:
    """Pretrain an encoder on a corpus, or go on with a run that was interrupted.

    Args:
        config: a recipe: a YAML file, or the name of one in the package.
        resume, branch_from: as in `pretraining.run.pretrain`.
        settings: over those of the recipe, parts as dictionaries:
            `pretrain(name="mine", corpus="corpora/mine", training={"minutes": 30})`.

    Returns:
        `folder`, that of the run, by which `albertine.load` takes its model; `outcome`, how it ended and its
        last `scores`; and `no_skill`, what a model that does not read scores on the same held-out text.

    Raises:
        KeyboardInterrupt, SystemExit: Ctrl-C, SIGTERM; the run was saved first, and the same call goes on
            with it.
        AlbertineError: settings, corpus, checkpoint or disk do not allow it.
    """
    from albertine.pretraining.run import pretrain as run
    from albertine.pretraining.settings import PretrainingSettings

    known = _settings(PretrainingSettings, config, settings)
    return _whole(run(known, resume=resume, branch_from=branch_from, reporter=reporter))


@needs_torch
def distill(
    teacher: str | Path,
    corpus: str | Path,
    run: str | Path | None = None,
    *,
    config: str | Path | None = None,
    resume: str | Path = "auto",
    branch_from: str | Path | None = None,
    reporter: Reporter | None = None,
    **student: Any,
) -> PretrainResult:
    """Teach a smaller encoder by a larger one, or go on with a run that was interrupted.

    Args:
        teacher: all that `albertine.load` takes. corpus: prepared with its tokenizer.
        run: folder of the run; default `runs/TEACHER-student`.
        config: a recipe: a YAML file, or the name of one in the package.
        resume, branch_from: as in `pretraining.run.pretrain`.
        student: what is smaller, such as `depth=2`, `hidden_size=128`, `sharing="all"`; default: half as many
            depths if nothing is named, else as many.

    Returns:
        As `pretrain`.

    Raises:
        KeyboardInterrupt, SystemExit: as `pretrain`.
        AlbertineError: teacher, corpus, settings, checkpoint or disk do not allow it.
    """
    from albertine.pretraining.distilling import distillation_settings
    from albertine.pretraining.run import pretrain as begin

    folder, recipe = (None if path is None else from_home(path) for path in (run, config))
    settings = distillation_settings(from_home(teacher), from_home(corpus), folder, student, recipe)
    return _whole(begin(settings, resume=resume, branch_from=branch_from, reporter=reporter))


@needs_torch
def finetune(
    encoder: str | Path,
    *,
    train: Any = None,
    dev: Any = None,
    test: Any = None,
    config: str | Path | None = None,
    name: str | None = None,
    output: str | Path | None = None,
    task: Part | None = None,
    encoder_options: Part | None = None,
    resume: str | Path = "auto",
    reporter: Reporter | None = None,
    **settings: Any,
) -> FinetuneResult:
    """Fine-tune an encoder for a task, or go on with a run that was interrupted.

    Args:
        encoder: a model or run folder, a released model, or `owner/name[@revision]` of the hub.
        train, dev, test: files, or rows in memory in any form that `tasks.readers.table.rows_of` reads: a
            list of mappings, a mapping of columns, a DataFrame, a `datasets.Dataset`. Rows in memory are kept
            in the run's folder, so that the run can be scored again.
        config: a recipe: a YAML file, or the name of one in the package.
        name, output: the run's folder is `output/name`; default: as the recipe says, else `runs/finetune`.
        task: what is learned, such as `{"kind": "score", "text": "review", "label": "stars"}`; without rows
            also a known data set, `{"dataset": "sst-2", "folder": "SST-2"}`, or one that a YAML file
            describes.
        encoder_options: what becomes of the encoder, the part `encoder` of a recipe without its folder:
            `{"num_hidden_layers": 2, "unshare": "all", "dropout": 0.1}`.
        resume: as in `tasks.finetune.finetune`.
        settings: the other parts, as dictionaries: `training={"epochs": 2}`, `watching=…`, `seed=…`.

    Returns:
        The run's folder, its scores on `dev` and `test`, and the folder of its best model, which
        `albertine.Predictor` asks.

    Raises:
        KeyboardInterrupt, SystemExit: Ctrl-C, SIGTERM; the run was saved first, and the same call goes on
            with it.
        AlbertineError: settings, rows or model do not allow it. Then no rows are kept.
    """
    from albertine.tasks.finetune import finetune as run
    from albertine.tasks.keeping import KeptRows, keeping
    from albertine.tasks.settings import FinetuneSettings

    if not isinstance(encoder, str | Path):
        raise SettingsError(
            f"encoder names a model, and is of the type {type(encoder).__name__}",
            remedy="Give its folder or name; what becomes of it stands in encoder_options",
        )
    from_home(encoder, instead="Name a model folder, a released model or OWNER/NAME of the hub")
    recipe = {} if config is None else read_recipe(from_home(config))
    name = name or recipe.get("name") or "finetune"
    output = output or recipe.get("output") or "runs"
    folder = from_home(str(output)) / str(name)
    files, kept, asked = dict[str, Path | list[Path]](), list[KeptRows](), _part("task", task)
    for split, rows in {"train": train, "dev": dev, "test": test}.items():
        if rows is not None and split in asked:
            raise SettingsError(f"`{split}` stands in task too", remedy="Give it once")
        if isinstance(rows, list | tuple) and rows and all(isinstance(one, str | Path) for one in rows):
            files[split] = [from_home(one, instead=ROWS) for one in rows]
        elif isinstance(rows, str | Path):
            files[split] = from_home(rows, instead=ROWS)
        elif rows is not None:
            kept.append(KeptRows.of(rows, folder, split))
            files[split] = kept[-1].path
    tree: dict[str, Any] = {
        **settings,
        "name": name,
        "output": output,
        "encoder": {**_part("encoder_options", encoder_options), "folder": encoder},
        "task": {**asked, **files},
    }
    resolved = _settings(FinetuneSettings, config, tree)
    with keeping(kept, folder):
        result = run(resolved, resume=resume, reporter=reporter)
    return _whole(result)


@needs_torch
def score(
    model: str | Path,
    corpus: str | Path | None = None,
    *,
    texts: str | Path | Sequence[str | Path] = (),
    max_length: int | None = None,
    sequences: int = 1024,
    pairs: bool = True,
    sentence_task: SentenceTask | None = None,
    memory: int | None = None,
    reach: int | None = None,
    clamp: int | None = None,
    device: str = "cpu",
    precision: InferencePrecision = "float32",
    on_file: Callable[[FileReport], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """How a pretrained model does on text it has not seen, beside what no skill would score.

    Args:
        model: any name of a model. corpus: whose held-out documents judge it.
        texts: files and folders in which to hide words instead; needs no corpus.
        max_length, sequences, pairs, memory, reach, clamp, precision: as the command has them.
        sentence_task: "sop" or "nsp", by whose pairs the sentence head is judged, whatever it was trained
            with, as in Table 5 of the ALBERT paper; default: its own.
        on_file: told of every file of `texts` that is read or passed over.

    Returns:
        What `albertine score --json` tells, by objective: "mlm", and "sop" or "nsp" where the model has it;
        of a model whose sequences go on "lm".

    Raises:
        AlbertineError: what is missing, damaged or does not fit together.
    """
    from albertine.pretraining.reading import reading
    from albertine.pretraining.scores import held_out_scores, open_pretrained, token_counts

    check_whole("sequences", sequences, 1)
    carried: dict[str, Any] = {"memory": memory, "reach": reach, "clamp": clamp}
    for name, value in {"max_length": max_length, **carried}.items():
        if value is not None:
            check_whole(name, value, 8 if name == "max_length" else 0)
    if corpus is None and (not pairs or sentence_task is not None or set(carried.values()) != {None}):
        raise SettingsError(
            "memory, reach, clamp, pairs and sentence_task are of a corpus",
            remedy="Name one, or leave them out",
        )
    files = _paths(texts)
    folder = None if corpus is None else from_home(corpus)
    judged = open_pretrained(model, device=device, precision=precision)
    found: dict[str, dict[str, Any]] = {"mlm": {"task": "mlm"}}
    how: dict[str, Any] = {"max_length": max_length}
    if folder is not None:
        how["counts"] = token_counts(judged, folder)  # which reads all of the corpus
        how |= {"pairs": pairs, "sentence_task": sentence_task}
        found = held_out_scores(judged, folder, sequences=sequences, **carried, **how)
    if "lm" in found and not files:
        return found
    found.setdefault("mlm", {"task": "mlm"})
    own = {name: how[name] for name in ("max_length", "counts") if name in how}
    found["mlm"] |= reading(judged, folder, files, passages=sequences, on_file=on_file, **own)
    return found


@needs_torch
def evaluate(
    model: str | Path,
    *,
    file: Any = None,
    task: Part | None = None,
    device: str = "cpu",
    precision: InferencePrecision | None = None,
) -> dict[str, dict[str, float]]:
    """The scores of a tuned run.

    Args:
        model: the run's folder, or that of a model in it; with own rows also of one that lies in no run.
        file: own rows to score instead of its test file, in a file or in memory.
        task: settings over those of the run, such as `{"text": "review", "label": "stars"}`, the columns of
            these rows, or where files lie now.
        precision: default: as in training.

    Returns:
        Scores by split: "dev", "test".

    Raises:
        AlbertineError: what is missing, damaged or does not fit together.
    """
    from albertine.tasks.judge import judge, open_run
    from albertine.tasks.keeping import KeptRows, keeping

    how: dict[str, Any] = {"task": _part("task", task), "precision": precision}
    if file is None:
        return _scores(judge(open_run(from_home(model), **how), device=device))
    with TemporaryDirectory() as name:
        folder = Path(name) / "rows"
        kept = [] if isinstance(file, str | Path) else [KeptRows.of(file, folder, "test")]
        own = kept[0].path if kept else from_home(file, instead=ROWS)
        with keeping(kept, folder):
            return _scores(judge(open_run(from_home(model), file=own, **how), ("test",), device))


def _whole(result: R) -> R:
    """The result of a run that nobody asked to stop. The signal of one that was asked to is handed on to the
    program now that the run is saved: it would go on with a model that is not there.

    Raises:
        KeyboardInterrupt: Ctrl-C ended it. SystemExit: another signal, for which the program has no handler;
            unlike the signal itself it lets the program clean up.
    """
    number = result.outcome.exit_code - 128
    if number == signal.SIGINT:
        raise KeyboardInterrupt(f"{result.folder}: asked to stop, and saved; the same call goes on")
    if number > 0 and signal.getsignal(number) == signal.SIG_DFL:
        raise SystemExit(result.outcome.exit_code)
    if number > 0:
        signal.raise_signal(number)
    return replace(result, folder=result.folder.absolute())  # a notebook may change its folder


def _scores(found: Sequence[Judged]) -> dict[str, dict[str, float]]:
    return {one.split: dict(one.scores) for one in found}


def _paths(given: str | Path | Iterable[str | Path] | None) -> list[Path]:
    """Files and folders of text.

    Raises:
        SettingsError: they are a table, which holds texts and no names, or nothing of the kind.
    """
    if isinstance(given, str | Path):
        return [from_home(given, instead=IN_MEMORY)]
    if not isinstance(given, Iterable) or is_table(given):
        raise SettingsError(f"a {type(given).__name__} names no files of text", remedy=IN_MEMORY)
    return [from_home(path, instead=IN_MEMORY) for path in given]


def _written(texts: Any, folder: Path) -> Path:
    """Texts as a file of JSON lines, a document each; the same texts are a file of the same name.

    Raises:
        DataError: they are none, or one of them is no text.
    """
    found = texts_of(texts)
    if not any(text.strip() for text in found):
        raise DataError("there is no text in them", where="texts", remedy="Give a list of texts")
    content = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in found).encode()
    # A corpus knows its sources by names and sizes of files: texts of equal sizes are told apart by a digest.
    file = folder / f"texts-{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
    file.write_bytes(content)
    return file


def _part(name: str, given: Part | None) -> Part:
    """A part of the settings that a caller gives as a dictionary; none is an empty one.

    Raises:
        SettingsError: it is something else.
    """
    if given is None or isinstance(given, Mapping):
        return given or {}
    example = {"encoder_options": '{"num_hidden_layers": 2}', "task": '{"text": "review"}'}[name]
    raise SettingsError(
        f"{name} is of the type {type(given).__name__}", remedy=f"Give a dictionary, such as {example}"
    )


def _settings(cls: type[S], config: str | Path | None, given: Mapping[str, Any]) -> S:
    """Settings of a recipe with others over them."""
    return resolve(cls, merged({} if config is None else read_recipe(from_home(config)), given), config)
