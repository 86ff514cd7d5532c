"""The verbs on a small run of their own: what they print, and how they answer to wrong input."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from albertine.cli.app import run
from albertine.cli.score import _print_reading
from albertine.corpus.manifest import load_manifest
from albertine.corpus.source import Source, Survey
from albertine.evaluation.intervals import of_share
from tests.analysis.test_html_report import Elements
from tests.cli.conftest import Command
from tests.corpus.texts import content
from tests.evaluation.test_suites import few_pairs as few_pairs
from tests.toy import RUN, demo_text


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a corpus and a finished run of two steps."""
    home = tmp_path_factory.mktemp("a home")
    text = demo_text("en", home / "text", 200_000)
    assert run(["prepare", str(text), "-o", str(home / "corpus"), "--workers", "1"]) == 0
    assert run(["pretrain", *settings(home, "done")]) == 0
    return home


def settings(home: Path, name: str, *more: str) -> list[str]:
    return [
        f"name={name}",
        f"output={json.dumps(str(home / 'runs'))}",
        f"corpus={json.dumps(str(home / 'corpus'))}",
        "model.preset=albert-tiny-zh",
        *RUN,
        *more,
    ]


def test_prepare_reports_what_it_read(albertine: Command, home: Path, tmp_path: Path) -> None:
    files = sorted((home / "text").rglob("*.txt"))[:2]
    vocabulary = ["--tokenizer", home / "corpus" / "tokenizer", "--held-out", 0]
    outcome = albertine("prepare", *files, "-o", tmp_path / "c", *vocabulary)
    assert outcome.code == 0
    assert all(f"{file}: read as book, lines of up to" in outcome.out for file in files)
    many = albertine("prepare", home / "text", "-o", tmp_path / "d", *vocabulary).out
    assert "files read:" in many and "book" in many and "read as" not in many


def test_prepare_names_what_it_passes_over(albertine: Command, home: Path, tmp_path: Path) -> None:
    text = shutil.copytree(home / "text", tmp_path / "text")
    (text / "old.txt").write_bytes("Le café était fermé.\n".encode("latin-1"))
    (text / "blank.txt").write_text("\n\n")
    for name in ("a.csv", "b.csv", "LICENSE"):
        (text / name).write_text("x")
    vocabulary = ["--tokenizer", home / "corpus" / "tokenizer"]
    outcome = albertine("prepare", text, "-o", tmp_path / "c", *vocabulary)
    stderr = " ".join(outcome.err.split())
    assert outcome.code == 0 and "passed over by their names: 2 .csv, 1 LICENSE" in stderr
    assert (
        "old.txt (unreadable)" in stderr and "--encoding latin-1" in stderr and "blank.txt (empty)" in stderr
    )
    assert "1 empty, 3 skipped, 1 unreadable" in outcome.out
    trained = albertine("tokenizer", "train", text, "-o", tmp_path / "v", "--vocab-size", 300)
    assert trained.code == 0 and "old.txt (unreadable)" in trained.err
    inspected = ("tokenizer", "inspect", home / "corpus" / "tokenizer", text / "old.txt")
    assert albertine(*inspected).code == 2
    assert albertine(*inspected, "--encoding", "latin-1").code == 0
    named = albertine("prepare", text, text / "old.txt", "-o", tmp_path / "d", *vocabulary)
    assert named.code == 2 and "old.txt" in named.err


def test_prepare_again_is_the_same(albertine: Command, home: Path) -> None:
    before = (home / "corpus" / "manifest.json").read_bytes()
    outcome = albertine("prepare", home / "text", "-o", home / "corpus", "--workers", 1, "--json")
    assert outcome.code == 0 and json.loads(outcome.out)["language"] == "en"
    assert (home / "corpus" / "manifest.json").read_bytes() == before


def test_prepare_warns_before_pretraining_would_fail(albertine: Command, home: Path, tmp_path: Path) -> None:
    held_out = ["--held-out", "0", "--tokenizer", home / "corpus" / "tokenizer"]
    outcome = albertine("prepare", home / "text", "-o", tmp_path / "none", *held_out)
    assert outcome.code == 0 and "no document fell to the held-out part" in outcome.err
    outcome = albertine("pretrain", *settings(home, "x", f"corpus={json.dumps(str(tmp_path / 'none'))}"))
    assert outcome.code == 2 and "--held-out" in outcome.err


