"""The plan of a corpus (all that decides its content), and the check that a folder has the same plan."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertine import __version__
from albertine.core.files import read_regular
from albertine.corpus.manifest import FORMAT, MANIFEST_FILE, MAX_BYTES, load_manifest
from albertine.corpus.shard_texts import SplitRules
from albertine.corpus.shard_tokens import WordSource
from albertine.errors import CorpusError, SettingsError, check_integer
from albertine.text.documents import list_files
from albertine.text.sentences import RULES_VERSION, Language
from albertine.text.streams import Limits
from albertine.tokenizers.base import Tokenizer

READ_LIMITS = Limits(document_characters=32_000_000)
"""For reading text; a hard-wrapped book takes up to 16 bytes of memory per character."""
PLAN_FILE = "prepare.json"
"""File with the plan, written first and removed last: a folder with it is unfinished."""


@dataclass(frozen=True)
class BuildOptions:
    """Options of `write_corpus` except text, tokenizer and folder."""

    language: Language
    format: str
    text_field: str
    encoding: str
    workers: int
    deduplicate: bool
    words: WordSource
    rules: SplitRules
    allow_unknown: bool

    def check(self) -> None:
        """Raise SettingsError for invalid values."""
        check_integer("workers", self.workers, 1)
        check_integer("shard_characters", self.rules.shard_characters, 1)
        check_integer("min_characters", self.rules.min_characters, 0)
        check_integer("seed", self.rules.seed, 0)
        if self.rules.seed >= 2**64:
            raise SettingsError(f"seed is below 2 ** 64, not {self.rules.seed}")
        check_held_out_share(self.rules.held_out)
        if self.language not in ("en", "zh"):
            raise SettingsError(f"there are no sentence rules for `{self.language}`", remedy="Use en or zh")
        if self.words not in ("pieces", "jieba"):
            raise SettingsError(f"words are `pieces` or `jieba`, not `{self.words}`")


def check_held_out_share(held_out: object) -> None:
    """Raise SettingsError unless `held_out` is a number from 0 to below 1."""
    if not isinstance(held_out, int | float) or not 0 <= held_out < 1:
        raise SettingsError(f"held_out is a share from 0 to below 1, not {held_out!r:.40}")


def make_plan(
    paths: Sequence[Path | str],
    files: Sequence[Sequence[Path]],
    tokenizer: Tokenizer,
    options: BuildOptions,
    named: str | None = None,
) -> dict[str, Any]:
    """The plan as JSON values.

    Args:
        named: recorded in place of the path, if `paths` is one temporary file.
    """
    rules = options.rules
    return {
        "language": options.language,
        "tokenizer": _tokenizer_facts(tokenizer),
        "settings": {
            "format": options.format,
            "text_field": options.text_field,
            "encoding": options.encoding,
            "min_characters": rules.min_characters,
            "held_out": rules.held_out,
            "deduplicate": options.deduplicate,
            "shard_characters": rules.shard_characters,
            "words": options.words,
            "seed": rules.seed,
        },
        "sources": [
            source if named is None else {**source, "path": named} for source in _list_sources(paths, files)
        ],
    }


def _tokenizer_facts(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "fingerprint": tokenizer.fingerprint,
    }


def _list_sources(paths: Sequence[Path | str], files: Sequence[Sequence[Path]]) -> list[dict[str, Any]]:
    """Each path with the number and bytes of its files and a digest of their names and sizes."""
    sources = []
    for path, found in zip(paths, files, strict=True):
        names = hashlib.sha256()
        for file in found:
            inside = file.relative_to(path).as_posix() if Path(path).is_dir() else file.name
            names.update(f"{inside}\0{file.stat().st_size}\n".encode("utf-8", "surrogateescape"))
        size = sum(file.stat().st_size for file in found)
        name = os.fsencode(path).decode("utf-8", "backslashreplace")  # it need not be UTF-8
        sources.append({"path": name, "files": len(found), "bytes": size, "listing": names.hexdigest()})
    return sources


def has_other_text(folder: Path, paths: Sequence[Path | str], tokenizer: Tokenizer) -> bool:
    """Whether a folder has an unfinished corpus of another text than `paths`, or a corpus with another
    vocabulary than `tokenizer`, the one in the folder. The text of a finished corpus is checked by
    `resume_plan`."""
    if not (folder / PLAN_FILE).is_file():
        try:
            return load_manifest(folder).tokenizer != _tokenizer_facts(tokenizer)
        except CorpusError:
            return False
    try:
        begun = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
        earlier = _without_paths(begun)["sources"], begun["tokenizer"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return True
    now = {"sources": _list_sources(paths, [list_files([path]) for path in paths])}
    return earlier != (_without_paths(now)["sources"], _tokenizer_facts(tokenizer))


def stored_setting(folder: Path, name: str) -> float | None:
    """A numeric setting of the corpus in a folder, finished or not, as the default of a call that continues
    it; None if it cannot be read."""
    path = folder / PLAN_FILE if (folder / PLAN_FILE).is_file() else folder / MANIFEST_FILE
    try:
        value = json.loads(read_regular(path, MAX_BYTES))["settings"][name]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return value if isinstance(value, (int, float)) else None


def plan_digest(plan: dict[str, Any]) -> str:
    """Digest of all that decides the bytes of a shard, except its text."""
    rest = {key: value for key, value in plan.items() if key != "sources"}
    return hashlib.sha256(json.dumps([__version__, RULES_VERSION, rest], sort_keys=True).encode()).hexdigest()


def resume_plan(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Check that a folder is empty or has a corpus of the same plan, finished or not.

    The sources of an unfinished corpus may have changed, and with them the vocabulary trained on them, since
    every shard is compared with its text and tokenizer. Those of a finished corpus may not, because runs may
    depend on it.

    Returns:
        `plan`, with the paths of the earlier plan if the text is the same: its location does not matter, and
        the manifest, by which runs identify a corpus, has to stay the same.

    Raises:
        CorpusError: the plan differs; names the differences.
    """
    _check_foreign(folder, plan)
    earlier = _earlier_plan(folder, plan)
    _check_same(folder, _without_paths(earlier), _without_paths(plan))
    return {**plan, "sources": earlier["sources"]}


