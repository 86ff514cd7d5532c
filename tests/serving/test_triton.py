"""Models of Triton: what an exported repository gives by the interface of the Python backend is what the
server gives."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from albertine.errors import SettingsError
from albertine.export.export_model import export
from tests.inference.exports import LONG, PASSAGES, TEXTS
from tests.triton_stand_in import TritonError, triton

SHORT = TEXTS[:3]
Exported = Callable[..., Path]
Clients = Callable[[str], TestClient]
FLOAT32 = {"precision": "float32"}


@pytest.fixture
def exported(folder: Callable[[str], Path], tmp_path: Path) -> Exported:
    """The repository of a head."""

    def write(name: str, head: str = "task") -> Path:
        return export(folder(name), tmp_path / "repository", ["triton"], head=head).folder

    return write


def strings(*texts: str) -> list[bytes]:
    return [text.encode() for text in texts]


@pytest.mark.parametrize("name", ["single", "multi", "score"])
def test_labels_and_scores(name: str, exported: Exported, client: Clients) -> None:
    """Of all rows of a request, in their order, the likeliest first."""
    expected = client(name).post("/predict", json={"inputs": [[text] for text in SHORT]}).json()
    with triton(exported(name), **FLOAT32) as server:
        found = server.arrays({"TEXT": strings(*SHORT)})
    assert found["LABEL"].tolist() == [[one["label"].encode() for one in row] for row in expected]
    np.testing.assert_allclose(
        found["SCORE"], [[one["score"] for one in row] for row in expected], rtol=0, atol=1e-6
    )


def test_pairs(exported: Exported, client: Clients) -> None:
    expected = client("nli").post("/predict", json={"inputs": [["the old man", "a house"]]}).json()
    with triton(exported("nli"), **FLOAT32) as server:
        assert [one["name"] for one in server.config["input"]] == ["TEXT", "PAIR"]
        found = server.arrays({"TEXT": [b"the old man"], "PAIR": [b"a house"]})
    np.testing.assert_allclose(found["SCORE"][0], [one["score"] for one in expected[0]], atol=1e-6)


@pytest.mark.parametrize(("name", "head"), [("embed", "task"), ("fill-mask", "embed")])
def test_vectors(name: str, head: str, exported: Exported, client: Clients) -> None:
    expected = client(name).post("/embed", json={"inputs": SHORT}).json()
    with triton(exported(name, head), **FLOAT32) as server:
        found = server.arrays({"TEXT": strings(*SHORT)})
    np.testing.assert_allclose(found["VECTOR"], expected, atol=1e-6)


QUESTION, CONTEXT = PASSAGES[0]
BODIES: dict[str, list[Any]] = {
    "tag": [{"inputs": SHORT[0]}, {"inputs": SHORT[1]}],
    "answer": [{"inputs": {"question": QUESTION, "context": CONTEXT}, "parameters": {"top_k": 2}}],
    "choose": [{"question": "the old man", "options": ["was good", "said that", "where ?"]}],
    "relate": [{"inputs": SHORT[0]}],
    "fill-mask": [{"inputs": "the [MASK] man"}, {"inputs": "a [MASK] was [MASK]"}],
}


@pytest.mark.parametrize("name", BODIES)
def test_json_of_other_tasks(name: str, exported: Exported, client: Clients) -> None:
    """A row is the body of `POST /`, and its response that answer."""
    bodies = BODIES[name]
    expected = [client(name).post("/", json=body).json() for body in bodies]
    with triton(exported(name), **FLOAT32) as server:
        found = server.arrays({"REQUEST": strings(*map(json.dumps, bodies))})
    assert rounded([json.loads(one) for one in found["RESPONSE"][:, 0]]) == rounded(expected)


def rounded(found: Any) -> Any:
    """JSON with numbers to 4 digits: batches of other texts differ in the last ones."""
    if isinstance(found, float):
        return round(found, 4)
    if isinstance(found, dict):
        return {name: rounded(one) for name, one in found.items()}
    return [rounded(one) for one in found] if isinstance(found, list) else found


def test_an_error_is_that_of_its_request_alone(exported: Exported, client: Clients) -> None:
    """Catches: a batch of Triton that fails for one client's text, and a text that is cut without a word."""
    with triton(exported("single"), **FLOAT32) as server:
        alone = server.arrays({"TEXT": [b"the old man"]})
        good, long, bad, after = server.infer(
            {"TEXT": [b"the old man"]},
            {"TEXT": strings("who", LONG)},
            {"TEXT": [b"\xff\xfe"]},
            {"TEXT": [b"who"]},
        )
    assert not good.has_error() and not after.has_error()
    np.testing.assert_allclose(good.output_tensors()[1].as_numpy(), alone["SCORE"], atol=1e-6)
    refused = client("single").post("/predict", json={"inputs": [["who"], [LONG]]}).json()
    for response, message in ((long, refused["error"]), (bad, "a row of TEXT is not UTF-8 text")):
        error = response.error()
        assert error is not None
        assert (error.code(), error.message()) == (TritonError.INVALID_ARG, message)


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"{", "is not JSON"), (b"[1]", "is not a JSON object"), (b'{"text": "a"}', "text")],
)
def test_a_body_that_is_wrong(body: bytes, message: str, exported: Exported) -> None:
    with triton(exported("tag")) as server:
        (response,) = server.infer({"REQUEST": [b'{"inputs": "the old man"}', body]})
    error = response.error()
    assert error is not None and error.code() == TritonError.INVALID_ARG and message in error.message()


def test_parameters_are_those_of_the_server(exported: Exported) -> None:
    repository = exported("single")
    with triton(repository, auto_truncate="true", EXECUTION_ENV_PATH="python.tar.gz") as server:
        assert server.arrays({"TEXT": [LONG.encode()]})["SCORE"].shape == (1, 3)
    with triton(repository, deadline_seconds="1e-9") as server:
        (late,) = server.infer({"TEXT": [b"who"]})
        error = late.error()
        assert error is not None and error.code() == TritonError.UNAVAILABLE
    for wrong, message in (({"precison": "float32"}, "precison"), ({"precision": "float31"}, "float32")):
        with pytest.raises(SettingsError, match=message), triton(repository, **wrong):
            pass


def test_an_instance_of_a_gpu_computes_there(exported: Exported) -> None:
    """Device 97 is there on no machine, and its error shows that it was looked for."""
    with (
        pytest.raises(SettingsError, match="no device `cuda:97`"),
        triton(exported("single"), "GPU", "97"),
    ):
        pass


def test_a_configuration_without_a_known_output(exported: Exported) -> None:
    repository = exported("single")
    (file,) = repository.glob("*/config.pbtxt")
    file.write_text(file.read_text().replace('"LABEL"', '"CLASS"'))
    with (
        pytest.raises(SettingsError, match="none of the outputs LABEL, VECTOR, RESPONSE"),
        triton(repository),
    ):
        pass


def test_a_repository_is_complete(folder: Callable[[str], Path], exported: Exported, tmp_path: Path) -> None:
    """It may be moved. Catches: a path of the machine that wrote it."""
    moved = Path(shutil.move(exported("embed"), tmp_path / "elsewhere"))
    written = [file.read_text() for file in moved.rglob("*") if file.suffix in (".py", ".pbtxt", ".md")]
    assert len(written) == 4  # with the card
    for place in (folder("embed").parent, tmp_path):
        assert str(place) not in "".join(written)
    with triton(moved) as server:
        assert server.arrays({"TEXT": [b"who"]})["VECTOR"].shape == (1, 32)
