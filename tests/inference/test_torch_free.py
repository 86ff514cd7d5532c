"""Without torch: an exported folder of every family answers as the model folder that it was made from, in a
process in which torch cannot be imported; and functions that need torch raise an error that names it."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import albertine
from albertine import Predictor
from albertine.errors import ModelError, SettingsError, needs_torch
from albertine.export.export_model import export
from albertine.inference.exported_model import ExportedModel
from albertine.inference.probabilities import sigmoid
from albertine.inference.tags import Transitions, allowed, tags_of
from tests.inference.exports import QUESTIONS, TEXTS, TWO, exported, openvino_of, tuned
from tests.inference.torch_free_driver import answer_of
from tests.serving.test_process import process
from tests.serving.test_process import request as fetched
from tests.serving.torch_free_driver import POSTED, posted

TOLERANCE = 1e-4
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "albertine"
Folders = dict[str, tuple[Path, Path]]


class Exports(Folders):
    """Model folders and their exports by family, made at the first use: a graph takes seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __missing__(self, name: str) -> tuple[Path, Path]:
        self[name] = exported(name, self.folder)
        return self[name]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Of every family a model folder, and its export."""
    return Exports(tmp_path_factory.mktemp("exports"))


KINDS = ("single", "crf", "answer or not", "embed", "fill-mask")
"""Families of different kinds of answers; `make test-all` has the others too."""
FAMILIES = pytest.mark.parametrize(
    "families",
    [KINDS, pytest.param([name for name in QUESTIONS if name not in KINDS], marks=pytest.mark.matrix)],
    ids=["some", "others"],
)


RUNTIMES = ("onnx", "openvino") if find_spec("openvino") else ("onnx",)


def in_runtimes(exported: Path) -> list[Path]:
    """Folders of an export for each runtime that is installed."""
    return [exported] + [openvino_of(exported)] * (len(RUNTIMES) - 1)


def without_torch(*arguments: str | Path, code: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command line, or a piece of code, in a process in which torch cannot be imported."""
    run = "import sys; sys.modules['torch'] = None\n"
    run += code or "from albertine.cli.app import run; raise SystemExit(run(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, "-c", run, *map(str, arguments)], capture_output=True, text=True, env=environment
    )


COMMANDS = """
import io, json
from contextlib import redirect_stderr, redirect_stdout
from albertine.cli.app import run
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(words)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def commands_without_torch(*commands: Sequence[str | Path]) -> list[tuple[int, str, str]]:
    """Exit code, output and error output of commands that run one after another in such a process."""
    words = json.dumps([[str(word) for word in command] for command in commands])
    found = without_torch(words, code=COMMANDS)
    assert found.returncode == 0, found.stderr
    return [tuple(json.loads(line)) for line in found.stdout.splitlines()]  # type: ignore[misc]


def alike(one: Any, two: Any) -> bool:
    """Whether two answers are the same, numbers to within the tolerance."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(alike, one, two))
    if isinstance(one, float):
        return abs(one - two) <= TOLERANCE
    return bool(one == two)


def plain_json(answer: Any) -> Any:
    """An answer as JSON has it."""
    return json.loads(json.dumps(answer))


@FAMILIES
def test_every_family_answers_as_with_torch(
    folders: Folders, tmp_path: Path, families: Sequence[str]
) -> None:
    """Catches: a softmax over the wrong axis, padding that is read, a Viterbi without the end's scores, spans
    of the beam in the order of the graph, relations of the wrong text, a second norm of vectors."""
    names = [name for name in QUESTIONS if name in families for _ in RUNTIMES]
    graphs = [folder for name in QUESTIONS if name in families for folder in in_runtimes(folders[name][1])]
    questions = {
        str(graph): [{"method": method, "with": given} for method, given in QUESTIONS[name]]
        for name, graph in zip(names, graphs, strict=True)
    }
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(questions), encoding="utf-8")
    found = without_torch(
        file, code="import runpy; runpy.run_module('tests.inference.torch_free_driver', run_name='__main__')"
    )
    assert found.returncode == 0, found.stderr
    answers = json.loads(found.stdout)
    for name, graph, ours in zip(names, graphs, answers, strict=True):
        for (method, given), answer in zip(QUESTIONS[name], ours, strict=True):
            wanted = plain_json(answer_of(str(folders[name][0]), {"method": method, "with": given}))
            assert alike(wanted, answer), f"{graph.name}, {method}:\n{wanted}\n{answer}"