def check_resumable(folder: Path, language: Language, settings: dict[str, Any]) -> None:
    """Raise at once what `resume_plan` would refuse when there is a vocabulary, which may take minutes to
    make.

    Args:
        settings: those that are known.

    Raises:
        CorpusError: not a folder, or it has other content or a corpus with other settings.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise CorpusError("is not a folder", where=folder, remedy="Name a new folder")
    plan: dict[str, Any] = {"language": language, "tokenizer": {}, "settings": settings, "sources": []}
    _check_foreign(folder, plan)
    earlier = _earlier_plan(folder, plan)
    if isinstance(known := earlier["settings"], dict):
        known = {name: known.get(name) for name in settings}
    earlier = {"language": earlier["language"], "settings": known}
    _check_same(folder, earlier, {"language": language, "settings": settings})


def _check_foreign(folder: Path, plan: dict[str, Any]) -> None:
    there = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    if there and not _is_corpus_folder(folder, plan):
        raise CorpusError(
            f"holds other files ({', '.join(there[:3])})", where=folder, remedy="Name a new folder"
        )


def _check_same(folder: Path, earlier: dict[str, Any], now: dict[str, Any]) -> None:
    if changes := _differences(earlier, now):
        raise CorpusError(
            "was prepared with other settings: " + "; ".join(changes),
            where=folder,
            remedy="Name another folder, or delete this one first",
        )


def _is_corpus_folder(folder: Path, plan: dict[str, Any]) -> bool:
    """Whether a folder has a manifest or plan of a corpus, and no file of that name that is something
    else."""
    files = [folder / name for name in (PLAN_FILE, MANIFEST_FILE) if os.path.lexists(folder / name)]
    return bool(files) and all(_is_corpus_file(path, plan) for path in files)


def _is_corpus_file(path: Path, plan: dict[str, Any]) -> bool:
    """Whether a file is a manifest or plan of a corpus; an unreadable one is taken for a damaged one."""
    if not path.is_file():
        return False
    try:
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return True
    if not isinstance(tree, dict):
        return False
    return tree.get("format") == FORMAT if path.name == MANIFEST_FILE else plan.keys() <= tree.keys()


def _earlier_plan(folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """The plan of the corpus in the folder; `plan` if there is none or it is unreadable. For an unfinished
    corpus of another text, with the sources and tokenizer of `plan`."""
    try:
        if (folder / PLAN_FILE).is_file():
            begun = json.loads((folder / PLAN_FILE).read_text(encoding="utf-8"))
            if _without_paths(begun)["sources"] != _without_paths(plan)["sources"]:
                return {**begun, "sources": plan["sources"], "tokenizer": plan["tokenizer"]}
            return dict(begun)
        manifest = load_manifest(folder)
        return {key: getattr(manifest, key) for key in plan}
    except (ValueError, TypeError, KeyError, AttributeError, CorpusError, RecursionError):
        return plan


def _without_paths(plan: dict[str, Any]) -> dict[str, Any]:
    sources = [{k: v for k, v in source.items() if k != "path"} for source in plan["sources"]]
    return {**plan, "sources": sources}


def _differences(before: Any, now: Any, name: str = "") -> list[str]:
    """`name: before → now` for every leaf that differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = list(dict.fromkeys([*before, *now]))
        return [
            line
            for key in keys
            for line in _differences(before.get(key), now.get(key), f"{name}.{key}" if name else str(key))
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [
            line
            for i, (a, b) in enumerate(zip(before, now, strict=True))
            for line in _differences(a, b, f"{name}[{i}]")
        ]
    return [] if before == now else [f"{name}: {_brief(before)} → {_brief(now)}"]


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