@pytest.mark.parametrize(
    ("survey", "share"),
    [
        (Survey(2000, 10**6, False, "en"), 0.01),
        (Survey(1500, 10**6, True, "en"), 0.01),
        (Survey(100, 10**6, True, "en"), 0.1),
        (Survey(3, 10**6, True, "en"), 0.2),
    ],
)
def test_held_out_share(survey: Survey, share: float) -> None:
    assert survey.held_out_share == pytest.approx(share)


def test_the_language_is_guessed(home: Path, tmp_path: Path) -> None:
    assert Source([home / "text"]).resolve_language() == "en"
    assert Source([demo_text("zh", tmp_path, 1)]).resolve_language() == "zh"


def test_dry_run_prints_settings_that_load_again(albertine: Command, home: Path, tmp_path: Path) -> None:
    outcome = albertine("pretrain", "--dry-run", *settings(home, "dry"))
    tree = yaml.safe_load(outcome.out)
    assert tree["training"]["steps"] == 2 and tree["objective"]["masking"]["ngram"] == 3
    assert not (home / "runs" / "dry").exists()
    (tmp_path / "again.yaml").write_text(outcome.out, encoding="utf-8")
    assert albertine("pretrain", "--dry-run", "--config", tmp_path / "again.yaml").out == outcome.out


def test_dry_run_shows_stages_as_they_resolve(albertine: Command, home: Path, tmp_path: Path) -> None:
    stages = (
        "stages=[{begin: 0, max_length: 8}, {begin: 0.3, causal: true, pairs: none}, {begin: 0.65, depth: 1}]"
    )
    outcome = albertine("pretrain", "--dry-run", *settings(home, "dry"), stages)
    assert outcome.out.splitlines()[-4:] == [
        "# stages as they resolve:",
        "#   from 0%: max_length 8, batch_size 16, pairs none, mask 0.15 (80% [MASK], 10% random, 10% kept)",
        "#   from 30%: max_length 32, batch_size 4, causal, 33% of the next tokens",
        "#   from 65%: max_length 32, batch_size 4, pairs sop, mask 0.15 (80% [MASK], 10% random, 10% kept)"
        ", depth 1",
    ]
    (tmp_path / "again.yaml").write_text(outcome.out, encoding="utf-8")
    assert albertine("pretrain", "--dry-run", "--config", tmp_path / "again.yaml").out == outcome.out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("trainng.steps=3", "training"),
        ("training.stepps=3", "did you mean `training.steps`?"),
        ("steps", "is not an override"),
        ("training.minutes=3", "training.steps or training.minutes, and not both"),
        ("model.change.hiden_size=3", "did you mean `model.change.hidden_size`?"),
        ("model.preset=albert-tiny-zz", "albert-tiny-zh"),
        ("corpus=nowhere", "there is no such corpus folder"),
        ("objective.max_length=600", "512 positions"),
    ],
)
def test_wrong_settings(albertine: Command, home: Path, wrong: str, message: str) -> None:
    outcome = albertine("pretrain", *settings(home, "wrong", wrong))
    assert outcome.code == 2 and message in outcome.err and outcome.err.count("\n") == 1


def test_resume_never_keeps_an_earlier_run(albertine: Command, home: Path) -> None:
    outcome = albertine("pretrain", *settings(home, "done"), "--resume", "never")
    assert outcome.code == 2 and "Choose another name" in outcome.err
    assert (home / "runs" / "done" / "final" / "model.safetensors").is_file()


def test_branch_from_begins_a_new_run_and_reports_what_differs(albertine: Command, home: Path) -> None:
    origin = home / "runs" / "done" / "checkpoints" / "step-2"
    command = ["pretrain", *settings(home, "branch", "training.steps=3"), "--branch-from", origin]
    outcome = albertine(*command)
    assert outcome.code == 0 and "Done after 3 steps" in outcome.out
    stderr = " ".join(outcome.err.split())
    assert "begins at step 2 of" in stderr and "training.steps: checkpoint 2, now 3" in stderr
    assert albertine(*command).code == 0
    refused = albertine("pretrain", *settings(home, "done", "training.steps=3"), "--branch-from", origin)
    assert refused.code == 2 and "holds checkpoints of another run" in refused.err


