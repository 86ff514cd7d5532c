"""README and documents: commands run, links lead to files, two commands set everything up."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from albertine.cli.app import build, run
from tests.toy import RUN, demo_text

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
READMES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh.md"}
TUTORIALS = [*sorted((DOCS / "tutorials").glob("*.md")), *sorted((DOCS / "zh").rglob("*.md"))]
PAGES = [
    *READMES.values(),
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *TUTORIALS,
    *sorted((DOCS / "how-to").glob("*.md")),
]
BOOKS = [*PAGES, DOCS / "objectives.md", *sorted((ROOT / "recipes").rglob("*.yaml"))]
RUNNABLE = [page for page in (*READMES.values(), *TUTORIALS) if "```bash" in page.read_text(encoding="utf-8")]


def blocks(page: Path, language: str = "bash") -> list[str]:
    """The fenced blocks of a page in one language; `bash` marks what a reader can run."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def commands(page: Path) -> list[list[str]]:
    lines = [line for block in blocks(page) for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.strip()]


def shown(page: Path) -> list[str]:
    """Every command of ours in a page, or in the comments at the head of a recipe."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".yaml":
        return re.findall(r"^# (?:command:)? +(albertine .*)$", text, re.MULTILINE)
    lines = [line for block in blocks(page, "[a-z]*") for line in block.replace("\\\n", " ").splitlines()]
    return [line.partition(" | ")[0] for line in lines if line.startswith("albertine ")]


def reviews(folder: Path, language: str) -> None:
    """The two files of the task that the READMEs tune on."""
    names, rows = {
        "en": (("review", "verdict"), (("A fine film.", "good"), ("A dull evening.", "bad"))),
        "zh": (("评论", "类别"), (("服务很好", "好"), ("再也不来", "坏"))),
    }[language]
    for name, count in (("train", 20), ("dev", 5)):
        lines = [",".join(names), *(",".join(row) for row in rows * count)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", READMES.values(), ids=READMES)
def test_exactly_two_commands_set_up(page: Path) -> None:
    assert [words for words in commands(page) if words[0] == "make"] == [["make", "demo"], ["make", "test"]]
    assert not [
        words for words in commands(page) if words[0] in ("pip", "pip3", "python", "python3", "git", "sudo")
    ]
    assert {"demo", "test", "check"} <= make_targets()


def test_continuous_integration_runs_check_and_test() -> None:
    for name, tests in (("run", "make test"), ("nightly", "make test-all")):
        script = ROOT / ".ci" / name
        lines = script.read_text(encoding="utf-8").splitlines()
        assert os.access(script, os.X_OK) and "set -euo pipefail" in lines
        assert [line for line in lines if line.startswith("make")] == ["make check", tests]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_and_named_paths_exist(page: Path) -> None:
    """Links within docs/, some of which lead to generated pages, are checked by `make check`."""
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)[)#]", "" if DOCS in page.parents else text):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for path in re.findall(r"\b(?:recipes|data/demo|docs|src|benchmarks)/[\w./-]*\w", text):
        assert (ROOT / path).exists() or (page.parent / path).exists(), f"{page.name} names {path}"


@pytest.mark.parametrize("page", BOOKS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_in_pages_parse(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its options and arguments exist; of `pretrain` and `finetune` the settings too."""
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    root = get_command(build())
    for line in shown(page):
        words = shlex.split(line, comments=True)[1:]
        command, rest, context = root, words, root.context_class(root, info_name="albertine")
        while isinstance(command, TyperGroup):
            name, command, rest = command.resolve_command(context, list(rest))
            assert command is not None, line
            context = command.context_class(
                command, info_name=name, parent=context, **command.context_settings
            )
        command.parse_args(context, list(rest))
        if words[0] in ("pretrain", "finetune"):
            code = run([*words, "--dry-run"])
            printed = capsys.readouterr().err
            assert code == 0 or "there is no such" in printed, f"{line}\n{printed}"


@pytest.mark.parametrize("page", BOOKS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_in_pages_need_no_more_quotes(page: Path) -> None:
    for line in shown(page):
        settings = [word for word in shlex.split(line, posix=False) if "=" in word and word[0] not in "'\""]
        assert not [word for word in settings if set("[]{}*?|;()") & set(word)], line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_run_names_of_a_page_are_unique(page: Path) -> None:
    names = re.findall(r"^albertine finetune .*?\b(name=\S+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) == len(set(names)), names


def test_words_of_jieba_are_masked_whole() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    lines = [line for text in texts for line in text.splitlines() if "--words jieba" in line]
    assert lines and all("objective.masking.whole_word=true" in line for line in lines)


@pytest.mark.sample(2, keep=("README.md", "README.zh.md"))
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_commands_and_python_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the page, with less text and fewer updates."""
    language = "zh" if "zh" in page.relative_to(ROOT).as_posix() else "en"
    where = tmp_path / "a folder"
    demo_text(language, where / "my-text", 250_000)
    reviews(where, language)
    for name in ("recipes", "data"):
        (where / name).symlink_to(ROOT / name)
    monkeypatch.chdir(where)
    before = signal.getsignal(signal.SIGTERM)
    toys = {"pretrain": [*RUN, "stages=[]"], "finetune": ["training.steps=4"]}
    text = page.read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(bash|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if kind == "python":
            exec(compile(block, str(page), "exec"), {})
            continue
        for words in (shlex.split(line) for line in block.splitlines() if line.startswith("albertine ")):
            code = run([*words[1:], *toys.get(words[1], [])])
            printed = capsys.readouterr()
            assert code == 0, f"{shlex.join(words)}\n{printed.out}\n{printed.err}"
    signal.signal(signal.SIGTERM, before)


def test_pages_run_the_main_commands() -> None:
    verbs = {words[1] for page in RUNNABLE for words in commands(page) if words[0] == "albertine"}
    assert verbs >= {"prepare", "pretrain", "score", "finetune", "evaluate", "predict", "export", "convert"}


def test_the_rows_with_classes_are_made_of_the_demo_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = ROOT / "data" / "demo"
    for archive in demo.glob("*.tar.xz"):
        (tmp_path / archive.name).symlink_to(archive)
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(demo / "README.md", "python")
    exec(compile(block, "README.md", "exec"), {})
    made = {path.name: path.read_bytes() for path in tmp_path.glob("*.csv")}
    assert len(made) == 4
    for name, content in made.items():
        assert (demo / name).read_bytes() == content, name


def test_a_moved_folder_gets_a_new_activate(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    for name in (".created", ".installed-demo"):
        (tmp_path / ".venv" / name).touch()
    (tmp_path / ".venv" / ".place").write_text("/elsewhere\n")
    made = subprocess.run(["make", "-n", "demo"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ".venv/bin/python -m venv" in made.stdout