@FAMILIES
def test_a_server_answers_as_with_torch(folders: Folders, tmp_path: Path, families: Sequence[str]) -> None:
    """`serve` of exported folders of every family, through the same routes. Catches: `import torch` in
    serving/, a task that the server answers by itself."""
    names = [name for name in POSTED if name in families for _ in RUNTIMES]
    graphs = [folder for name in POSTED if name in families for folder in in_runtimes(folders[name][1])]
    bodies = {str(graph): POSTED[name] for name, graph in zip(names, graphs, strict=True)}
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(bodies), encoding="utf-8")
    driver = "import runpy; runpy.run_module('tests.serving.torch_free_driver', run_name='__main__')"
    found = without_torch(file, code=driver)
    assert found.returncode == 0, found.stderr
    for name, ours in zip(names, json.loads(found.stdout), strict=True):
        wanted = posted(str(folders[name][0]), POSTED[name])
        assert alike(plain_json(wanted), ours), f"{name}:\n{wanted}\n{ours}"


def test_serve_is_a_command_without_torch(folders: Folders) -> None:
    with process(folders["single"][1], more="; sys.modules['torch'] = None", own_interpreter=True) as (
        server,
        url,
    ):
        status, classes = fetched(url, "/predict", {"inputs": TEXTS[0]})
        wanted = Predictor(folders["single"][0], precision="float32").classify(TEXTS[0])[0]
        assert status == 200 and alike({one["label"]: one["score"] for one in classes}, wanted)
        server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


def test_answers_are_not_empty(folders: Folders) -> None:
    """Otherwise the comparison above would be of empty answers."""
    assert any(Predictor(folders["crf"][1]).tag_all(TEXTS))
    assert any(Predictor(folders["relate"][1]).relate_all(TEXTS))
    assert len({g.token for g in Predictor(folders["fill-mask"][1]).fill_mask("a [MASK]")[0]}) == 5


def test_a_cross_encoder_answers_with_a_sigmoid(folders: Folders) -> None:
    """Its graph, whose scores without a sigmoid are those of the model."""
    model, graph = folders["cross-encoder"]
    squashed = [row["score"] for row in Predictor(graph).classify(TWO)]
    raw = [row["score"] for row in Predictor(model, precision="float32").classify(TWO, logits=True)]
    assert squashed == pytest.approx(sigmoid(np.array(raw)).tolist(), abs=TOLERANCE)
    assert any(not 0 <= x <= 1 for x in raw)


def test_batching_changes_nothing(folders: Folders) -> None:
    """Catches: padding that is read, rows that come back in the order of their lengths."""
    texts = [*TEXTS, *reversed(TEXTS), "a"]
    alone = [Predictor(folders["single"][1]).classify([text])[0] for text in texts]
    for tokens in (1, 20, 4096):
        together = Predictor(folders["single"][1], batch_tokens=tokens).classify(texts)
        assert alike(alone, together)