def test_score(albertine: Command, home: Path) -> None:
    final, corpus = home / "runs" / "done" / "final", home / "corpus"
    words, order = json.loads(albertine("score", final, corpus, "--sequences", 40, "--json").out)
    assert words["task"] == "mlm" and order["task"] == "sop"
    # The baseline predicts the commoner order of the pairs, which is seldom exactly half of them.
    share, commoner = order["baseline"], order["baseline"] * order["count"]
    assert 0.5 <= share < 1 and commoner == pytest.approx(round(commoner)) and 0 < order["count"] <= 40
    entropy = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert order["baseline_loss"] == pytest.approx(entropy)
    assert words["loss"] > words["baseline_loss"] > 4, "two steps teach nothing"
    printed = albertine("score", final, corpus, "--sequences", 40).out
    assert "masked tokens" in printed and f"{order['accuracy']:.1%}" in printed


def test_pretrain_reports_the_context_onset(
    albertine: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = ("pretrain", *settings(home, "done"))
    assert "reads" not in albertine(*again).out, "two steps teach nothing"
    monkeypatch.setattr("albertine.training.alarms.ONSET", -100.0)
    output = " ".join(albertine(*again).out.split())
    assert "by minute 0.0" in output or "by minute 0.1" in output, output


def test_score_reports_the_gain_of_context(albertine: Command, home: Path) -> None:
    final, corpus = home / "runs" / "done" / "final", home / "corpus"
    words, order = json.loads(albertine("score", final, corpus, "--sequences", 40, "--json").out)
    assert words["context_gain"] == pytest.approx(words["mask_baseline_loss"] - words["mask_loss"])
    # The floor copies what is visible: the commonest token alone scores less.
    assert words["floor"] > words["mask_baseline"] and 0 < words["mask_count"] < words["count"]
    assert -1 <= words["cosine"] <= 1 and words["onset_minutes"] is None, "two steps teach nothing"
    spans, copying = words["spans"], words["copying"]
    assert spans["nats_per_character"] > spans["unigram_nats_per_character"] > 0.5
    assert spans["spans"] > 40 and copying["words"] == 40 and copying["right"] < 0.2
    n = order["count"]
    shares = order["in_order_accuracy"], order["swapped_accuracy"]
    assert min(shares) <= order["accuracy"] <= max(shares) and n > 0
    printed = albertine("score", final, corpus, "--sequences", 40).out
    assert f"{words['context_gain']:.3f} nats (the loss without skill less that of the model)" in printed
    for text in ("nats per character", "pairs swapped", "A passage twice", "those kept"):
        assert text in printed
    sure = of_share(copying["right"], copying["words"])  # of no word right in 40 not ± 0
    assert f"(95% interval: {sure.low:.1%} to {sure.high:.1%})" in printed and sure.high > 0.05


def test_the_interval_of_a_copy_probe_is_that_of_what_was_right(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("nats_per_character", "unigram_nats_per_character", "span_accuracy", "piece_accuracy", "unknown")
    spans = dict.fromkeys(names, 0.5) | dict.fromkeys(("spans", "characters", "pieces"), 9)
    copying = {"right": 0.75, "without_copy": 0.25, "words": 16}
    _print_reading({"spans": spans, "copying": copying, "onset_minutes": None})
    assert "75.0% (95% interval: 50.5% to 89.8%)" in capsys.readouterr().out  # Wilson's, by hand


def test_score_of_a_single_prediction(albertine: Command, home: Path, tmp_path: Path) -> None:
    """Which has no pairs of states with a cosine."""
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"the house number {i} is red\n" for i in range(60)), encoding="utf-8")
    vocabulary = ["--tokenizer", home / "corpus" / "tokenizer", "--min-characters", 1]
    how = ["--format", "documents", "--held-out", 0.001, *vocabulary]
    assert albertine("prepare", lines, "-o", tmp_path / "c", *how).code == 0
    command = ("score", home / "runs" / "done" / "final", tmp_path / "c", "--no-pairs")
    (words,) = json.loads(albertine(*command, "--json").out)
    assert words["count"] == words["mask_count"] == 1 and "cosine" not in words
    printed = albertine(*command)
    assert printed.code == 0 and "context gain" in printed.out and "cosine" not in printed.out


