"""What the commands do, from Python: `albertine.prepare`, `pretrain`, `distill`, `finetune` and others.

Each takes the settings of its command, runs the same code and leaves the same folder, so that either goes on
with what the other began.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import signal
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args

from albertine.core.dataframes import is_table
from albertine.core.files import user_path
from albertine.core.number_formats import InferencePrecision
from albertine.core.settings import RunSettings, merge, read_recipe, resolve
from albertine.errors import AlbertineError, DataError, SettingsError, check_integer, needs_torch
from albertine.tasks.input_texts import texts_of
from albertine.tasks.readers.values import plain

if TYPE_CHECKING:
    from albertine.corpus.manifest import Manifest
    from albertine.corpus.vocabulary import VocabularyKind
    from albertine.evaluation.ensembles import Rule
    from albertine.evaluation.minimal_pairs import Scoring
    from albertine.export.convert import Converted
    from albertine.export.export_model import Exported
    from albertine.interop.huggingface.folders import Stored
    from albertine.pretraining.run import PretrainResult
    from albertine.pretraining.scores import SentenceTask
    from albertine.tasks.finetune import FinetuneResult
    from albertine.tasks.rescore import Split, SplitResult, TunedRun
    from albertine.text.documents import FileReport
    from albertine.training.progress import Reporter

S = TypeVar("S", bound=RunSettings)
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R", "PretrainResult", "FinetuneResult")
Part = Mapping[str, Any]
IN_MEMORY = "Give files and folders; a corpus of texts in memory is made by albertine.prepare(texts=[…])"
ROWS = 'Give the path of a file, or rows: [{"text": …, "label": …}, …]'
"""What to give where a text stands for a file."""
log = logging.getLogger("albertine.tasks")
_OPTION = re.compile(r"--(no-)?([a-z][a-z0-9-]*)")
_COMMAND = re.compile(r"\balbertine [a-z]+\b[^.,;:()]*$")
"""A command of which an option after it is part."""


def _with_arguments(text: str, names: Container[str]) -> str:
    """A message of the command, with arguments of a function in place of options of the same names. Quoted
    commands stay as they are, and so do messages that mention Python."""
    if "in Python" in text:
        return text

    def argument(option: re.Match[str]) -> str:
        quoted = text.count("`", 0, option.start()) % 2 or _COMMAND.search(text, 0, option.start())
        name = option[2].replace("-", "_")
        if quoted or name not in names:
            return option[0]
        return f"`{name}=False`" if option[1] else f"`{name}`"

    return _OPTION.sub(argument, text).replace(" where a command has that option", "")


def naming_arguments(
    more: Callable[[], Iterable[str]] = tuple,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function whose errors are to name its arguments, and not options of the command.

    Args:
        more: names of arguments that its signature does not list.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except AlbertineError as error:
                names = {*signature(function).parameters, *more()}
                where = error.where
                where = _with_arguments(where, names) if isinstance(where, str) else where
                remedy = error.remedy and _with_arguments(error.remedy, names)
                AlbertineError.__init__(error, _with_arguments(error.what, names), where=where, remedy=remedy)
                raise

        return run

    return decorate


def _options_of_prepare() -> list[str]:
    """The names of all arguments of `write_corpus`, with those that stand in its `options`."""
    from albertine.corpus.prepare import write_corpus as run

    own, more = (signature(one).parameters.values() for one in (prepare, run))
    known = [one.name for one in own if one.kind is not Parameter.VAR_KEYWORD]
    return known + [one.name for one in more if one.kind is Parameter.KEYWORD_ONLY]


@needs_torch
@naming_arguments(_options_of_prepare)
def prepare(
    text: str | Path | Sequence[str | Path] | None = None,
    output: str | Path | None = None,
    *,
    texts: Iterable[str] | None = None,
    tokenizer: str | Path | None = None,
    kind: VocabularyKind | None = None,
    vocab_size: int | None = None,
    language: str = "auto",
    **options: Any,
) -> Manifest:
    """Text to a corpus, or go on with one that the same call began.

    Args:
        text: files and folders.
        output: folder of the corpus.
        texts: instead of files texts in memory, each a document: a list, an array, a Series or a column of a
            table. The corpus is the same wherever and whenever it is made of them.
        tokenizer: all that `albertine.load_tokenizer` takes; default: a vocabulary is trained from the text.
        kind: of that vocabulary, "sentencepiece", "wordpiece" or "xlnet"; default by the language.
        vocab_size: of that vocabulary; default one that fits the text.
        language: "en", "zh" or "auto".
        options: as `corpus.prepare.write_corpus` has them, such as `format`, `text_field`, `encoding`,
            `held_out`, `words`, `workers`, `seed`.

    Returns:
        What the corpus holds, as `albertine info` prints it.

    Raises:
        AlbertineError: there is no such option, the text cannot be read, or the folder belongs to another
            call.
    """
    from albertine import load_tokenizer
    from albertine.corpus.build import build_corpus
    from albertine.corpus.source import Source

    known = _options_of_prepare()
    for name in options:  # before a vocabulary is trained
        if name not in known:
            near = get_close_matches(name, known, n=1)
            remedy = f"Did you mean `{near[0]}`?" if near else f"Known are {', '.join(known)}"
            raise SettingsError(f"there is no option `{name}`", where="albertine.prepare", remedy=remedy)
    vocab_size, options = plain(vocab_size, "vocab_size"), plain(options, "albertine.prepare")
    if vocab_size is not None:
        check_integer("vocab_size", vocab_size, 1)
    if output is None or (text is not None and texts is not None):
        what = "needs an output" if output is None else "takes files as text, or texts in memory as texts"
        remedy = 'albertine.prepare("FOLDER", "corpora/mine") or prepare(texts=[…], output="corpora/mine")'
        raise SettingsError(what, where="albertine.prepare", remedy=remedy)
    folder = user_path(output)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    options |= {"tokenizer": loaded, "kind": kind, "vocab_size": vocab_size, "language": language}
    reading = {name: options.pop(name) for name in ("format", "text_field", "encoding") if name in options}
    if texts is None:
        return build_corpus(Source(_paths(text), **reading), folder, **options)
    if reading:
        what = f"{', '.join(reading)} is for files, and texts are in memory"
        raise SettingsError(what, where="albertine.prepare", remedy="Leave it out")
    with TemporaryDirectory() as name:
        file = _written(texts, Path(name))
        return build_corpus(Source([file], format="jsonl"), folder, named="texts in memory", **options)


@needs_torch
@naming_arguments()
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
@naming_arguments()
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
        teacher: all that `albertine.load` takes.
        corpus: prepared with its tokenizer.
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
    from albertine.pretraining.distillation_settings import distillation_settings
    from albertine.pretraining.run import pretrain as begin

    folder, recipe = (None if path is None else user_path(path) for path in (run, config))
    settings = distillation_settings(user_path(teacher), user_path(corpus), folder, student, recipe)
    return _whole(begin(settings, resume=resume, branch_from=branch_from, reporter=reporter))


@needs_torch
@naming_arguments()
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
        name, output: the run's folder is `output/name`; default: as in the recipe, else `runs/finetune`.
        task: what is learned, such as `{"kind": "score", "text": "review", "label": "stars"}`; without rows
            also a known data set, `{"dataset": "sst-2", "folder": "SST-2"}`, or one that a YAML file
            describes.
        encoder_options: what becomes of the encoder, the part `encoder` of a recipe without its folder:
            `{"num_hidden_layers": 2, "unshare": "all", "dropout": 0.1}`.
        resume: as in `tasks.finetune.finetune`.
        settings: the other parts, as dictionaries: `training={"epochs": 2}`, `watching=…`, `seed=…`.

    Returns:
        The run's folder, its scores on `dev` and `test`, and the folder of its best model, which
        `albertine.Predictor` takes.

    Raises:
        KeyboardInterrupt, SystemExit: Ctrl-C, SIGTERM; the run was saved first, and the same call goes on
            with it.
        AlbertineError: settings, rows or model do not allow it. Then no rows are kept.
    """
    from albertine.tasks.finetune import finetune as run
    from albertine.tasks.materialized_rows import MaterializedRows, materialized
    from albertine.tasks.settings import FinetuneSettings

    if not isinstance(encoder, str | Path):
        raise SettingsError(
            f"encoder names a model, and is of the type {type(encoder).__name__}",
            remedy="Give its folder or name; what becomes of it stands in encoder_options",
        )
    user_path(encoder, instead="Name a model folder, a released model or OWNER/NAME of the hub")
    recipe = {} if config is None else read_recipe(user_path(config))
    name = name or recipe.get("name") or "finetune"
    output = output or recipe.get("output") or "runs"
    folder = user_path(str(output)) / str(name)
    files, kept, given = dict[str, Path | list[Path]](), list[MaterializedRows](), _part("task", task)
    for split, rows in {"train": train, "dev": dev, "test": test}.items():
        if rows is not None and split in given:
            raise SettingsError(f"`{split}` stands in task too", remedy="Give it once")
        if isinstance(rows, list | tuple) and rows and all(isinstance(one, str | Path) for one in rows):
            files[split] = [user_path(one, instead=ROWS) for one in rows]
        elif isinstance(rows, str | Path):
            files[split] = user_path(rows, instead=ROWS)
        elif rows is not None:
            kept.append(MaterializedRows.of(rows, folder, split))
            files[split] = kept[-1].path
    tree: dict[str, Any] = {
        **settings,
        "name": name,
        "output": output,
        "encoder": {**_part("encoder_options", encoder_options), "folder": encoder},
        "task": {**given, **files},
    }
    resolved = _settings(FinetuneSettings, config, tree)
    with materialized(kept, folder):
        result = run(resolved, resume=resume, reporter=reporter)
    return _whole(result)