def test_a_table_is_bounded(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: runs by the sum of the tokens, in which one long text pads hundreds of short ones."""
    places: list[int] = []
    plain = ExportedModel.run

    def run(self: ExportedModel, ids: Any, types: Any, **more: Any) -> Any:
        places.append(len(ids) * max(map(len, ids)))
        return plain(self, ids, types, **more)

    monkeypatch.setattr(ExportedModel, "run", run)
    Predictor(folders["single"][1], batch_tokens=64).classify([TEXTS[3], *["who"] * 100])
    assert max(places) <= 64 and len(places) < 10


def test_vectors_of_another_pooling_are_pooled_here(folders: Folders) -> None:
    model, graph = (Predictor(folder, precision="float32") for folder in folders["embed"])
    for pooling in ("mean", "cls"):
        for normalize in (True, False):
            wanted = model.embed(TEXTS, pooling=pooling, normalize=normalize)  # type: ignore[arg-type]
            found = graph.embed(TEXTS, pooling=pooling, normalize=normalize)  # type: ignore[arg-type]
            np.testing.assert_allclose(found, wanted, atol=TOLERANCE)
    raw = graph.embed(TEXTS, normalize=False)
    np.testing.assert_allclose(raw, model.embed(TEXTS, normalize=False), atol=TOLERANCE)
    assert graph.embed([]).shape == model.embed([]).shape == (0, 32)
    with pytest.raises(ModelError, match="to pool by `depths`"):
        graph.embed(TEXTS, pooling="depths")


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["embed by depths", "embed whitened"])
def test_vectors_that_are_not_finite_are_reported_before_their_norm(name: str, tmp_path: Path) -> None:
    """Catches: a graph of vectors of length 1 that refuses `normalize=False`, which its model folder
    takes."""
    model, graph = (Predictor(folder, precision="float32") for folder in exported(name, tmp_path))
    for normalize in (None, True, False):
        wanted = model.embed(TEXTS, normalize=normalize)
        np.testing.assert_allclose(graph.embed(TEXTS, normalize=normalize), wanted, atol=TOLERANCE)
    assert (np.abs(np.linalg.norm(wanted, axis=1) - 1) > 0.1).all()


def test_states_are_pooled_as_the_folder_states(folders: Folders, tmp_path: Path) -> None:
    """A graph of states, of a folder whose vectors are those of the first token."""
    source, out = tmp_path / "by the first", tmp_path / "graph"
    shutil.copytree(folders["embed"][0], source)
    modes = json.loads((source / "1_Pooling" / "config.json").read_text())
    modes |= {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (source / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    export(source, out, head="features")
    wanted = Predictor(source, precision="float32").embed(TEXTS[:3])
    np.testing.assert_allclose(Predictor(out).embed(TEXTS[:3]), wanted, atol=TOLERANCE)


def test_the_best_sequence_is_that_of_every_sequence() -> None:
    """Viterbi beside the best of all sequences that the scheme allows, one by one."""
    tags = tags_of(["X"], "bioes")
    draws = np.random.Generator(np.random.Philox(key=3))
    between, start, end, emitted = (
        draws.normal(size=size).astype(np.float32) for size in ((5, 5), (5,), (5,), (4, 5))
    )
    rule, best = allowed(tags), (-np.inf, ())
    for path in np.ndindex(*(5,) * 4):
        edges = [(5, path[0]), *pairwise(path), (path[-1], 5)]
        if all(rule[a][b] for a, b in edges):
            score = start[path[0]] + end[path[-1]] + sum(emitted[i, tag] for i, tag in enumerate(path))
            score += sum(between[a, b] for a, b in edges[1:-1])
            best = max(best, (float(score), path))
    assert tuple(Transitions(tags, between, start, end).best(emitted)) == best[1]


def test_a_file_of_questions(folders: Folders, tmp_path: Path) -> None:
    table, output = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    table.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    source, graph = folders["single"]
    found = without_torch("predict", "classify", graph, "--file", table, "--output", output)
    assert found.returncode == 0, found.stderr
    answers = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert alike(plain_json(list(Predictor(source, precision="float32").predict(TEXTS))), answers)


def test_help_and_what_is_wrong_need_no_torch(folders: Folders) -> None:
    graph = folders["single"][1]
    top, verb, machine, info, wrong = commands_without_torch(
        ["--help"],
        ["predict", "classify", "--help"],
        ["doctor"],
        ["info", graph],
        ["predict", "tag", graph, "a text"],
    )
    assert "predict" in top[1] and verb[0] == 0
    assert machine[0] == 0 and "torch threads" not in machine[1]
    assert "onnx/model.onnx" in info[1]
    assert wrong[0] == 2 and "was tuned to" in wrong[2]


def test_a_command_that_needs_torch_names_it() -> None:
    commands = [
        ["predict", "fill-mask", "albertine-mini-en", "a [MASK]"],
        ["pretrain", "name=x", "corpus=x"],
        ["finetune", "name=x", "encoder.folder=albertine-mini-en", "task.train=x.csv"],
        ["evaluate", "x"],
        ["export", "albertine-mini-en", "x"],
        ["convert", "albertine-mini-en", "x"],
        ["info", "albertine-mini-en"],
        ["score", "albertine-mini-en", "--texts", "x"],
    ]
    for words, (code, _, errors) in zip(commands, commands_without_torch(*commands), strict=True):
        assert code == 2, (words, errors)
        assert errors.rstrip().endswith("needs torch, which is not installed. pip install 'albertine[torch]'")
        assert "Traceback" not in errors and errors.count("\n") == 1, words


INFERENCE_MODULES = (
    *(
        "albertine",
        "albertine.api",
        "albertine.cli.app",
        "albertine.tokenizers.load",
        "albertine.tokenizers.train",
    ),
    *("albertine.tasks.families", "albertine.tasks.predictor", "albertine.tasks.predict"),
    *("albertine.tasks.text_vectors", "albertine.inference.exported_model", "albertine.corpus.prepare"),
    *("albertine.evaluation.metrics", "albertine.evaluation.ensembles", "albertine.tasks.task_data"),
)


def test_the_inference_side_is_free_of_torch() -> None:
    """Catches: `import torch` at the top of tasks/classify.py, or of anything that a family imports."""
    found = without_torch(code="\n".join(f"import {module}" for module in INFERENCE_MODULES))
    assert found.returncode == 0, found.stderr


MODEL = "albertine-mini-en"
CALLS: dict[str, dict[str, Any]] = {
    "load": {"what": MODEL},
    "save": {"model": None, "tokenizer": None, "folder": "x"},
    "pretrain": {},
    "distill": {"teacher": MODEL, "corpus": "x"},
    "finetune": {"encoder": MODEL},
    "evaluate": {"model": "x"},
    "score": {"model": MODEL, "texts": ["a text"]},
    "Predictor": {"path": MODEL},
    "load_task": {"what": MODEL},
    "analyze.attention": {"model": MODEL, "text": "a text"},
    "analyze.depth": {"model": MODEL, "texts": ["a text"]},
    "analyze.layers": {"model": MODEL, "texts": ["a text"]},
    "analyze.parameters": {"models": "albert-base-v2"},
    "analyze.probe": {"model": MODEL, "task": "a folder"},
    "analyze.lens": {"model": MODEL, "text": "a [MASK]"},
    "export": {"model": MODEL, "output": "x"},
    "convert": {"source": MODEL, "target": "x"},
    "ensemble": {"runs": ["x", "y"]},
    "suite": {"name": "blimp", "model": MODEL, "data": "x"},
    "card": {"model": MODEL},
    "report": {"runs": ["x"], "output": "y"},
    "study.run": {"study": "sharing"},
    "study.status": {"study": "sharing"},
    "info": {},
}


def test_a_function_that_needs_torch_names_it() -> None:
    """Every one that `import albertine` offers; catches: a public function without `@needs_torch`."""
    code = f"""
from operator import attrgetter
import albertine
from albertine.errors import MissingExtra
for name, given in {CALLS!r}.items():
    try:
        attrgetter(name)(albertine)(**given)
    except MissingExtra as error:
        print(name, error)
assert albertine.load_tokenizer("albertine-mini-en").encode("a text") and albertine.presets()
"""
    found = without_torch(code=code)
    assert found.returncode == 0, found.stderr
    printed = found.stdout.splitlines()
    assert [line.split()[0] for line in printed] == list(CALLS)
    for line in printed:
        assert line.endswith("needs torch, which is not installed. pip install 'albertine[torch]'")
    assert printed[0].startswith("load albertine.load: needs torch")
    for name in ("pretrain", "analyze.depth"):
        assert any(line.startswith(f"{name} albertine.{name}: needs torch") for line in printed)


def test_another_missing_module_stays_what_it_is() -> None:
    """Catches: every missing module reported as torch."""

    @needs_torch
    def broken() -> None:
        import_module("albertine_of_nowhere")

    with pytest.raises(ModuleNotFoundError, match="albertine_of_nowhere"):
        broken()


def test_every_public_function_is_called_above_or_needs_no_torch() -> None:
    free = {"load_tokenizer", "prepare", "presets", "released_models", "study.report"}
    modules = {"analyze": albertine.analyze, "study": albertine.study}
    inside = {f"{module}.{name}" for module, one in modules.items() for name in one.__all__}
    assert {*albertine.__all__} - modules.keys() | inside == {*CALLS, *free}


USED = {
    *("albertine", "numpy", "onnxruntime", "pydantic", "safetensors", "sentencepiece", "tokenizers", "yaml"),
    *("pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"),  # pydantic's own
}


def test_inference_imports_only_dependencies(folders: Folders) -> None:
    """What pip brings along for `tokenizers` to fetch with (huggingface_hub, hf-xet and theirs, 27 MB) may be
    uninstalled (docs/how-to/exporting.md). Catches: `import huggingface_hub` at the top of a file of the
    inference side, pandas or scipy for one function, a trainer's library there."""
    code = """
import sys
from collections.abc import Sequence
from importlib.metadata import packages_distributions
third = set(packages_distributions()) - {"torch"}
already = set(sys.modules)  # what .pth files of the environment import
from albertine import Predictor
for folder in sys.argv[1:]:
    Predictor(folder)
Predictor(sys.argv[1]).classify(["a text"])
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - already} & third))
"""
    found = without_torch(*(folders[name][1] for name in KINDS), code=code)
    assert found.returncode == 0, found.stderr
    imported = set(found.stdout.split())
    assert {"onnxruntime", "tokenizers"} <= imported <= USED, sorted(imported - USED)


def test_unsupported_requests(folders: Folders) -> None:
    graph = folders["single"][1]
    with pytest.raises(SettingsError, match="on the processor, not on `cuda`"):
        Predictor(graph, device="cuda")
    with pytest.raises(ModelError, match="no graph in int8, but in float32"):
        Predictor(graph, precision="int8")
    with pytest.raises(ModelError, match="words under a mask"):
        Predictor(graph).fill_mask("a [MASK]")
    with pytest.raises(ModelError, match="to pool by `mean`"):
        Predictor(folders["relate"][1]).embed("a")
    with pytest.raises(ModelError, match="not made to predict the order"):
        Predictor(folders["fill-mask"][1]).sentence_order([("a", "b")])
    with pytest.raises(ModelError, match="was not tuned for a task"):
        Predictor(folders["fill-mask"][1]).classify(["a"])


def test_weights_win_over_a_graph_beside_them(tmp_path: Path) -> None:
    """A folder of sentence-transformers may have both; catches: a search for `onnx/` alone."""
    folder = tuned("single", tmp_path / "both")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"no graph")
    assert Predictor(folder).classify(["a"])