def test_score_computes_in_the_requested_format(albertine: Command, home: Path) -> None:
    command = ("score", home / "runs" / "done" / "final", home / "corpus", "--sequences", 40, "--json")

    def losses(*more: object) -> list[float]:
        (words, order) = json.loads(albertine(*command, *more).out)
        return [words["loss"], order["loss"], words["spans"]["nats_per_character"]]

    plain = losses()
    assert losses("--precision", "float32") == plain
    for value, exact in zip(losses("--precision", "int8"), plain, strict=True):
        assert value != exact and value == pytest.approx(exact, rel=0.02)


def test_score_of_files_needs_no_corpus(albertine: Command, home: Path, tmp_path: Path) -> None:
    final, text = home / "runs" / "done" / "final", demo_text("en", tmp_path / "t", 30_000)
    command = ("score", final, "--texts", text, "--sequences", 20, "--json")
    (words,) = json.loads(albertine(*command).out)
    assert words["spans"]["characters"] > 100 and "accuracy" not in words
    both = json.loads(albertine("score", final, home / "corpus", *command[2:]).out)
    for name in ("spans", "characters", "nats_per_character"):
        assert both[0]["spans"][name] == words["spans"][name], "the files are read, not the corpus"
    assert albertine("score", final, "--texts", tmp_path / "none").code == 2


@pytest.mark.usefixtures("few_pairs")
def test_suite(albertine: Command, home: Path, tmp_path: Path) -> None:
    from tests.evaluation.test_suites import write

    final, folder = home / "runs" / "done" / "final", write(tmp_path, "blimp", 3)
    command = ("suite", "blimp", final, "--data", folder, "--limit", 2)
    report = json.loads(albertine(*command, "--json").out)
    assert report["suite"] == "BLiMP" and report["pairs"] == 67 * 2 and len(report["paradigms"]) == 67
    printed = albertine(*command).out
    assert f"{report['right']:.1%}" in printed and "island_effects" in printed and "GPT-2 83.0%" in printed
    assert report["scoring"] == "pll" and "summed pseudo-log-likelihood" in printed
    causal = tmp_path / "causal"
    shutil.copytree(final, causal)
    config = json.loads((causal / "config.json").read_text())
    config["albertine"] = {**config.get("albertine", {}), "causal_share": 0.5}
    (causal / "config.json").write_text(json.dumps(config))
    command = ("suite", "blimp", causal, *command[3:], "--scoring", "causal")
    other = json.loads(albertine(*command, "--json").out)
    assert other["scoring"] == "causal" and other["paradigms"] != report["paradigms"]
    assert "right by summed log-likelihood from left to right" in albertine(*command).out
    for words, message in (
        (
            ("suite", "blimp", final, "--data", folder, "--scoring", "causal"),
            "does not record that it was trained causally until the end of its run, and would predict tokens "
            "from earlier ones badly. "
            "Score it by pll, or pretrain with objective.causal_share=0.5",
        ),
        (("suite", "glue", final, "--data", folder), "no suite `glue`"),
        (("suite", "sling", final, "--data", folder), "lacks 54 of the 54 files of SLING"),
        (("suite", "blimp", final), "--data"),
        (("suite", "blimp", final, final, "--data", folder), "unexpected extra argument"),
    ):
        outcome = albertine(*words)
        assert outcome.code == 2 and message in " ".join(outcome.err.split()), outcome.err


def test_score_refuses_a_model_without_the_head(albertine: Command, home: Path, tmp_path: Path) -> None:
    from albertine.interop.huggingface.folders import load_model, save_model
    from albertine.model.model import Model
    from albertine.tokenizers.load import load_tokenizer
    from tests.evaluation.test_suites import write

    final = home / "runs" / "done" / "final"
    save_model(Model(load_model(final).config, {"pooler"}), load_tokenizer(final), tmp_path / "bare")
    folder = write(tmp_path / "suite", "blimp", 1)
    bare = tmp_path / "bare"
    for words in (
        ("suite", "blimp", bare, "--data", folder),
        ("score", bare, home / "corpus"),
        ("score", bare, "--texts", folder),
    ):
        outcome = albertine(*words)
        assert outcome.code == 2 and "no masked-LM head" in " ".join(outcome.err.split()), outcome.err


