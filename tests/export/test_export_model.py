"""`albertine export`: what is written, what is refused before anything is, and the content of the report."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

import albertine as package
from albertine.errors import AlbertineError, ModelError, RunError, SettingsError
from albertine.export import export_model, formats, verify
from albertine.export.export_model import _verified, export
from albertine.export.formats import ExportedFile, ExportOptions
from albertine.export.graph import graph_of
from albertine.export.source_model import Opened, opened
from albertine.export.verify import Arrays, Compared, Run, Verified, rounding_of
from albertine.inference.embedding import vector_settings
from albertine.inference.graph_heads import Head
from albertine.interop.exported_folder import read_exported
from albertine.interop.heads import task_in
from albertine.interop.hub.upload import plan_upload
from albertine.interop.huggingface.folders import read_folder
from albertine.interop.pickled import PICKLED
from albertine.interop.weights import INDEX, SINGLE
from albertine.model.crf import CrfTagger
from albertine.model.model import Model
from albertine.tasks.families import family_of, tuned_model
from albertine.tokenizers.load import load_tokenizer
from tests.cli.conftest import Command, albertine  # noqa: F401
from tests.export import saved
from tests.export.conftest import put_model
from tests.export.heads import head_of
from tests.export.test_graph import traced
from tests.model.builders import config


class Torch:
    """A format without files: the graph, run by torch with a chosen error."""

    NEEDS: tuple[str, ...] = ()
    EXTRA = "export"
    OPTIONS = frozenset[str]()

    def __init__(self, wrong: float = 0.0, precision: str = "float32") -> None:
        self.wrong, self.precision = wrong, precision
        self.inputs: list[Arrays] = []

    def write(self, source: Opened, folder: Path, options: ExportOptions) -> list[ExportedFile]:
        graph = graph_of(source.head)
        (folder / "model.torch").write_text("")

        @torch.no_grad()
        def run(inputs: Arrays) -> Arrays:
            self.inputs.append(inputs)
            found = graph(*(torch.from_numpy(inputs[name]) for name in graph.inputs))
            return {name: x.numpy() + self.wrong for name, x in zip(graph.outputs, found, strict=True)}

        return [ExportedFile("model.torch", self.precision, run, facts={"bytes": 0})]


@pytest.fixture
def in_torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """That format in place of ONNX, which takes seconds to trace."""
    made = Torch()
    monkeypatch.setattr(export_model, "format_of", lambda name: made)
    return made


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_a_saved_model_without_weights(exported: Path, classifier: Path) -> None:
    files = files_in(exported)
    assert {"config.json", "tokenizer.json", "export.json", "onnx/model.onnx"} <= files
    assert not any(name.endswith(".safetensors") for name in files)
    stored, source = (json.loads((folder / "config.json").read_text()) for folder in (exported, classifier))
    assert stored["albertine"] == source["albertine"] and stored["id2label"] == source["id2label"]
    first, second = load_tokenizer(exported), load_tokenizer(classifier)
    assert first.fingerprint == second.fingerprint
    cut = json.loads((exported / "tokenizer_config.json").read_text())["model_max_length"]
    assert cut == stored["max_position_embeddings"] == 48


def test_the_report(exported: Path) -> None:
    report = json.loads((exported / "export.json").read_text())
    assert report["answers"] == "classify" and report["formats"] == ["onnx"]
    assert len(report["source"]["digest"]) == 32 and report["source"]["name"] == "classify"
    assert report["versions"].keys() >= {"albertine", "torch", "onnx", "onnxruntime", "python"}
    padded, packed = (report["files"][f"onnx/model{kind}.onnx"] for kind in ("", "_packed"))
    assert padded["opset"] == 20 and padded["layout"] == "padded" and packed["layout"] == "packed"
    assert padded["inputs"]["attention_mask"] == ["batch", "length"]
    assert padded["outputs"] == {"logits": ["batch", 3]} and packed["outputs"] == {"logits": ["sequences", 3]}
    assert packed["inputs"]["cu_seqlens"] == ["sequences + 1"]
    assert report["files"]["onnx/model_int8.onnx"]["weight_bits"] in (7, 8)


def test_info_describes_an_export(exported: Path, albertine: Command) -> None:  # noqa: F811
    out = albertine("info", exported).out
    assert "exported model" in out and "classify" in out
    assert "opset 20" in out and "products in int8" in out and "over 20 shapes" in out


def test_info_of_a_damaged_report(tmp_path: Path, albertine: Command) -> None:  # noqa: F811
    (tmp_path / "export.json").write_text('{"files": []}')
    done = albertine("info", tmp_path)
    assert done.code == 2 and "is no report of an export" in done.err and "Traceback" not in done.err


def test_an_export_is_replaced_only_with_overwrite(in_torch: Torch, classifier: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = export(classifier, out)
    with pytest.raises(SettingsError, match=r"exists.*--overwrite"):
        export(classifier, out)
    (out / "export.json").write_text("{}")
    assert export(classifier, out, overwrite=True).report == first.report
    assert json.loads((out / "export.json").read_text()) == first.report


def test_an_export_may_be_named_in_the_home_folder(
    in_torch: Torch, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    assert export(classifier, "~/out").folder == tmp_path / "home" / "out"
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_what_is_no_export_is_never_replaced(in_torch: Torch, classifier: Path, tmp_path: Path) -> None:
    model = shutil.copytree(classifier, tmp_path / "model")
    before = files_in(model)
    for source in (classifier, model):
        with pytest.raises(SettingsError):
            export(source, model, overwrite=True)
    assert files_in(model) == before


@pytest.mark.parametrize("weights", [SINGLE, INDEX, PICKLED])
def test_an_export_that_holds_weights_too_is_never_replaced(
    weights: str, in_torch: Torch, classifier: Path, tmp_path: Path
) -> None:
    """As a folder for the hub that has both; catches: export.json alone making a folder an export."""
    both = export(classifier, tmp_path / "both").folder
    (both / weights).write_text("mine")
    before = files_in(both)
    with pytest.raises(SettingsError, match=f"it holds {weights}, which would be lost"):
        export(classifier, both, overwrite=True)
    assert files_in(both) == before


def test_what_stands_beside_an_export_stays(in_torch: Torch, classifier: Path, tmp_path: Path) -> None:
    """A card, notes; not the graphs of another format that the report no longer lists."""
    out = export(classifier, tmp_path / "out").folder
    (out / "README.md").write_text("a card")
    (out / "mine").mkdir()
    (out / "mine" / "notes.txt").write_text("notes")
    (out / "openvino").mkdir()
    (out / "openvino" / "openvino_model.xml").write_text("old")
    before = files_in(out)
    export(classifier, out, overwrite=True)
    assert files_in(out) == before - {"openvino/openvino_model.xml"}
    assert (out / "README.md").read_text() == "a card"


def test_an_export_in_place_of_a_model_is_reported(in_torch: Torch, classifier: Path, tmp_path: Path) -> None:
    """With a remedy; catches: the advice to fetch weights that an export never had."""
    out = export(classifier, tmp_path / "out").folder
    wanted = r"is an export of classify, which has no weights\. Use the model that it was made from"
    for use in (read_folder, opened):
        with pytest.raises(ModelError, match=wanted):
            use(out)
    (out / "README.md").write_text("---\nlicense: mit\n---\n")  # of its model; then it may be sent
    assert {"export.json", "config.json", "README.md"} <= dict(plan_upload(out).files).keys()
    for report in ("{}", '{"source": 3}', "damaged"):
        (out / "export.json").write_text(report)
        with pytest.raises(ModelError, match="is an export, which has no weights"):
            read_folder(out)


@pytest.mark.parametrize("opened_as", ["a missing model", "an unknown format", "an unknown head"])
def test_nothing_is_written_where_something_is_wrong(
    opened_as: str, classifier: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(AlbertineError):
        if opened_as == "a missing model":
            export(tmp_path / "nothing", out)
        elif opened_as == "an unknown format":
            export(classifier, out, to=["nonsense"])
        else:
            export(classifier, out, head="nonsense")
    assert not list(tmp_path.iterdir())


def test_a_missing_library_is_one_message(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name.startswith("onnx") else object())
    with pytest.raises(RunError, match=r"needs onnx and onnxscript and onnxruntime.*albertine\[export\]"):
        export(classifier, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_export_that_computes_something_else_is_removed(
    in_torch: Torch, classifier: Path, tmp_path: Path
) -> None:
    in_torch.wrong = 1e-3
    with pytest.raises(ModelError, match=r"differs from its source: at .* a number is off by"):
        export(classifier, tmp_path / "out")
    in_torch.precision, in_torch.wrong = "int8", 1.0
    with pytest.raises(ModelError, match="is another model: least cosine"):
        export(classifier, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("head", ["embed", "features", "fill-mask"])
def test_vectors_of_a_coarse_format_are_judged_by_texts(head: str, in_torch: Torch, tmp_path: Path) -> None:
    """Laid out as texts are; float32 and scores by random tokens. Catches: INT8 let through because vectors
    of random tokens have nearly one direction."""
    folder = put_model(tmp_path)
    tokenizer = load_tokenizer(folder)

    def texts() -> list[bool]:
        """Whether each row that was computed is a text."""
        inputs, in_torch.inputs = in_torch.inputs, []
        return [
            (ids[0], ids[mask.sum() - 1], types.any()) == (tokenizer.cls_id, tokenizer.sep_id, False)
            for one in inputs
            for ids, mask, types in zip(*one.values(), strict=True)
        ]

    export(folder, tmp_path / "exact", head=head)
    assert not any(texts())
    in_torch.precision = "int8"
    export(folder, tmp_path / "coarse", head=head)
    found = texts()
    assert len(found) > 12 and all(found) == (head != "fill-mask")


def test_a_coarse_format_may_differ_a_little(in_torch: Torch, classifier: Path, tmp_path: Path) -> None:
    in_torch.precision, in_torch.wrong = "int8", 1e-4
    export(classifier, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"halting": "accumulated"}, "decides itself after how many steps"),
        ({"solver": "anderson", "input_injection": True}, "runs until nothing changes any more"),
    ],
)
def test_loops_have_no_graph(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    folder = put_model(tmp_path, **changes)
    with pytest.raises(ModelError, match=words):
        opened(folder, "features")


def test_writing_has_no_graph_and_its_encoder_has(tmp_path: Path) -> None:
    folder = put_model(tmp_path)
    stored = json.loads((folder / "config.json").read_text())
    stored["albertine"] |= {"task": "generate", "source_length": 8, "target_length": 8}
    (folder / "config.json").write_text(json.dumps(stored))
    with pytest.raises(ModelError, match=r"generates token by token .*--head features"):
        opened(folder)
    assert list(opened(folder, "features").head.axes) == ["last_hidden_state", "pooler_output"]


def test_a_language_model_has_no_graph_and_its_encoder_has(tmp_path: Path) -> None:
    changes = {"positions": "relative", "embedding_size": 24, "embedding_norm": False, "summary": "last"}
    package.save(Model(config(**changes), {"lm"}), None, tmp_path / "xlnet")
    with pytest.raises(ModelError, match=r"from a memory .*--head features"):
        opened(tmp_path / "xlnet")
    assert opened(tmp_path / "xlnet", "features").answers == "features"


@pytest.mark.parametrize("task", ["classify", "tag", "choose", "answer", "relate"])
def test_every_task_is_read_from_its_folder(task: str, in_torch: Torch, tmp_path: Path) -> None:
    done = export(put_model(tmp_path, task), tmp_path / "out")
    assert done.report["answers"] == task
    assert done.report["files"]["model.torch"]["greatest_difference"] <= 1e-5
    stored = json.loads((tmp_path / "out" / "config.json").read_text())
    assert stored["albertine"]["task"] == task


def test_a_pretrained_model_exports_the_requested_output(in_torch: Torch, tmp_path: Path) -> None:
    folder = put_model(tmp_path)
    for wanted, answers in {"task": "fill-mask", "embed": "embed", "features": "features"}.items():
        assert export(folder, tmp_path / wanted, head=wanted).report["answers"] == answers


def test_only_a_graph_of_states_has_the_modules_of_vectors(in_torch: Torch, tmp_path: Path) -> None:
    folder = saved.embedder(tmp_path / "m")
    modules = {"modules.json", "1_Pooling", "sentence_bert_config.json", "config_sentence_transformers.json"}
    for head, there in {"task": modules, "features": modules, "fill-mask": set[str]()}.items():
        out = export(folder, tmp_path / head, head=head).folder
        assert {path.name for path in out.iterdir()} & modules == there


@pytest.mark.parametrize("head", ["task", "features"])
def test_a_graph_has_no_modules_that_average_all_layers(head: str, in_torch: Torch, tmp_path: Path) -> None:
    """It returns the states of the last layer alone."""
    folder = saved.embedder(tmp_path / "m", "depths", True)
    assert (folder / "modules.json").is_file()
    out = export(folder, tmp_path / "out", head=head).folder
    assert not [x.name for x in out.iterdir() if "Pooling" in x.name or "sentence" in x.name]
    assert not (out / "modules.json").exists()
    how = vector_settings(read_exported(out, {"last_hidden_state": (0, 0, 32)}), out)
    pooled = ("depths", True) if head == "task" else ("mean", False)
    assert (how.pooling, how.normalize) == pooled


def test_the_scores_of_a_random_field_stand_beside(in_torch: Torch, tmp_path: Path) -> None:
    """With the transitions that the scheme forbids, so that decoders need not know the scheme."""
    folder = put_model(tmp_path, "tag")
    export(folder, tmp_path / "out")
    held = safetensors.numpy.load_file(tmp_path / "out" / "head.safetensors")
    read = read_folder(folder)
    model = tuned_model(read, family_of(read, load_tokenizer(folder), folder), folder)
    assert isinstance(model, CrfTagger)
    for x, name in zip(model.crf.scores, ("crf.transitions", "crf.start", "crf.end"), strict=True):
        np.testing.assert_array_equal(held[name], x.detach().numpy())
    assert held["crf.start"][2] < -1000  # I-x begins nothing


def test_an_other_model_has_another_digest(classifier: Path, tmp_path: Path) -> None:
    other = shutil.copytree(classifier, tmp_path / "other")
    assert opened(other).digest == opened(classifier).digest
    weights = other / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert opened(other).digest != opened(classifier).digest


def test_differences_are_judged_by_the_size_of_numbers_and_by_float64() -> None:
    one = Compared(1, 1, 1, difference=5e-5, largest=2.0, cosine=1.0, places=1.0)
    assert not Verified((one,)).exact
    assert Verified((replace(one, largest=10.0),)).exact
    assert Verified((one,), rounding=1e-5).exact
    assert not Verified((one,), rounding=1e-6).exact


def test_rounding_is_small_and_leaves_the_model_as_it_was() -> None:
    head = head_of("fill-mask")
    before = {name: x.clone() for name, x in head.model.state_dict().items()}
    assert 1e-8 < rounding_of(head) < 1e-4
    assert all(torch.equal(x, before[name]) for name, x in head.model.state_dict().items())


def test_places_that_are_not_the_models_are_no_export(tmp_path: Path) -> None:
    """Close numbers are not enough for a head that selects positions."""
    head, run = traced("answer or not", False)
    assert isinstance(head, Head)

    def nowhere(inputs: Arrays) -> Arrays:
        return {name: x * 0 if name.endswith("_index") else x for name, x in run(inputs).items()}

    source = Opened(tmp_path, "", head, "answer", {}, None)
    with pytest.raises(ModelError, match="points elsewhere"):
        _verified(source, ExportedFile("m.onnx", "float32", nowhere))
    assert _verified(source, ExportedFile("m.onnx", "float32", run)).places == 1


def test_a_coarse_format_that_points_elsewhere_is_another_model(tmp_path: Path) -> None:
    """Catches: probabilities compared in the order of their ranks, whosever they are; two places that are as
    likely taken for a difference; the ends of one start held against those of another."""
    head, run = traced("answer or not", False)
    assert isinstance(head, Head)
    with torch.no_grad():
        for x in head.joint.start_logits.parameters():  # type: ignore[attr-defined]
            x.mul_(40)  # a new head finds all places as likely

    def moved(part: str) -> Run:
        def answer(inputs: Arrays) -> Arrays:
            return {name: x + 1 if name == f"{part}_top_index" else x for name, x in run(inputs).items()}

        return answer

    source = Opened(tmp_path, "", head, "answer", {}, None)
    for part in ("start", "end"):
        with pytest.raises(ModelError, match="is another model"):
            _verified(source, ExportedFile("m.onnx", "int8", moved(part)))
    assert _verified(source, ExportedFile("m.onnx", "int8", run)).cosine > 0.999

    batch = list(verify.batches(head.base.config))[-1]
    arrays = run(batch)
    ranks = [1, 0, 2, 3, 4]
    turned = {name: x[:, ranks] for name, x in arrays.items() if name.startswith("start")}
    for name in ("end_top_log_probs", "end_top_index"):
        turned[name] = arrays[name].reshape(len(arrays[name]), -1, 5)[:, :, ranks].reshape(arrays[name].shape)
    assert verify._same_places(arrays, turned) == pytest.approx(
        [1] * len(verify._same_places(arrays, arrays))
    )

    likely = np.array([0.5, 0.1, 0.1])
    one, other = (np.array([4, 7, last]) for last in (2, 9))
    assert verify._alike((one, likely), (other, likely)) == pytest.approx(1)
    assert verify._alike((one, likely), (one[::-1], likely)) < 0.9


def test_a_model_whose_outputs_are_not_finite_is_not_exported() -> None:
    head, run = traced("classify", False)
    assert isinstance(head, Head)
    with torch.no_grad():
        list(head.model.parameters())[-1].view(-1)[0] = float("nan")
    with pytest.raises(ModelError, match="the model itself answers"):
        verify.verify(head, run)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "has no output `logits`"),
        ({"logits": np.zeros((1, 2))}, "of shape"),
        ({"logits": None}, "what is no number"),
    ],
)
def test_a_runtime_that_answers_nonsense(answer: dict[str, object], words: str) -> None:
    def run(inputs: Arrays) -> Arrays:
        full = np.full((len(inputs["input_ids"]), 3), np.nan)
        return {name: full if x is None else np.asarray(x) for name, x in answer.items()}

    with pytest.raises(ModelError, match=words):
        verify.verify(head_of("classify"), run)


def test_every_option_of_the_command_reaches_the_export(
    albertine: Command,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []

    def noted(model: str, output: Path, to: list[str], **how: object) -> export_model.Exported:
        calls.append((to, how))
        return export_model.Exported(output, {}, [])

    monkeypatch.setattr(export_model, "export", noted)
    given = {
        ("--int8",): ExportOptions(int8=True),
        ("--packed",): ExportOptions(packed=True),
        ("--bfloat16",): ExportOptions(bfloat16=True),
        ("--opset", 18): ExportOptions(opset=18),
        ("--sample", "a.txt"): ExportOptions(sample=(Path("a.txt"),)),
    }
    for words, options in given.items():
        assert albertine("export", "m", tmp_path / "out", *words).code == 0
        assert calls.pop() == (["onnx"], {"head": "task", "overwrite": False, "options": options})
    more = ("--to", "openvino", "--to", "gguf", "--head", "embed", "--overwrite")
    assert albertine("export", "m", tmp_path / "out", *more).code == 0
    how = {"head": "embed", "overwrite": True, "options": ExportOptions()}
    assert calls.pop() == (["openvino", "gguf"], how)


@pytest.mark.parametrize("task", ["choose", "answer", "relate", "classify", "tag"])
def test_vectors_of_a_tuned_model_mention_no_head(task: str, tmp_path: Path) -> None:
    """Catches: options identified by the first number of their vectors, a server that does not start."""
    assert task_in(opened(put_model(tmp_path, task), "embed").config) is None


def test_one_number_a_text_is_compared_by_its_size() -> None:
    head, run = traced("choose", False)
    assert isinstance(head, Head)
    much = verify.verify(head, lambda x: {name: 100 * y for name, y in run(x).items()})
    assert much.cosine < 0.999
    assert verify.verify(head, lambda x: {name: y + 1e-3 for name, y in run(x).items()}).cosine > 0.999


def test_tokens_added_to_the_tokenizer_are_saved_with_it(tmp_path: Path) -> None:
    folder = saved.embedder(tmp_path / "m")
    (folder / "added_tokens.json").write_text(json.dumps({"[E1]": 99999}))
    saved.embedder(folder)
    assert not (folder / "added_tokens.json").exists()
    load_tokenizer(folder)