def test_a_precision_names_its_graph(folders: Folders, tmp_path: Path) -> None:
    graph = tmp_path / "both"
    shutil.copytree(folders["single"][1], graph)
    (graph / "onnx" / "model.onnx").rename(graph / "onnx" / "model_int8.onnx")
    assert Predictor(graph).classify(["a"]) == Predictor(graph, precision="int8").classify(["a"])
    (graph / "onnx" / "model.onnx").write_bytes(b"no graph")
    assert Predictor(graph, precision="int8").classify(["a"])
    for exact in ("auto", "float32"):
        with pytest.raises(ModelError, match=r"model\.onnx: is not a whole graph"):
            Predictor(graph, precision=exact)  # type: ignore[arg-type]


@pytest.mark.sample(1)
@pytest.mark.parametrize("where", ["graph", "branch", "function"])
def test_a_graph_with_a_loop_is_refused(folders: Folders, tmp_path: Path, where: str) -> None:
    """Its condition never turns false; catches: a search of the nodes of the outer graph alone."""
    onnx = pytest.importorskip("onnx")
    make, kinds = onnx.helper, onnx.TensorProto
    body = make.make_graph(
        [make.make_node("Identity", ["on"], ["goes_on"])],
        "body",
        [make.make_tensor_value_info(n, kind, []) for n, kind in (("i", kinds.INT64), ("on", kinds.BOOL))],
        [make.make_tensor_value_info("goes_on", kinds.BOOL, [])],
    )
    loop = make.make_node("Loop", ["", "true"], [], body=body)
    graph = shutil.copytree(folders["single"][1], tmp_path / "loop")
    file = graph / "onnx" / "model.onnx"
    model = onnx.load(file)
    if where == "graph":
        model.graph.node.append(loop)
    elif where == "branch":
        empty = make.make_graph([], "else", [], [])
        inner = make.make_graph([loop], "then", [], [])
        model.graph.node.append(make.make_node("If", ["true"], [], then_branch=inner, else_branch=empty))
    else:
        own = make.make_function("own", "endless", ["true"], [], [loop], [make.make_opsetid("", 18)])
        model.functions.append(own)
        model.graph.node.append(make.make_node("endless", ["true"], [], domain="own"))
    onnx.save(model, file)
    with pytest.raises(ModelError, match=r"model\.onnx: has a loop"):
        Predictor(graph)


def test_a_random_field_is_that_of_the_graph_that_was_opened(folders: Folders, tmp_path: Path) -> None:
    where = shutil.copytree(folders["crf"][1], tmp_path / "crf")
    predictor = Predictor(where)
    wanted = predictor.tag_all(TEXTS)
    (where / "head.safetensors").unlink()
    assert predictor.tag_all(TEXTS) == wanted


def test_an_export_answers_in_another_process(folders: Folders) -> None:
    """Catches: a traceback about pickling a session of onnxruntime in a pool of processes."""
    predictor = Predictor(folders["single"][1], batch_tokens=7)
    for other in (pickle.loads(pickle.dumps(predictor)), copy.deepcopy(predictor)):
        assert other.classify(["a"]) == predictor.classify(["a"])
        assert other.model.tokens_per_pass == 7 and other.model.precision == predictor.model.precision