def test_without_pairs_models_with_and_without_sentence_order_see_the_same(
    albertine: Command, home: Path, tmp_path: Path
) -> None:
    from albertine.interop.huggingface.folders import load_model, save_model
    from albertine.model.model import Model
    from albertine.tokenizers.load import load_tokenizer

    final = home / "runs" / "done" / "final"
    model, tokenizer = load_model(final), load_tokenizer(final)
    plain = Model(model.config, model.heads - {"sop", "pooler"})
    plain.load_state_dict(model.state_dict(), strict=False)
    save_model(plain, tokenizer, tmp_path / "plain")

    def score_of(folder: Path, *words: object) -> Any:
        arguments = (
            "score",
            folder,
            home / "corpus",
            "--max-length",
            64,
            "--sequences",
            64,
            *words,
            "--json",
        )
        return json.loads(albertine(*arguments).out)

    by_pairs, whole = score_of(final), score_of(final, "--no-pairs")
    assert [score["task"] for score in by_pairs] == ["mlm", "sop"]
    assert [score["task"] for score in whole] == ["mlm"]
    assert whole[0]["loss"] != by_pairs[0]["loss"]
    assert whole[0]["loss"] == pytest.approx(score_of(tmp_path / "plain")[0]["loss"], rel=1e-5)


def test_score_refuses_what_does_not_fit(albertine: Command, home: Path, tmp_path: Path) -> None:
    assert albertine("prepare", demo_text("zh", tmp_path / "t", 100_000), "-o", tmp_path / "zh").code == 0
    final = home / "runs" / "done" / "final"
    outcome = albertine("score", final, tmp_path / "zh")
    assert outcome.code == 2 and "its tokenizer is not the one" in outcome.err
    assert "--tokenizer" in outcome.err and "--texts" in outcome.err
    assert "512 or less" in albertine("score", final, home / "corpus", "--max-length", 1000).err


def test_predict(albertine: Command, home: Path) -> None:
    final = home / "runs" / "done" / "final"
    found = json.loads(albertine("predict", "fill-mask", final, "The [MASK] of the [MASK].", "--json").out)
    assert [len(mask) for mask in found["masks"]] == [5, 5]
    outcome = albertine("predict", "fill-mask", final, "no mask")
    assert outcome.code == 2 and "[MASK]" in outcome.err
    order = json.loads(albertine("predict", "order", final, "He came.", "He went.", "--json").out)
    assert 0 < order["in_order"] < 1


def test_convert(albertine: Command, home: Path, tmp_path: Path) -> None:
    final = home / "runs" / "done" / "final"
    outcome = albertine("convert", final, tmp_path / "copy")
    assert outcome.code == 0 and "with its tokenizer" in outcome.out
    assert (tmp_path / "copy" / "model.safetensors").read_bytes() == (
        final / "model.safetensors"
    ).read_bytes()
    assert albertine("convert", final, final).code == 2
    bare = shutil.copytree(final, tmp_path / "bare")
    for name in ("spiece.model", "tokenizer.json", "tokenizer_config.json"):
        (bare / name).unlink()
    assert "without a tokenizer" in albertine("convert", bare, tmp_path / "bare copy").out
    (bare / "spiece.model").write_bytes(b"broken")
    assert albertine("convert", bare, tmp_path / "broken copy").code == 2


def test_tokenizer(albertine: Command, home: Path, tmp_path: Path) -> None:
    outcome = albertine("tokenizer", "train", home / "text", "-o", tmp_path / "v", "--kind", "wordpiece")
    assert outcome.code == 0 and "a wordpiece vocabulary of" in outcome.out
    facts = json.loads(albertine("tokenizer", "inspect", tmp_path / "v", home / "text", "--json").out)
    assert facts["kind"] == "wordpiece" and float(facts["unknown tokens"].rstrip("%")) < 0.1
    encoded = json.loads(albertine("tokenizer", "encode", tmp_path / "v", "He came.", "She", "--json").out)
    assert encoded["pieces"][0] == "[CLS]" and encoded["token_type_ids"][-1] == 1
    too_large = albertine("tokenizer", "train", home / "text", "-o", tmp_path / "w", "--vocab-size", 90_000)
    assert too_large.code == 2 and "--vocab-size" in too_large.err and not (tmp_path / "w").exists()