@needs_torch
@naming_arguments()
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
    layers: int | None = None,
    on_file: Callable[[FileReport], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """How a pretrained model does on text it has not seen, beside what no skill would score.

    Args:
        model: any name of a model.
        corpus: whose held-out documents judge it.
        texts: files and folders in which to hide words instead; needs no corpus.
        max_length, sequences, pairs, memory, reach, clamp, precision, layers: as the command has them.
        sentence_task: "sop" or "nsp", by whose pairs the sentence head is judged, whatever it was trained
            with, as in Table 5 of the ALBERT paper; default: its own.
        on_file: called with every file of `texts` that is read or skipped.

    Returns:
        What `albertine score --json` prints, by objective: "mlm", and "sop" or "nsp" where the model has it;
        of a model whose sequences go on "lm".

    Raises:
        NotFinite: a loss is not. AlbertineError: what is missing, damaged or does not fit together.
    """
    from albertine.pretraining.probes import score_pretrained

    check_integer("sequences", sequences, 1)
    memory_options: dict[str, Any] = {"memory": memory, "reach": reach, "clamp": clamp}
    for name, value in {"max_length": max_length, **memory_options}.items():
        if value is not None:
            check_integer(name, value, 8 if name == "max_length" else 0)
    of_corpus = memory_options | {"pairs": pairs, "sentence_task": sentence_task}
    unused = pairs and sentence_task is None and set(memory_options.values()) == {None}
    if corpus is None and not unused:
        raise SettingsError(
            "memory, reach, clamp, pairs and sentence_task are of a corpus",
            remedy="Name one, or leave them out",
        )
    return score_pretrained(
        model,
        None if corpus is None else user_path(corpus),
        texts=_paths(texts),
        max_length=max_length,
        sequences=sequences,
        device=device,
        precision=precision,
        layers=layers,
        on_file=on_file,
        **of_corpus,
    )


@needs_torch
@naming_arguments()
def evaluate(
    model: str | Path,
    *,
    file: Any = None,
    task: Part | None = None,
    device: str = "cpu",
    precision: InferencePrecision | None = None,
    layers: int | None = None,
) -> dict[str, dict[str, float]]:
    """The scores of a tuned run.

    Args:
        model: the run's folder, or that of a model in it; with own rows also of one that lies in no run.
        file: own rows to score instead of its test file, in a file or in memory.
        task: settings over those of the run, such as `{"text": "review", "label": "stars"}`, the columns of
            these rows, or where files lie now.
        precision: default: as in training.
        layers: another number of layers than the model has, as of `Predictor`.

    Returns:
        Scores by split: "dev", "test". Labels that no model can predict count as missed; a warning of the
        logger `albertine.tasks` counts them.

    Raises:
        AlbertineError: what is missing, damaged or does not fit together.
    """
    from albertine.tasks.materialized_rows import MaterializedRows, materialized
    from albertine.tasks.rescore import evaluate_run, open_run

    how: dict[str, Any] = {"task": _part("task", task), "precision": precision, "layers": layers}
    if file is None:
        run = open_run(user_path(model), **how)
        return _scores(run, evaluate_run(run, device=device))
    with TemporaryDirectory() as name:
        folder = Path(name) / "rows"
        kept = [] if isinstance(file, str | Path) else [MaterializedRows.of(file, folder, "test")]
        own = kept[0].path if kept else user_path(file, instead=ROWS)
        with materialized(kept, folder):
            run = open_run(user_path(model), file=own, **how)
            return _scores(run, evaluate_run(run, ("test",), device))


@needs_torch
@naming_arguments()
def info(what: str | Path | None = None, *, length: int | Sequence[int] | None = None) -> dict[str, Any]:
    """What a model costs: parameters, operations a token, memory.

    Args:
        what: a preset, a config.json, a recipe, a model, run or corpus folder, a checkpoint of a run, a
            released model or `owner/name` of the hub; None: all presets.
        length: of sequences, in tokens, for the operations; several in a list. Default: 128 and 512.

    Returns:
        What `albertine info --json` prints: `encoder`, `sharing`, `parameters`, `training_flops_per_token`
        and `inference_flops_per_token` by length, `memory_bytes`; of a corpus or an exported model its facts;
        without an argument the number of parameters by preset.

    Raises:
        AlbertineError: nothing of that name, or the model reads fewer tokens.
    """
    from albertine.pretraining.model_costs import costs, preset_sizes

    if what is None:
        return preset_sizes()
    lengths: Any = plain(length, "length")
    if lengths is not None and not isinstance(lengths, list | tuple):
        lengths = [lengths]
    return costs(str(user_path(what)), lengths)


@needs_torch
@naming_arguments()
def export(
    model: str | Path,
    output: str | Path | None = None,
    to: str | Sequence[str] = "onnx",
    *,
    head: str = "task",
    overwrite: bool = False,
    int8: bool = False,
    packed: bool = False,
    bfloat16: bool = False,
    opset: int | None = None,
    sample: str | Path | Sequence[str | Path] = (),
) -> Exported:
    """Write a model for another runtime, and compare what was written with the model before it stands; or an
    application of another server, with a copy of the model.

    Args:
        model: any name of a model.
        output: a new folder; None: `export` in the model's own, where `Predictor(model, runtime=…)` finds it.
        to: "onnx", "openvino", "torch" or "gguf", or several; or "ray-serve" or "triton".
        head: what the graph answers: "task" (that of the model, or the words under a mask), "fill-mask",
            "embed" or "features".
        overwrite: take the place of an earlier export.
        int8, packed, bfloat16, opset, sample: as the command has them; `sample` are files of text.

    Returns:
        `folder`, and `report`, the content of its export.json.

    Raises:
        AlbertineError: the model has no such graph, the export computes something else, a library is missing,
            or the folder holds something else. In each case nothing is written.
    """
    from albertine.export.export_model import export as run
    from albertine.export.formats import ExportOptions

    texts = tuple(_paths(sample)) if sample else ()
    options = ExportOptions(opset, int8, packed, bfloat16, texts)
    if not isinstance(to, str | Sequence):
        raise SettingsError(
            f"to is of the type {type(to).__name__}",
            remedy='Give a format, such as "onnx", or a list of them',
        )
    formats = [to] if isinstance(to, str) else list(to)
    return run(model, output, formats, head=head, overwrite=overwrite, options=options)


@needs_torch
@naming_arguments()
def convert(
    source: str | Path,
    target: str | Path,
    *,
    to: str | None = None,
    share: bool = False,
    lossy: bool = False,
    dtype: Stored = "float32",
    whiten: str | Path | Sequence[str | Path] = (),
    depth: int | None = None,
    sample: str | Path | None = None,
    without_head: bool = False,
    without_tokenizer: bool = False,
) -> Converted:
    """Write a model as another program loads it.

    Args:
        source: any name of a model, in any layout that is read.
        target: a new folder, or a model folder to replace.
        to: a layout, as the command has them, such as "bert", "albertine" or "google"; default: a folder that
            transformers loads where it can, nothing written twice.
        share, lossy, dtype, whiten, depth, sample, without_head, without_tokenizer: as the command has them;
            `whiten` are files of text, `dtype` is "float32", "bfloat16" or "float16".

    Returns:
        The folder, whether it has a tokenizer, with `share` the distances of the depths, and notes on what
        was left out.

    Raises:
        AlbertineError: the model cannot be read, the layout has no place for it, arguments that do not go
            together, or the folder holds something else.
    """
    from albertine.export.convert import convert as run

    texts = _paths(whiten) if whiten else ()
    if depth is not None:
        check_integer("depth", depth, 0)
    found = run(
        source,
        user_path(target),
        to=to,
        share=share,
        lossy=lossy,
        stored=dtype,
        whiten=texts,
        depth=depth,
        sample=None if sample is None else user_path(sample),
        without_head=without_head,
        without_tokenizer=without_tokenizer,
    )
    names = signature(convert).parameters
    return replace(found, notes=tuple(_with_arguments(note, names) for note in found.notes))


@needs_torch
@naming_arguments()
def suite(
    name: str,
    model: str | Path,
    data: str | Path,
    *,
    limit: int | None = None,
    scoring: Scoring = "pll",
    device: str = "cpu",
    precision: InferencePrecision = "auto",
    layers: int | None = None,
) -> dict[str, Any]:
    """A pretrained model on the minimal pairs of BLiMP or SLING: the right sentence should be likelier.

    Args:
        name: "blimp" or "sling".
        model: any name of a pretrained model.
        data: folder of the original files, or of their archive.
        limit: most pairs of a paradigm; default all.
        scoring: "pll": each token from all others, masked; "causal": from those before it, for a model
            pretrained with `objective.causal_share`.
        layers: another number of layers than the model has, as of `Predictor`.

    Returns:
        What `albertine suite --json` prints: the share right with its standard error, over all and by
        phenomenon and paradigm, beside published shares.

    Raises:
        AlbertineError: what is missing, damaged or does not fit together.
    """
    from albertine.pretraining.scores import suite_scores

    if limit is not None:
        check_integer("limit", limit, 1)
    how: dict[str, Any] = {"limit": limit, "device": device, "precision": precision, "layers": layers}
    scores = suite_scores(name, model, user_path(data), scoring=scoring, **how)
    return {"model": str(model), **scores.as_dict()}


@needs_torch
@naming_arguments()
def ensemble(
    runs: Sequence[str | Path],
    *,
    pick: int | None = None,
    rule: Rule | None = None,
    split: Split | None = None,
    file: Any = None,
    task: Part | None = None,
    output: str | Path | None = None,
    device: str = "cpu",
    precision: InferencePrecision | None = None,
) -> dict[str, Any]:
    """Score several tuned runs as one model, whose probabilities are the mean of theirs.

    Args:
        runs: folders of runs, of models in them, or of checkpoints; two or more.
        pick: take so many members at most, picked on the dev set. Default: all.
        rule: with `pick`: "greedy", the best together, which is the default, or "best", the best alone.
        split: "dev" or "test" alone; default both.
        file: own rows to score instead of the test file, in a file or in memory.
        task: settings over those of the runs, as in `evaluate`.
        output: folder of predictions and report; default: beside the first run.
        precision: default: as in training.

    Returns:
        What `albertine ensemble --json` prints: `scores` by split, `members`, `candidates` with their own
        scores, `rule`, `warning`, and the path of the `report`.

    Raises:
        AlbertineError: fewer than two runs, or they do not belong together; what is missing or damaged.
    """
    from albertine.core.devices import parse_device
    from albertine.core.files import writable_folder
    from albertine.evaluation.ensembles import Rule
    from albertine.tasks import ensemble as ensembles
    from albertine.tasks.materialized_rows import MaterializedRows, materialized
    from albertine.tasks.rescore import SPLITS, check_no_run, open_run
    from albertine.tasks.task_data import once

    if isinstance(runs, str | Path):
        raise SettingsError("an ensemble has two members or more", remedy="Give the folders in a list")
    if pick is not None:
        check_integer("pick", pick, 1)
    if rule not in (*get_args(Rule), None):
        raise SettingsError(f"there is no rule {rule!r:.40}", remedy=f"Known are {', '.join(get_args(Rule))}")
    if rule is not None and pick is None:
        raise SettingsError(
            "rule belongs to pick", remedy="Give pick, how many members to take, or leave it out"
        )
    if split not in (*SPLITS, None) or (split is not None and file is not None):
        raise SettingsError(
            f"split is dev or test, and not {split!r:.40}"
            if file is None
            else "split is of the runs' own files",
            remedy="Leave it out",
        )
    folders = _folders(runs, "runs")
    parse_device(device)  # before any data is read
    with TemporaryDirectory() as name:
        kept = (
            []
            if file is None or isinstance(file, str | Path)
            else [MaterializedRows.of(file, Path(name), "test")]
        )
        own = kept[0].path if kept else None if file is None else user_path(file, instead=ROWS)
        with materialized(kept, Path(name)):
            how: dict[str, Any] = {"task": _part("task", task), "precision": precision, "read": once()}
            how["dev"] = None if pick is None else True
            found = [open_run(folder, file=own, **how) for folder in folders]
            ensembles.check(found, splits := SPLITS if split is None and file is None else (split or "test",))
            folder = ensembles.ensemble_folder(found) if output is None else user_path(output)
            check_no_run(folder)
            with writable_folder(folder):
                whole = ensembles.ensemble(
                    found, pick=pick, rule=rule or "greedy", splits=splits, device=device
                )
            return ensembles.ensemble_data(whole, ensembles.write_ensemble(folder, whole))


@needs_torch
@naming_arguments()
def report(runs: str | Path | Sequence[str | Path], output: str | Path) -> dict[str, Any]:
    """Write a report on finished tuned runs from their files; or on one pretraining run, as one HTML file.

    Args:
        runs: their folders, also those that `evaluate` and `ensemble` of the command line wrote. Runs whose
            names differ in their seed alone are one task.
        output: folder of the report.

    Returns:
        What `albertine report --json` prints: the path of the `report`, and by task the spread of each
        metric; of a pretraining run there are none.

    Raises:
        RunError: a folder holds no finished run. SettingsError: a pretraining run is named with others.
    """
    from albertine.evaluation.report import read_tasks, report_data, write_report
    from albertine.pretraining.run_report import report_pretraining

    given = _folders([runs] if isinstance(runs, str | Path) else runs, "runs")
    if not given:
        raise SettingsError("there is no run to report on", remedy="Give the folders of finished runs")
    if (page := report_pretraining(given, user_path(output))) is not None:
        return {"report": str(page), "tasks": {}}
    tasks = read_tasks(given)
    return report_data(write_report(user_path(output), ", ".join(tasks), tasks), tasks)


@needs_torch
@naming_arguments()
def card(
    model: str | Path,
    *,
    licence: str | None = None,
    language: str | Sequence[str] | None = None,
    watts: float | None = None,
    grid: float | None = None,
    base_model: str | None = None,
) -> Path:
    """Write a model's card, README.md, from the run that made it; arguments as the command has them.

    Returns:
        The path of the card.

    Raises:
        AlbertineError: there is no model, the run is not done, or a value makes no sense.
    """
    from albertine.evaluation.card_metadata import CardMetadata
    from albertine.interop.model_names import model_folder
    from albertine.tasks.model_card import write_card

    given: Any = [] if language is None else [language] if isinstance(language, str) else language
    codes = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(code, str) for code in codes):
        raise SettingsError(
            f"language is {language!r:.40}", remedy='Give a code, such as "en", or a list of them'
        )
    if not isinstance(base_model, str | None):
        raise SettingsError(f"base_model is {base_model!r:.40}", remedy="Give OWNER/NAME of the hub")
    stated = CardMetadata(licence, tuple(codes) or None, watts, grid, base_model)
    return write_card(model_folder(model), stated)[0]


