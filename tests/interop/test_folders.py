"""Model folders: what is written, what is read back, and what is refused with a reason."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path

import pytest
import torch
import transformers
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import albertine
from albertine.core import files
from albertine.core.released import released_folder
from albertine.errors import ModelError, RunError, SettingsError
from albertine.interop.huggingface.folders import load_model, read_folder, save_model
from albertine.interop.huggingface.names import ALBERT, BERT, ROFORMER
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.crashes import Disk, states_at_kills
from tests.model import builders

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "##a", "北", "京"]


@pytest.fixture
def saved(tmp_path) -> Path:
    albertine.save(builders.model(), None, tmp_path / "m")
    return tmp_path / "m"


def edit(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    tree = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in tree.items() if v is not ...}))


def rewrite(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("plan", "width", "kind"),
    [
        (SharingPlan.shared(3), 8, "albert"),
        (SharingPlan.shared(3), 24, "albert"),
        (SharingPlan.grouped(4, 2, 2), 8, "albert"),
        (SharingPlan.unshared(3), 8, "albert"),
        (SharingPlan.unshared(3), 24, "bert"),
        (SharingPlan.attention_only(3), 8, "albertine"),
        (SharingPlan.feed_forward_only(3), 24, "albertine"),
        (SharingPlan((0, 1, 0), (0, 1, 0)), 8, "albertine"),
    ],
)
@pytest.mark.parametrize("semantics", ["google", "huggingface"])
def test_every_plan_comes_back_as_it_was(plan, width, kind, semantics, tmp_path):
    config = builders.config(plan, embedding_size=width, hidden_dropout_prob=0.1)
    config = config if semantics == "google" else config.huggingface()
    for heads in ({"mlm", "nsp"}, {"mlm", "sop"}, {"mlm"}, {"pooler"}, set()):
        model = Model(config, heads)
        folder = tmp_path / "-".join(["m", *sorted(heads)])
        albertine.save(model, None, folder)
        again = albertine.load(folder)
        assert json.loads((folder / "config.json").read_text())["model_type"] == kind
        assert (again.config, again.heads) == (model.config, model.heads)
        assert all(torch.equal(again.state_dict()[name], value) for name, value in model.state_dict().items())
        assert all(p.requires_grad for p in again.parameters())


def test_the_identity_mapping_is_for_transformers_only(tmp_path):
    model = builders.model(embedding_size=24)
    albertine.save(model, None, tmp_path / "m")
    written = load_file(tmp_path / "m" / "model.safetensors")
    assert torch.equal(written["albert.encoder.embedding_hidden_mapping_in.weight"], torch.eye(24))
    assert albertine.load(tmp_path / "m").encoder.embeddings.mapping is None
    # trained elsewhere it is no identity any more, and stays
    rewrite(tmp_path / "m", lambda t: t["albert.encoder.embedding_hidden_mapping_in.bias"].add_(1.0))
    kept = albertine.load(tmp_path / "m")
    assert kept.config.embedding_mapping == "always"
    assert kept.encoder.embeddings.mapping.bias.tolist() == [1.0] * 24


def test_tied_output_weights_are_stored_once(saved):
    assert not [name for name in load_file(saved / "model.safetensors") if "decoder" in name]


@pytest.mark.parametrize("plan", [SharingPlan.shared(2), SharingPlan.unshared(2)])
def test_fill_mask_pipeline_and_auto_classes(plan, tmp_path):
    tokenizer = WordPieceTokenizer(PIECES)
    model = builders.model(plan, embedding_size=24, max_position_embeddings=64)
    albertine.save(model, tokenizer, tmp_path / "m")
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "m"))
    text = "a b [MASK] 北 京"
    best = fill(text)[0]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    fields = tokenizer(text.replace("[MASK]", "c"), return_tensors="pt")
    ids = fields["input_ids"]
    assert theirs(text.replace("[MASK]", "c"))["input_ids"] == ids[0].tolist()
    place = int((ids[0] == tokenizer.piece_to_id("c")).nonzero())
    ids[0, place] = tokenizer.mask_id
    with torch.no_grad():
        hidden = model(ids, fields["attention_mask"], fields["token_type_ids"]).last_hidden_state
        logits = model.mlm_logits(hidden[0, place : place + 1])
    assert best["token"] == int(logits.argmax())
    assert best["score"] == pytest.approx(float(logits.softmax(1).max()), abs=1e-5)
    config = transformers.AutoConfig.from_pretrained(tmp_path / "m")
    assert (
        config.pad_token_id,
        transformers.AutoModel.from_pretrained(tmp_path / "m").config.hidden_size,
    ) == (0, 24)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_model_whose_vocabulary_grew(language, tmp_path):
    """With transformers: tokens added to the tokenizer, and embeddings for them to the model."""
    name = f"albertine-mini-{language}"
    theirs = transformers.AutoTokenizer.from_pretrained(released_folder(name))
    config = transformers.AlbertConfig(
        **{"vocab_size": len(theirs), "hidden_size": 32, "embedding_size": 16, "intermediate_size": 64},
        **{"num_attention_heads": 2, "num_hidden_layers": 2},
    )
    model = transformers.AlbertForMaskedLM(config).eval()
    theirs.add_tokens(["[E1]", "[/E1]"], special_tokens=True)
    theirs.add_tokens(["new word"])
    model.resize_token_embeddings(len(theirs))
    model.save_pretrained(tmp_path / "m")
    theirs.save_pretrained(tmp_path / "m")
    text = "[E1]a king[/E1] has 王 new word [MASK]."
    fields = theirs(text, return_tensors="pt")
    ids = fields["input_ids"][0].tolist()
    assert {len(theirs) - 3, len(theirs) - 2, len(theirs) - 1} <= set(ids)
    with torch.no_grad():
        logits = model(**fields).logits[0, ids.index(theirs.mask_token_id)]
    plain = albertine.load_tokenizer(name)
    logits[sorted(plain.special_ids)] = -torch.inf  # none of these is a guess
    wanted = logits.softmax(0)
    for folder in (tmp_path / "m", tmp_path / "ours"):
        if folder.name == "ours":
            ours = albertine.load_tokenizer(tmp_path / "m")
            albertine.save(albertine.load(tmp_path / "m"), ours, folder)
        predictor = albertine.Predictor(folder, precision="float32")
        assert predictor.tokenizer(text)["input_ids"] == ids
        for guess in predictor.fill_mask(text, top_k=5)[0]:
            assert guess.probability == pytest.approx(float(wanted[guess.token_id]), rel=1e-4)


def test_heads_of_tasks_travel_beside_the_encoder(tmp_path):
    head = {"classifier.weight": torch.randn(3, 24), "classifier.bias": torch.randn(3)}
    extra_config = {
        "architectures": ["AlbertForSequenceClassification"],
        "id2label": {"0": "a", "1": "b", "2": "c"},
    }
    model = builders.model()
    save_model(model, None, tmp_path / "m", extra_tensors=head, extra_config=extra_config)
    found = read_folder(tmp_path / "m")
    assert found.extra.keys() == head.keys()
    assert torch.equal(found.extra["classifier.weight"], head["classifier.weight"])
    assert found.config["id2label"]["1"] == "b"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "m").eval()
    ids = torch.tensor([[2, 9, 8, 3]])
    with torch.no_grad():
        logits = model(ids).pooler_output @ head["classifier.weight"].T + head["classifier.bias"]
        assert (theirs(ids).logits - logits).abs().max() <= 1e-5


def test_old_names_and_position_ids_are_understood(saved):
    def age(tensors):
        for name in [n for n in tensors if "LayerNorm." in n]:
            tensors[
                name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                    "LayerNorm.bias", "LayerNorm.beta"
                )
            ] = tensors.pop(name)
        tensors["albert.embeddings.position_ids"] = torch.arange(32)[None]
        tensors["predictions.decoder.weight"] = tensors["albert.embeddings.word_embeddings.weight"].clone()
        tensors["predictions.decoder.bias"] = tensors.pop("predictions.bias")

    before = load_model(saved)
    rewrite(saved, age)
    found = read_folder(saved)
    assert found.extra == {}
    assert all(torch.equal(found.model.state_dict()[n], v) for n, v in before.state_dict().items())


def test_key_maps_name_every_parameter_once():
    for keymap in (ALBERT, BERT, ROFORMER):
        assert (
            len({rule.ours for rule in keymap.rules})
            == len(keymap.rules)
            == len({r.theirs for r in keymap.rules})
        )


def test_a_folder_is_replaced_whole_and_foreign_files_stay(saved):
    (saved / "notes.txt").write_text("mine")
    (saved / "vocab.txt").write_text("of the old model")
    of_the_old = ["model-00001-of-00002.safetensors", "pytorch_model.bin", "scores.json", "settings.yaml"]
    for name in of_the_old:
        (saved / name).write_bytes(b"of the old model")
    (saved / "onnx").mkdir()
    (saved / "onnx" / "model.onnx").write_bytes(b"the old model")
    (saved / "more").mkdir()
    (saved / "more" / "x").write_text("y")
    other = builders.model(seed=1)
    albertine.save(other, None, saved)
    assert (saved / "notes.txt").read_text() == "mine"
    assert (saved / "more" / "x").read_text() == "y"
    assert not any((saved / name).exists() for name in (*of_the_old, "vocab.txt", "onnx"))
    assert [path.name for path in saved.glob("*.safetensors")] == ["model.safetensors"]
    again = albertine.load(saved)
    assert all(torch.equal(again.state_dict()[n], v) for n, v in other.state_dict().items())
    assert [p.name for p in saved.parent.iterdir()] == ["m"]


@pytest.mark.parametrize("moment", ["save_file", "sync_tree", "first", "second", "third"])
def test_an_interrupted_save_leaves_the_old_folder(saved, moment, monkeypatch):
    def fail(*_, **__):
        raise OSError("no space left on device")

    before = {p.name: p.read_bytes() for p in saved.iterdir()}
    if moment == "save_file":
        monkeypatch.setattr("safetensors.torch.save_file", fail)
    elif moment == "sync_tree":
        monkeypatch.setattr(files, moment, fail)
    else:
        left, real = [("first", "second", "third").index(moment)], os.rename

        def rename(*given, **more):
            left[0] -= 1
            fail() if left[0] == -1 else real(*given, **more)

        monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(ModelError, match="cannot be written"):
        albertine.save(builders.model(seed=1), None, saved)
    assert {p.name: p.read_bytes() for p in saved.iterdir()} == before
    assert [p.name for p in saved.parent.iterdir()] == ["m"]


def test_a_full_disk_as_safetensors_reports_it(saved, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    before = (saved / "model.safetensors").read_bytes()
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(ModelError, match=r"No space left.*Free space"):
        albertine.save(builders.model(seed=1), None, saved)
    assert (saved / "model.safetensors").read_bytes() == before


def marked(mark: int):
    """A model in which every weight identifies its save."""
    model = builders.model()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(float(mark))
    return model


def mark_of(folder: Path) -> int:
    (value,) = {x for p in albertine.load(folder).parameters() for x in p.detach().flatten()[:3].tolist()}
    assert albertine.load_tokenizer(folder).vocab_size == len(PIECES)
    return int(value)


@pytest.mark.parametrize("before", [True, False])
def test_a_kill_anywhere_leaves_a_whole_model_and_nothing_else(tmp_path, before):
    tokenizer, folder = WordPieceTokenizer(PIECES), tmp_path / "models" / "best"
    folder.parent.mkdir()
    if before:
        albertine.save(marked(1), tokenizer, folder)
        (folder / "notes.txt").write_text("mine")
    two = marked(2)
    kills = states_at_kills(lambda: albertine.save(two, tokenizer, folder), folder.parent, tmp_path / "kills")
    seen = []
    for place in kills:
        copy = place / "best"
        # a reader finds one of the two, though at one moment neither is at its place
        seen.append(mark_of(copy) if before or files.resolve_folder(copy).exists() else 0)
        assert not before or (files.resolve_folder(copy) / "notes.txt").read_text() == "mine"
        albertine.save(marked(3), tokenizer, copy)
        assert mark_of(copy) == 3 and [p.name for p in place.iterdir()] == ["best"]
    assert len(kills) > 10 and set(seen) == {int(before), 2} and seen == sorted(seen)


def test_a_loss_of_power_costs_no_model(tmp_path, monkeypatch):
    disk = Disk(monkeypatch, tmp_path)
    for mark in (1, 2):
        albertine.save(marked(mark), WordPieceTokenizer(PIECES), tmp_path / "run" / "best")
        assert disk.complaints == [] and disk.lost(tmp_path / "run" / "best") == []
        assert disk.missing(tmp_path / "run" / "best") == []
    assert disk.renamed.count("best") == 2


def test_a_folder_that_another_process_writes_is_left_to_it(saved):
    with files.replaced_folder(saved) as beside:
        (beside / "half").write_text("x")
        with pytest.raises(RunError, match="is being written by another process"):
            albertine.save(builders.model(seed=1), None, saved)
        assert (beside / "half").exists()


def test_weights_are_as_readable_as_the_rest(saved):
    assert (saved / "model.safetensors").stat().st_mode == (saved / "config.json").stat().st_mode


def test_a_link_to_a_model_folder_stays_a_link(saved):
    link = saved.parent / "link"
    link.symlink_to(saved.name)
    albertine.save(marked(5), WordPieceTokenizer(PIECES), link)
    assert link.is_symlink() and mark_of(saved) == 5
    assert sorted(p.name for p in saved.parent.iterdir()) == ["link", "m"]


def test_other_peoples_folders_are_not_overwritten(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("long")
    (tmp_path / "file").write_text("x")
    (tmp_path / "app" / "torch").mkdir(parents=True)
    (tmp_path / "app" / "config.json").write_text('{"port": 80}')
    for name in ("thesis", "file", "app"):
        with pytest.raises(ModelError, match="not a model folder"):
            albertine.save(builders.model(), None, tmp_path / name)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "long"
    assert (tmp_path / "app" / "torch").is_dir()


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match="34 pieces"):
        albertine.save(builders.model(vocab_size=20), WordPieceTokenizer(PIECES), tmp_path / "m")


def test_a_card_describes_its_model(saved):
    card = (saved / "README.md").read_text()
    assert "AlbertForPreTraining" in card
    assert f"{sum(p.numel() for p in builders.model().parameters()):,} parameters, hidden size 24" in card
    assert "3 depths, one block used at every depth" in card


def bad_shape(tensors):
    tensors["albert.pooler.weight"] = torch.zeros(3, 24)


def bad_values(tensors):
    tensors["predictions.bias"][3] = float("nan")


def infinite(tensors):
    tensors["albert.embeddings.word_embeddings.weight"][3, 1] = float("inf")


def integers(tensors):
    tensors["albert.pooler.weight"] = torch.zeros(24, 24, dtype=torch.int32)


def untied(tensors):
    tensors["predictions.decoder.weight"] = torch.zeros(builders.VOCABULARY, 8)


def within(front, alone=""):
    """Tensors as they are named where something holds the model, or its backbone alone."""

    def change(tensors):
        for name in list(tensors):
            tensors[front + name.removeprefix(alone)] = tensors.pop(name)

    return change


def two_models(tensors):
    for name in list(tensors):
        tensors[f"teacher.{name}"] = tensors[name].clone()
        tensors[f"student.{name}"] = tensors.pop(name)


def renamed(tensors):
    for i, name in enumerate(list(tensors)):
        tensors[f"a{i}"] = tensors.pop(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (within("module."), "has `module.` in front"),
        (within("module."), r"module\.albert\.\S+, .*removeprefix\('module\.'\)"),
        (within("model."), "has `model.` in front"),
        (within("student.", "albert."), "has `student.` in front"),
        (two_models, r"has `student\.` in front.*beside them teacher\."),
        (within("", "albert.embeddings."), "has no albert.embeddings"),
        (renamed, r"has none of the tensors .* such as albert\.embeddings\S+; it has a0, a1, a10, a11 and"),
        (within("_orig_mod.", "albert."), "has `_orig_mod.` in front"),
        (lambda t: t.pop("albert.embeddings.word_embeddings.weight"), "has no albert.embeddings"),
        (lambda t: t.pop("albert.pooler.bias"), "albert.pooler.bias"),
        (lambda t: t.update({"albert.encoder.more": torch.zeros(2)}), "no place for"),
        (bad_shape, "shape"),
        (bad_values, "not finite"),
        (infinite, "not finite"),
        (integers, "I32"),
        (untied, r"not tied.*encoder can be used without that head: transformers\.AutoModel"),
    ],
)
def test_weights_that_do_not_fit_are_refused(saved, change, message):
    rewrite(saved, change)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(saved)
    assert caught.value.where is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "gpt2"},
        {"model_type": ["albert"]},
        {"hidden_size": "24"},
        {"hidden_size": 10**9},
        {"hidden_size": ...},
        {"vocab_size": -3},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": 10**6},
        {"num_hidden_groups": 9},
        {"inner_group_num": 2},
        {"inner_group_num": "two"},
        {"hidden_act": "swish"},
        {"hidden_act": {}},
        {"num_attention_heads": 5},
        {"hidden_dropout_prob": "0.1"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"vocab_size": 54},
        {"albertine": {"initialization": 3}},
        {"model_type": "albertine", "encoder": {"plan": [1]}},
        {"model_type": "albertine", "encoder": 3},
    ],
)
def test_contradictory_configurations_are_refused(saved, changes):
    edit(saved, **changes)
    with pytest.raises(ModelError):
        load_model(saved)


def test_an_albertine_folder_of_another_version(tmp_path):
    folder = tmp_path / "m"
    model = builders.model(SharingPlan.attention_only(3))
    albertine.save(model, None, folder)
    tree = json.loads((folder / "config.json").read_text())["encoder"]
    assert tree.pop("format") == 1
    edit(folder, encoder=tree)  # as folders were written before there was a number
    assert load_model(folder).config == model.config
    edit(folder, encoder=tree | {"format": 99})
    with pytest.raises(ModelError, match="newer version"):
        load_model(folder)
    edit(folder, encoder=tree | {"norm_position": "pre"})
    with pytest.raises(ModelError, match="unknown key `norm_position`"):
        load_model(folder)


@pytest.mark.parametrize(
    ("kind", "changes", "expected"),
    [
        ("albert", {"classifier_dropout_prob": ...}, 0.1),
        ("albert", {"classifier_dropout_prob": ..., "hidden_dropout_prob": 0.3}, 0.1),
        ("albert", {"classifier_dropout_prob": None}, 0.1),
        ("albert", {"classifier_dropout_prob": 0.0, "hidden_dropout_prob": 0.3}, 0.0),
        ("bert", {"classifier_dropout": ..., "hidden_dropout_prob": 0.3}, 0.3),
        ("bert", {"classifier_dropout": None, "hidden_dropout_prob": 0.3}, 0.3),
        ("bert", {"classifier_dropout": 0.0, "hidden_dropout_prob": 0.3}, 0.0),
    ],
)
def test_dropout_before_a_classifier_is_that_of_transformers(tmp_path, kind, changes, expected):
    bert = builders.model(SharingPlan.unshared(2), embedding_size=24)
    albertine.save(bert if kind == "bert" else builders.model(), None, tmp_path / "m")
    edit(tmp_path / "m", **changes)
    assert load_model(tmp_path / "m").config.classifier_dropout_prob == expected


@pytest.mark.parametrize("text", ["", "{", "[1]", "\ud800", '{"a":' * 100_000])
def test_a_broken_config_file_is_refused(saved, text):
    (saved / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ModelError):
        load_model(saved)


@pytest.mark.parametrize("keep", [0, 4, 9, 400, -1])
def test_a_truncated_file_is_refused(saved, keep):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match="safetensors"):
        load_model(saved)


def test_missing_files_are_named(saved, tmp_path):
    with pytest.raises(ModelError, match="not a folder"):
        load_model(tmp_path / "nowhere")
    (saved / "model.safetensors").rename(saved / "kept")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_model(saved)
    (saved / "model.pt").write_bytes(b"\x80")
    with pytest.raises(ModelError, match="run code"):
        load_model(saved)
    (saved / "config.json").unlink()
    with pytest.raises(ModelError, match="missing"):
        load_model(saved)


@pytest.mark.parametrize("name", ["../m/kept", "absent.safetensors"])
def test_an_index_that_points_elsewhere_is_refused(saved, name):
    (saved / "model.safetensors").rename(saved / "kept")
    (saved / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ModelError):
        load_model(saved)


def test_settings_errors_of_a_head_flag_do_not_escape(saved):
    edit(saved, albertine={"sentence_objective": "weather"})
    assert load_model(saved).sentence_objective == "sop"
    with pytest.raises(SettingsError):
        Model(builders.config(), {"weather"})