def test_a_vocabulary_replaces_nothing_but_a_vocabulary(
    albertine: Command, home: Path, tmp_path: Path
) -> None:
    small = ("tokenizer", "train", home / "text", "--vocab-size", 120, "-o")
    model = shutil.copytree(home / "runs" / "done" / "final", tmp_path / "model")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("precious")
    for folder, words in ((model, "holds a model"), (mine, "holds other files (notes.txt)")):
        before = content(folder)
        refused = albertine(*small, folder)
        assert refused.code == 2 and words in refused.err and content(folder) == before
    (mine / "notes.txt").unlink()
    assert albertine(*small, mine).code == 0
    assert albertine(*small, mine, "--kind", "wordpiece").code == 0
    assert set(content(mine)) == {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}


def test_a_vocabulary_is_replaced_whole_or_not_at_all(
    albertine: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = shutil.copytree(home / "corpus" / "tokenizer", tmp_path / "v")
    before = content(there)
    replace, done = os.replace, []

    def killed_at_the_second(*names: Any) -> None:
        done.append(names)
        if len(done) == 2:
            raise KeyboardInterrupt
        replace(*names)

    monkeypatch.setattr(os, "replace", killed_at_the_second)
    outcome = albertine("tokenizer", "train", home / "text", "-o", there, "--vocab-size", 120)
    assert outcome.code == 130 and len(done) == 2 and content(there) == before
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_doctor_on_whole_folders(albertine: Command, home: Path) -> None:
    final = home / "runs" / "done" / "final"
    outcome = albertine("doctor", "--full", home / "corpus", home / "runs" / "done", final)
    assert outcome.code == 0
    for words in ("every byte as in the manifest", "1 whole checkpoints", "every number finite"):
        assert words in outcome.out


@pytest.mark.parametrize("stage", ["new", "old"])
def test_a_model_that_a_kill_left_beside_its_place_is_found(
    albertine: Command, home: Path, tmp_path: Path, stage: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(home / "runs" / "done", run)
    shutil.rmtree(run / "best")
    (run / "final").rename(run / f".final.{stage}")
    assert "final: a model with" in albertine("doctor", run).out
    assert "a model with" in albertine("doctor", run / "final").out
    for what in (run, run / "final"):
        assert "2 depths, one block used at every depth" in albertine("info", what).out
    assert "written, with its tokenizer" in albertine("convert", run / "final", tmp_path / "other").out
    judged = albertine("score", run / "final", home / "corpus", "--sequences", 8, "--json")
    assert judged.code == 0, judged.err


def test_doctor_names_what_is_damaged(albertine: Command, home: Path, tmp_path: Path) -> None:
    corpus = shutil.copytree(home / "corpus", tmp_path / "corpus")
    shard = corpus / "train" / "shard-00000.tokens.npy"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    outcome = albertine("doctor", "--full", corpus)
    assert outcome.code == 2 and shard.name in outcome.err
    done = shutil.copytree(home / "runs" / "done", tmp_path / "done")
    weights = next((done / "checkpoints").rglob("model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1])
    outcome = albertine("doctor", done)
    assert outcome.code == 2 and "model.safetensors" in outcome.err
    assert albertine("doctor", tmp_path).code == 2


def test_every_verb_refuses_a_corpus_with_a_flipped_bit(
    albertine: Command, home: Path, tmp_path: Path
) -> None:
    """In the middle, which is not checked on opening."""
    corpus, final = shutil.copytree(home / "corpus", tmp_path / "corpus"), home / "runs" / "done" / "final"
    here = json.dumps(str(corpus))
    numbers = iter(range(100))

    def pretrain(*more: str) -> tuple[object, ...]:
        return ("pretrain", *settings(home, f"flipped-{next(numbers)}", f"corpus={here}", *more))

    commands = {
        "pretrain": pretrain,
        "with loader processes": lambda: pretrain("training.workers=2"),
        "distill": lambda: (
            "distill",
            final,
            corpus,
            "-o",
            tmp_path / f"{next(numbers)}",
            "training.steps=1",
        ),
        "prune": lambda: ("prune", final, corpus, "--keep", 300, "-o", tmp_path / f"{next(numbers)}"),
        "bench": lambda: ("bench", "data", corpus, "--seconds", 1, "--threads", 1),
        "score": lambda: ("score", final, corpus, "--sequences", 999),
    }
    # what reads it
    readers = {
        "train/shard-00000.tokens.npy": list(commands),
        "train/shard-00000.sentences.npy": ["pretrain", "with loader processes", "distill", "prune", "bench"],
        "train/shard-00000.words.npy": ["pretrain", "with loader processes", "bench"],
        "heldout/shard-00000.tokens.npy": ["pretrain", "prune", "score"],
        "heldout/shard-00000.words.npy": ["pretrain", "score"],
    }
    for name, verbs in readers.items():
        path = corpus / name
        whole = path.read_bytes()
        path.write_bytes(bytes(b ^ 64 * (i == len(whole) // 2) for i, b in enumerate(whole)))
        for verb in verbs:
            outcome = albertine(*commands[verb]())
            assert outcome.code == 2 and f"{name}: is damaged" in outcome.err, (name, verb, outcome)
        path.write_bytes(whole)


def test_doctor_describes_the_machine(albertine: Command) -> None:
    facts = json.loads(albertine("doctor", "--json").out)
    assert facts["python"].startswith("3.") and "free" in facts["disk here"]
    for kind in ("float32", "bfloat16", "int8"):
        assert (
            "(" in facts[f"products in {kind}"] and "times as fast as without" in facts[f"products in {kind}"]
        )


def test_info_of_a_run_and_a_corpus(albertine: Command, home: Path) -> None:
    assert "depths" in albertine("info", home / "runs" / "done").out
    assert "sentencepiece" in albertine("info", home / "corpus").out
    assert albertine("info", home / "text").code == 2


@pytest.mark.pictures
def test_a_report_on_a_pretraining_run(albertine: Command, home: Path, tmp_path: Path) -> None:
    run = home / "runs" / "done"
    outcome = albertine("report", run, "-o", tmp_path / "r", "--json")
    assert outcome.code == 0, outcome.err
    page = tmp_path / "r" / "report.html"
    assert json.loads(outcome.out) == {"report": str(page), "tasks": {}}
    text = page.read_text(encoding="utf-8")
    figures = [attributes for tag, attributes in Elements(text).found if tag == "figure"]
    assert len(figures) == 5, "curves, guesses over depth, layers in three figures"
    for heading in ("Pretraining run done", "Scores", "Guesses for masked tokens", "Values of done"):
        assert heading in text
    assert text.count("[MASK]") >= 3 and str(home) not in text
    outcome = albertine("report", run, run, "-o", tmp_path / "s")
    assert outcome.code == 2 and "Name it alone" in outcome.err and not (tmp_path / "s").exists()


def test_the_demo_ends_with_its_report_and_the_page_of_its_model(
    albertine: Command, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is replaced by one of two steps."""
    run = shutil.copytree(home / "runs" / "done", tmp_path / "demo en")
    (tmp_path / "corpus-demo-en").symlink_to(home / "corpus")
    done = SimpleNamespace(outcome=SimpleNamespace(done=True, exit_code=0), folder=run)
    manifest = load_manifest(home / "corpus")
    monkeypatch.setattr("albertine.corpus.build.build_corpus", lambda *_, **__: manifest)
    monkeypatch.setattr("albertine.pretraining.run.pretrain", lambda *_: done)
    texts = Path(__file__).resolve().parents[2] / "data" / "demo"
    outcome = albertine("demo", "--language", "en", "--texts", texts, "-o", tmp_path)
    assert outcome.code == 0, outcome.err
    last = outcome.out.rstrip().splitlines()[-1]
    words = shlex.split(last[last.index("albertine") :])
    assert words == ["albertine", "serve", str(run / "final"), "--open"]
    assert "--open" in albertine("serve", "--help").out
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "I am very glad to [MASK] you." in text and f"albertine serve {shlex.quote(words[2])}" in unescape(
        text
    )


def test_the_demo_needs_its_text(albertine: Command, tmp_path: Path) -> None:
    outcome = albertine("demo", "--texts", tmp_path)
    assert outcome.code == 2 and "--texts" in outcome.err
    assert albertine("demo", "--language", "fr").code == 2


@pytest.fixture
def tuning(home: Path, tmp_path: Path) -> list[str]:
    """Arguments of a fine-tuning run of a few steps on own files."""
    rows = ["text\tlabel", *(f"he was {word} at home\t{word}" for word in ("glad", "sad") * 12)]
    table = tmp_path / "my rows.tsv"
    table.write_text("\r\n".join(rows) + "\r\n", encoding="utf-8")
    return [
        "name=tuned",
        f"output={json.dumps(str(tmp_path))}",
        f"encoder.folder={json.dumps(str(home / 'runs' / 'done' / 'final'))}",
        f"task.train={json.dumps(str(table))}",
        f"task.dev={json.dumps(str(table))}",
        "task.max_length=32",
        "training.epochs=1",
        "training.batch_size=4",
        "watching.tensorboard=false",
    ]


def test_finetune_and_classify(albertine: Command, tuning: list[str], tmp_path: Path) -> None:
    outcome = albertine("finetune", *tuning)
    assert outcome.code == 0, outcome.err
    assert "data, train" in outcome.out and "24 examples" in outcome.out
    assert "accuracy" in outcome.out and str(tmp_path / "tuned" / "best") in outcome.out
    model = tmp_path / "tuned" / "best"
    shown = albertine("predict", "classify", model, "he was glad", "he was sad")
    assert shown.code == 0 and len(shown.out.splitlines()) == 2 and "glad" in shown.out
    (line,) = albertine("predict", "classify", model, "he was glad", "--json").out.splitlines()
    assert sum(json.loads(line)["classes"].values()) == pytest.approx(1, abs=1e-3)


def test_finetune_over_seeds(albertine: Command, tuning: list[str], tmp_path: Path) -> None:
    outcome = albertine("finetune", *tuning, "--seeds", 2)
    assert outcome.code == 0, outcome.err
    assert "median" in outcome.out and (tmp_path / "tuned-seeds.json").is_file()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("task.labl=x", "label"),
        ("task.label=kind", "has no column `kind`; it has `text`, `label`"),
        ("task.train=nowhere.csv", "cannot be opened"),
        ("task.dataset=tnews", "task.folder"),
        ("encoder.folder=nowhere", "nowhere: is neither a folder nor a released model"),
        ("training.epochs=0", "epochs"),
    ],
)
def test_wrong_finetuning_is_one_message(
    albertine: Command, tuning: list[str], wrong: str, message: str
) -> None:
    outcome = albertine("finetune", *tuning, wrong)
    assert outcome.code == 2 and message in outcome.err and "Traceback" not in outcome.err


def test_a_pretrained_model_cannot_classify(albertine: Command, home: Path) -> None:
    outcome = albertine("predict", "classify", home / "runs" / "done" / "final", "a text")
    assert outcome.code == 2 and "albertine finetune" in outcome.err


def test_choosing_needs_a_model_for_it(albertine: Command, home: Path) -> None:
    outcome = albertine("predict", "choose", home / "runs" / "done" / "final", "a text", "one", "two")
    assert outcome.code == 2 and "albertine finetune" in outcome.err


def test_every_option_of_score_reaches_it(albertine: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def noted(model: Any, corpus: Any, *, on_file: Any, **how: Any) -> dict[str, Any]:
        calls.append((model, corpus, how))
        return {}

    monkeypatch.setattr("albertine.pretraining.probes.score_pretrained", noted)
    words = ("--texts", "t", "--max-length", 16, "--sequences", 5, "--no-pairs", "--memory", 7, "--reach", 3)
    words += ("--clamp", 9, "--sentence-task", "nsp", "--layers", 4)
    assert albertine("score", "m", "c", *words, "--device", "cuda", "--precision", "int8", "--json").code == 0
    how = {"texts": [Path("t")], "max_length": 16, "sequences": 5, "pairs": False, "memory": 7, "reach": 3}
    how |= {"sentence_task": "nsp", "layers": 4}
    assert calls == [("m", Path("c"), how | {"clamp": 9, "device": "cuda", "precision": "int8"})]
