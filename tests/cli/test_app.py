"""The command line as used by people and scripts: help, wrong usage, exit codes, pipes and signals."""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.core import TyperGroup
from typer.main import get_command

from albertine.cli import demo, info
from albertine.cli.app import build, run
from albertine.interop.huggingface.folders import save_model
from tests.cli.conftest import Command
from tests.model import builders

COMMAND = [sys.executable, "-m", "albertine"]
HEAVY = ("torch", "numpy", "transformers", "pyarrow", "matplotlib", "tokenizers", "sentencepiece", "rich")


def verbs() -> list[str]:
    app = build()
    return [c.name or "" for c in app.registered_commands] + [g.name or "" for g in app.registered_groups]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["pretrain", "--help"], ["predict", "--help"]]
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys; from albertine.cli.app import run; code = run(sys.argv[1:]); "
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]; print('heavy:', heavy); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("heavy: []\n")


def test_every_verb_has_help(albertine: Command) -> None:
    for verb in verbs():
        outcome = albertine(verb, "--help")
        assert outcome.code == 0 and f"albertine {verb}" in outcome.out


def test_the_table_of_verbs_holds_whole_sentences_in_the_order_of_work(albertine: Command) -> None:
    listed = albertine("--help").out.partition("Commands:\n")[2].strip("\n").splitlines()
    assert all(line.endswith(".") and not line.endswith("...") for line in listed), listed
    names = [line.split()[0] for line in listed]
    assert sorted(names) == sorted(verbs()), "each verb is listed under its name"
    assert names.index("prepare") < names.index("pretrain") < names.index("score") < names.index("predict")


def test_the_tables_of_commands_are_not_cut_off(albertine: Command) -> None:
    for group in (
        name for name, verb in get_command(build()).commands.items() if isinstance(verb, TyperGroup)
    ):
        listed = albertine(group, "--help").out.partition("Commands:\n")[2].strip("\n").splitlines()
        assert listed and not [line for line in listed if line.endswith("...")], group


def test_help_on_a_terminal_has_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in it is taken for markup, as `[@revision]` would be by rich and `<cls>` by Markdown."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stdout", _Terminal())
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    for words, command in _commands(get_command(build())):
        sys.stdout.seek(0)
        sys.stdout.truncate()
        assert run([*words, "--help"]) == 0
        shown = _bare(sys.stdout.getvalue())
        texts = [command.help or "", *(getattr(one, "help", None) or "" for one in command.params)]
        lost = [word for text in texts for word in text.split() if _bare(word) not in shown]
        assert not lost, (words, lost)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*words, name))


def _bare(text: str) -> str:
    """A text without colours, blanks, the lines of boxes, and what marks code."""
    return re.sub(r"\x1b\[[0-9;]*m|[\s`\u2500-\u257f]", "", text)


def test_help_in_a_file_is_plain(albertine: Command) -> None:
    for arguments in (["--help"], ["info", "--help"], ["info"], ["info", "albert-base-v2"]):
        assert not re.search(r"[\x1b\u2500-\u257f]", albertine(*arguments).out)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["inof"], "info"),
        (["pretrian"], "pretrain"),
        (["info", "--jsn"], "--json"),
        (["info", "albert-bas-v2"], "albert-base-v2"),
        (["predict", "fill-masks"], "fill-mask"),
        (["embed", "albertine-mini-en", "a text"], "Did you mean 'predict embed'?"),
        (["fill-mask", "a [MASK]"], "Did you mean 'predict fill-mask'?"),
        (["predict", "runs/mails", "a text"], "Write one of these before it: fill-mask, order, classify,"),
        (["analyze", "albertine-mini-en"], "Write one of these before it: layers, attention,"),
        (["predict", "--jsn"], "No such option: --jsn"),
        (["pretrain", "recipes/a.yaml"], "A recipe is named by --config recipes/a.yaml"),
        (["finetune"], "For example: name=reviews encoder.folder=albertine-mini-en task.train="),
        (["pretrain", "name=a"], "For example: name=mine corpus=corpora/mine model.preset=albertine-mini"),
    ],
)
def test_wrong_arguments_suggest_the_nearest_name(
    albertine: Command, arguments: list[str], hint: str
) -> None:
    outcome = albertine(*arguments)
    assert outcome.code == 2 and hint in outcome.err and "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--learning-rate", "1e-5"), "no option `--learning-rate`. Write training.learning_rate=1e-5"),
        (("--learning-rate=1e-5",), "no option `--learning-rate`. Write training.learning_rate=1e-5"),
        (("name=a", "--lr", "1e-5"), "no option `--lr`. Write training.learning_rate=1e-5"),
        (("--max-length",), "no option `--max-length`. Write"),
        (("--resum", "never"), "--resume"),
        (("--whatever", "3"), "no option `--whatever`. Settings are written key.sub=value; --help"),
        (("-x",), "no option `-x`"),
        (("--seed", "7"), "no option `--seed`. Write seed=7"),
        (("--compile", "name=a"), "Write training.compile=VALUE"),
        (("--lr", "1 2"), "Write 'training.learning_rate=1 2'"),
    ],
)
@pytest.mark.parametrize("verb", ["finetune", "pretrain"])
def test_a_setting_that_is_given_as_an_option(
    albertine: Command, verb: str, words: tuple[str, ...], message: str
) -> None:
    outcome = albertine(verb, *words)
    assert outcome.code == 2 and message in outcome.err and "Traceback" not in outcome.err


