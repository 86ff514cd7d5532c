"""Rules of the package's structure, checked on its source: rooms, single owners, no pickle."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "albertine"
FILES = sorted(PACKAGE.rglob("*.py"))

# From the top down; a package may import those below it, or fewer where ALLOWED lists them.
ROOMS = (
    "cli",
    "study",  # computes with all that the verbs compute with
    "bench",
    "serving",
    "experiments",
    "export",
    "pretraining",
    "tasks",
    "evaluation",
    "analysis",  # below pretraining: docs/decisions/003
    "inference",
    "interop",
    "training",
    "objectives",
    "corpus",
    "tokenizers",
    "text",
    "model",
    "core",
)
GROUND = {"errors"}
ALLOWED: dict[str, set[str]] = {
    "model": {"core"},
    "text": {"core"},
    "tokenizers": {"text", "core"},
    "corpus": {"tokenizers", "text", "core"},
    "training": {"core"},
    "objectives": {"corpus", "tokenizers", "text", "model", "core"},
    "interop": {"model", "tokenizers", "text", "training", "core"},
}
FOREIGN = (
    r"albert_layer_groups|attention\.self\.|full_layer_layer_norm|sop_classifier|seq_relationship"
    r"|LayerNorm\.(?:weight|bias|gamma|beta)"
)
KERNELS = (
    r"scaled_dot_product_attention|varlen_attn|flash_attn|sdpa_kernel|flex_attention"
    r"|ops\.mkldnn|ops\.onednn|qlinear|_int_mm|int8pack|get_cpu_capability|torch\.compile\("
)
DOOR = {"attention_weights", "base", "cuda", "cuda_graphs"}
"""Files of `model/backend/` that others import: the plain backend, the one that keeps attention weights, and
passes of a GPU started as a whole."""
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
CONFINED = "setrlimit"
"""What is in the one file that reads tensors out of pickles: limits (`interop/pickled_worker.py`)."""
NETWORK = {"requests", "httpx", "urllib.request", "urllib3", "http.client", "huggingface_hub", "aiohttp"}
# Types and pure functions of the random modules that hold no state.
STATELESS = {"np.random.Generator", "np.random.Philox"}
# Functions of torch that make a tensor of numbers.
CONSTRUCTORS = {
    f"torch.{name}"
    for name in ("arange", "as_tensor", "empty", "eye", "full", "linspace", "ones", "rand", "tensor", "zeros")
}


def room(path: Path) -> str:
    """The package of a source file: `ground` for top-level modules, `` for the package's `__init__`."""
    parts = path.relative_to(PACKAGE).parts
    if len(parts) > 1:
        return parts[0]
    return "" if path.stem in ("__init__", "__main__", "analyze", "api", "sklearn") else "ground"


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every imported module with its line, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from albertine import cli` names a module too.
            deeper = [f"{node.module}.{alias.name}" for alias in node.names] if "." not in node.module else []
            yield from ((node.lineno, name) for name in [node.module, *deeper])


def dotted(node: ast.expr) -> str:
    """`np.random.rand` for the expression of that name, empty for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def calls(tree: ast.AST) -> Iterator[tuple[int, str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, dotted(node.func), node


Rule = Callable[[str, str, ast.AST], Iterator[str]]
"""(room, source, tree) → what breaks the rule."""


def upward_imports(here: str, source: str, tree: ast.AST) -> Iterator[str]:
    if here == "":
        return
    below = {"ground": set[str]()} | {r: set(ROOMS[i + 1 :]) for i, r in enumerate(ROOMS)} | ALLOWED
    for line, module in imports(tree):
        top, _, rest = module.partition(".")
        there = rest.split(".")[0]
        if top != "albertine" or not there or there in GROUND or there == here or there == "__version__":
            continue
        if there in ROOMS and there not in below[here]:
            yield f"line {line}: {here} imports {module}"


def kernels(here: str, source: str, tree: ast.AST) -> Iterator[str]:
    if here != "bench":  # which drives other programs
        yield from re.findall(KERNELS, source)


def back_door(here: str, source: str, tree: ast.AST) -> Iterator[str]:
    """Only `model/backend/__init__.py` is imported from outside the package."""
    for line, module in imports(tree):
        if module.startswith("albertine.model.backend.") and module.rpartition(".")[2] not in DOOR:
            yield f"line {line}: imports {module}"


def foreign_names(here: str, source: str, tree: ast.AST) -> Iterator[str]:
    if here == "interop":
        return
    yield from re.findall(FOREIGN, source)
    if here != "bench":  # which compares with it
        yield from (
            f"line {line}: imports transformers" for line, name in imports(tree) if name == "transformers"
        )


def generators(here: str, source: str, tree: ast.AST) -> Iterator[str]:
    yield from (f"line {line}: imports random" for line, name in imports(tree) if name == "random")
    for line, name, _ in calls(tree):
        numpy_state = re.match(r"(np|numpy)\.random\.", name) and name not in STATELESS
        if numpy_state or re.fullmatch(r"torch\.(\w+\.)?(Generator|manual_seed(_all)?|seed)", name):
            yield f"line {line}: {name}"


def code_in_data(here: str, source: str, tree: ast.AST) -> Iterator[str]:
    """No call that could execute the content of a file."""
    for line, name in imports(tree):
        if name in PICKLES:
            yield f"line {line}: imports {name}"
    for line, name, call in calls(tree):
        keywords = {k.arg: getattr(k.value, "value", None) for k in call.keywords}
        if (
            name == "torch.load"
            and here == "interop"
            and keywords.get("weights_only") is True
            and CONFINED in source
        ):
            continue
        unsafe = {
            k.arg for k in call.keywords if not (isinstance(k.value, ast.Constant) and not k.value.value)
        }
        if name in {"eval", "exec", "torch.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}:
            yield f"line {line}: {name}"
        if unsafe & {"allow_pickle", "trust_remote_code"}:
            yield f"line {line}: {name} with {unsafe}"


def network(here: str, source: str, tree: ast.AST) -> Iterator[str]:
    yield from (f"line {line}: imports {name}" for line, name in imports(tree) if name in NETWORK)


def default_device(here: str, source: str, tree: ast.AST) -> Iterator[str]:
    """Tensors of a forward pass name their device; modules are created on the default device of the program,
    as torch's own."""
    made = {
        id(node)
        for function in ast.walk(tree)
        if (isinstance(function, ast.FunctionDef) and function.name == "__init__")
        or (isinstance(function, ast.Call) and dotted(function.func).startswith("nn."))
        for node in ast.walk(function)
    }
    for line, name, call in calls(tree):
        keywords = {k.arg for k in call.keywords}
        in_a_pass = here in ("model", "inference") and id(call) not in made
        if in_a_pass and name in CONSTRUCTORS and "device" not in keywords:
            yield f"line {line}: {name}"


# Rule, the file or folder that alone may break it, and a line that breaks it: no rule can fall asleep.
RULES: dict[str, tuple[Rule, str | None, str]] = {
    "imports point downwards": (upward_imports, None, "from albertine.corpus.reader import Corpus"),
    "only the backends know kernels": (
        kernels,
        "model/backend/",
        "F.scaled_dot_product_attention(q, k, v)",
    ),
    "backends have one door": (
        back_door,
        "model/backend/",
        "from albertine.model.backend.onednn import Inference",
    ),
    "only interop knows foreign names": (foreign_names, None, "name = 'sop_classifier.weight'"),
    "only randomness.py makes generators": (generators, "core/randomness.py", "np.random.default_rng(0)"),
    "no code in data": (
        code_in_data,
        None,
        "np.load(path, allow_pickle=True)\ntorch.load(p, weights_only=True)",
    ),
    "only the hub is reached over the network": (network, "interop/hub", "import urllib.request"),
    "a pass names its device": (default_device, "model/init.py", "places = torch.arange(3)"),
}


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str) -> None:
    rule, owner, broken = RULES[name]
    assert list(rule("model", broken, ast.parse(broken))), "the rule no longer sees what it forbids"
    problems = []
    for path in FILES:
        relative = path.relative_to(PACKAGE).as_posix()
        if owner is None or not relative.startswith(owner):
            source = path.read_text(encoding="utf-8")
            problems += [f"{relative}: {found}" for found in rule(room(path), source, ast.parse(source))]
    assert not problems, "\n".join(problems)


def test_every_room_is_known() -> None:
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert folders <= set(ROOMS)
    assert {room(path) for path in FILES} <= {"", "ground", *ROOMS}
    assert {p.stem for p in FILES if room(p) == "ground"} == GROUND


def circle(trees: Mapping[str, ast.AST]) -> list[str]:
    """Modules that import each other in a circle, for types and inside functions too; none: an empty list."""
    above: dict[str, set[str]] = {}
    for name, tree in trees.items():
        below = {module for _, module in imports(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                below |= {f"{node.module}.{alias.name}" for alias in node.names}
        above[name] = (below & set(trees)) - {name}
    try:
        graphlib.TopologicalSorter(above).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    one, other = ast.parse("def f():\n    from a.c import g"), ast.parse("from a import b")
    assert circle({"a.b": one, "a.c": other}) and not circle({"a.b": one, "a.c": ast.parse("import os")})
    named = {".".join(("albertine", *p.relative_to(PACKAGE).with_suffix("").parts)): p for p in FILES}
    trees = {name: ast.parse(p.read_text(encoding="utf-8")) for name, p in named.items()}
    assert circle(trees) == []


def tracked_files() -> list[Path]:
    """What git tracks, or every file of the source folders where this is no git checkout."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        paths = [ROOT / name for name in listed.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        folders = (ROOT / name for name in ("src", "tests", "docs", "recipes", "benchmarks"))
        paths = [path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return [path for path in paths if path.is_file()]


MACHINE = (
    re.compile(r"(?<![\w.])/(?:home|root|work|farm|Users)/\w"),
    re.compile(r"pypi\.org|pythonhosted|(?:extra-)?index-url|find-links|https?://[^\s)>\"]*/simple\b"),
)


def test_no_machine_paths_or_registry_hosts() -> None:
    assert MACHINE[0].search("see /home/" + "me") and MACHINE[1].search("--index-" + "url x")
    problems = []
    for path in tracked_files():
        if path.suffix in (".xz", ".png", ".gz", ".safetensors") or path == Path(__file__).resolve():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for pattern in MACHINE:
            problems += [f"{path.relative_to(ROOT)}: {hit.group()}" for hit in pattern.finditer(text)]
    assert not problems, "\n".join(problems)


def test_no_large_file_is_tracked() -> None:
    def most(path: Path) -> int:
        weights = path.name == "model.safetensors" and path.parents[1] == PACKAGE / "released"
        return 20_000_000 if weights else 2_000_000

    large = [
        f"{p.relative_to(ROOT)}: {p.stat().st_size:,}" for p in tracked_files() if p.stat().st_size > most(p)
    ]
    assert not large, "\n".join(large)