def _whole(result: R) -> R:
    """The result of a run that ended by itself. The signal that stopped a run is raised again now that it is
    saved: else the program would continue without the model that it expects.

    Raises:
        KeyboardInterrupt: Ctrl-C ended it. SystemExit: another signal, for which the program has no handler;
            unlike the signal itself it lets the program clean up.
    """
    number = result.outcome.exit_code - 128
    if number == signal.SIGINT:
        raise KeyboardInterrupt(f"{result.folder}: stopped and saved; the same call continues it")
    if number > 0 and signal.getsignal(number) == signal.SIG_DFL:
        raise SystemExit(result.outcome.exit_code)
    if number > 0:
        signal.raise_signal(number)
    return replace(result, folder=result.folder.absolute())  # a notebook may change its folder


def _scores(run: TunedRun, found: Sequence[SplitResult]) -> dict[str, dict[str, float]]:
    for note in run.notes([one.split for one in found if one.data.lost]):
        log.warning("%s, %s", run.name, note)
    return {one.split: dict(one.scores) for one in found}


def _paths(given: str | Path | Iterable[str | Path] | None) -> list[Path]:
    """Files and folders of text.

    Raises:
        SettingsError: they are a table, which holds texts and no names, or nothing of the kind.
    """
    if isinstance(given, str | Path):
        return [user_path(given, instead=IN_MEMORY)]
    if not isinstance(given, Iterable) or is_table(given):
        raise SettingsError(f"a {type(given).__name__} names no files of text", remedy=IN_MEMORY)
    return [user_path(path, instead=IN_MEMORY) for path in given]


def _folders(given: Any, name: str) -> list[Path]:
    """Folders in a list or another iterable.

    Raises:
        SettingsError: they are nothing of the kind.
    """
    if not isinstance(given, Iterable) or is_table(given):
        raise SettingsError(f"{name} is of the type {type(given).__name__}", remedy="Give folders in a list")
    return [user_path(one) for one in given]


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
    return resolve(cls, merge({} if config is None else read_recipe(user_path(config)), given), config)