def test_an_error_is_one_message_and_exit_code_2(albertine: Command) -> None:
    outcome = albertine("info", "no/such/folder")
    assert outcome.code == 2 and outcome.out == ""
    assert outcome.err.startswith("albertine: no/such/folder: is neither a folder nor a released model. ")
    assert outcome.err.count("\n") == 1
    outcome = albertine("info", "no/such.yaml")
    assert (outcome.code, outcome.err) == (
        2,
        "albertine: no/such.yaml: there is no such file. Check the path\n",
    )


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "runs/a"), 2, "runs/a: the disk is full"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 2, "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "x: may not be opened"),
        (FileNotFoundError(errno.ENOENT, "No such file", "y"), 2, "y: no such file"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), 2, "allocate 2.00 GiB"),
        (MemoryError(), 2, "there is not enough memory (Python could not allocate). In training, set"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(143), 143, ""),
        (SystemExit(1), 1, ""),
    ],
)
def test_exit_codes(
    albertine: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(json: bool) -> None:
        raise error

    monkeypatch.setattr(info, "_presets", fail)
    outcome = albertine("info")
    assert outcome.code == code and message in outcome.err and "Traceback" not in outcome.err


def test_too_little_memory_on_a_processor_is_one_message(
    albertine: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "_presets", lambda json: torch.empty(1 << 60))
    outcome = albertine("info")
    assert outcome.code == 2 and "there is not enough memory (" in outcome.err
    assert outcome.err.count("\n") == 1 and "Traceback" not in outcome.err


def test_our_own_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(json: bool) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(info, "_presets", fail)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError):
        run(["info"])
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(tmp_path: Path, number: signal.Signals, code: int) -> None:
    script = (
        "import sys, time, pathlib; from albertine.cli import info; from albertine.cli.app import run\n"
        "def wait(json):\n    pathlib.Path('ready').touch(); time.sleep(60)\n"
        "info._presets = wait; sys.exit(run(['info']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == code and "Traceback" not in stderr


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_run_whose_terminal_was_closed_ends_by_its_signal(unbuffered: str) -> None:
    """Not with words that are not printed."""
    script = (
        "import sys; from albertine.cli import info, show; from albertine.cli.app import run\n"
        "def leave(json):\n    sys.stdin.readline(); show.stopped('auto'); raise SystemExit(129)\n"
        "info._presets = leave; sys.exit(run(['info']))"
    )
    ours, its = os.openpty()
    how: Any = {"stdin": subprocess.PIPE, "stdout": its, "stderr": its}
    how["env"] = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    process = subprocess.Popen([sys.executable, "-c", script], **how)
    os.close(its)
    os.close(ours)
    process.communicate(b"\n", timeout=30)
    assert process.returncode == 129


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen([*COMMAND, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout and process.stderr
    process.stdout.close()
    stderr = process.stderr.read()
    process.wait(timeout=30)
    assert stderr == b""


def test_without_a_terminal_or_a_locale() -> None:
    environment = {"PATH": os.environ["PATH"], "PYTHONIOENCODING": "ascii", "HOME": "/nonexistent"}
    done = subprocess.run(
        [*COMMAND, "info", "没有"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2 and b"Traceback" not in done.stderr and b"there is no preset" in done.stderr


CAPACITY = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams(closed: str) -> None:
    """As a daemon's are."""
    words = shlex.join([*COMMAND, "--version"])
    done = subprocess.run(["sh", "-c", f"exec {words} {closed}"], capture_output=True, check=False)
    assert done.returncode == 0 and done.stderr == b""


@pytest.mark.parametrize(
    ("given", "load", "verb", "policy", "spins"),
    [
        ({}, 0.0, "--version", "PASSIVE", None),
        ({}, 0.0, "pretrain", "PASSIVE", None),
        ({}, 0.0, "predict", "PASSIVE", "10000"),
        ({}, 0.0, "serve", "PASSIVE", "10000"),
        ({}, 99.0, "predict", "PASSIVE", None),
        ({}, 99.0, "bench", "PASSIVE", "10000"),
        ({"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "7"}, 0.0, "predict", "ACTIVE", "7"),
    ],
)
def test_threads_wait_passively_by_default(
    given: dict[str, str],
    load: float,
    verb: str,
    policy: str,
    spins: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that what is set here is undone
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    load_file = tmp_path / "loadavg"
    load_file.write_text(f"99.9 99.9 99.9 {1 + int(load)}/99 4711\n")
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0))  # what ran before does not count
    monkeypatch.setattr("albertine.core.processors.LOAD_FILE", str(load_file))
    run([verb, "--help"])
    assert os.environ["OMP_WAIT_POLICY"] == policy and os.environ.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize(
    ("verb", "flag", "kept"),
    [
        ("pretrain", "avx2", "8"),
        ("distill", "avx2", "8"),
        ("finetune", "avx2", "8"),
        ("pretrain", "amx_bf16", None),
        ("predict", "avx2", None),
    ],
)
def test_training_in_float32_keeps_few_kernels(
    verb: str, flag: str, kept: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where products are compiled too, in bfloat16 and in inference, oneDNN keeps its default number."""
    monkeypatch.setenv(CAPACITY, "")  # so that what is set here is undone
    monkeypatch.delenv(CAPACITY)
    monkeypatch.setattr("albertine.cli.app.cpu_flags", lambda: frozenset((flag,)))
    run([verb, "--help"])
    assert os.environ.get(CAPACITY) == kept
    monkeypatch.setenv(CAPACITY, "7")
    run([verb, "--help"])
    assert os.environ[CAPACITY] == "7"


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (["cloze", "no-such-text", "-o", ""], "--output: "),
        (["cloze", "no-such-text", "--output", ""], "--output: "),
        (["cloze", "no-such-text", "--output="], "--output: "),
        (["convert", ".", ""], "TO: "),
        (["convert", "", "to"], "FROM: "),
        (["export", "model", ""], "OUT: "),
        (["export", "", "to"], ""),
        (["score", ""], ""),
        (["evaluate", "", "."], ""),
        (["prune", "model", "text", "", "-o", "to"], "TEXT: "),
        (["predict", "classify", "", "a text"], "MODEL: "),
        (["finetune", "name=", "--config="], "--config: "),
    ],
)
def test_an_empty_path_is_not_the_working_folder(
    albertine: Command, words: list[str], where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `"$OUT"` is where it is not set. Catches: one verb or one form of a path left out."""
    save_model(builders.model(), None, tmp_path)
    monkeypatch.chdir(tmp_path)
    outcome = albertine(*words)
    assert outcome.code == 2
    assert outcome.err.startswith(f"albertine: {where}an empty word names no file or folder")


def test_an_empty_text_beside_a_path_is_a_text(albertine: Command, tmp_path: Path) -> None:
    """Catches: every empty argument refused, also where a dot names the folder."""
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    outcome = albertine("tokenizer", "encode", tmp_path, "")
    assert outcome.code == 0 and "[CLS]" in outcome.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
def test_a_full_disk_behind_stdout_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "--version"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"the disk is full" in done.stderr


def test_a_stopped_demo_names_the_signal(
    albertine: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    corpus = SimpleNamespace(
        documents=1, sentences=1, tokens=1, vocab_size=9, tokenizer={"kind": "x"}, count=lambda *_: 1
    )
    stopped = SimpleNamespace(outcome=SimpleNamespace(done=False, exit_code=143), folder=tmp_path)
    monkeypatch.setattr("albertine.corpus.build.build_corpus", lambda *_, **how: corpus)
    monkeypatch.setattr(demo, "_model_in_words", lambda *_: "a model")
    monkeypatch.setattr("albertine.pretraining.run.pretrain", lambda *_: stopped)
    texts = Path(__file__).resolve().parents[2] / "data" / "demo"
    outcome = albertine("demo", "--language", "en", "--texts", texts, "-o", tmp_path)
    assert outcome.code == 143 and "Stopped" in outcome.out


def test_options_reach_their_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Noted:
        cut = 0

        def __init__(self, model: object, **how: object) -> None: ...

        def choose(self, passage: str, options: list[str], *, question: str = "") -> list[float]:
            calls.append((passage, options, question))
            return [0.5] * len(options)

    monkeypatch.setattr("albertine.tasks.predictor.Predictor", Noted)
    assert run(["predict", "choose", "m", "he sat", "a", "b", "--question", "who"]) == 0
    assert calls == [("he sat", ["a", "b"], "who")]
