"""The examinations behind `albertine doctor`."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from albertine import __version__
from albertine.cli.show import size
from albertine.core.files import is_run_checkpoint, resolve_folder
from albertine.core.processors import usable_cores
from albertine.corpus.manifest import SPLITS
from albertine.corpus.reader import Corpus
from albertine.errors import ModelError
from albertine.interop.model_names import resolve_model
from albertine.text.documents import Document
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import check_tokenizer, has_vocabulary, load_tokenizer

_LIBRARIES = ("numpy", "safetensors", "tokenizers", "sentencepiece", "pydantic", "typer", "rich")
_OPTIONAL = {
    "torch": "torch",
    "onnxruntime": "onnx",
    "openvino": "openvino",
    "matplotlib": "plots",
    "tensorboard": "track",
    "jieba": "zh",
    "pyarrow": "data",
    "zstandard": "data",
    "huggingface_hub": "hub",
    "onnx": "export",
    "transformers": "dev",
}

MEASURED_CHARACTERS = 2_000_000


def machine() -> dict[str, str]:
    """Versions and resources, each as a name and a sentence."""
    facts = {"albertine": __version__, "python": platform.python_version()}
    facts |= {name: metadata.version(name) for name in _LIBRARIES}
    for name, extra in _OPTIONAL.items():
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            facts[name] = f"not installed; pip install 'albertine[{extra}]' brings it"
    facts["processor"] = f"{platform.machine()}, {usable_cores()} cores for this process"
    facts |= _of_torch() if find_spec("torch") is not None else {}
    total, available = _memory()
    facts["memory"] = f"{size(total)}, {size(available)} free" if total else "unknown"
    disk = shutil.disk_usage(Path.cwd())
    facts["disk here"] = f"{size(disk.total)}, {size(disk.free)} free"
    return facts


def _of_torch() -> dict[str, str]:
    """What it computes with."""
    import torch

    from albertine.core.devices import fast_bfloat16
    from albertine.model.backend import choices

    cpu, gpu = torch.device("cpu"), torch.cuda.is_available()
    facts = {"torch threads": str(torch.get_num_threads())}
    facts["bfloat16 on the processor"] = (
        "in hardware" if fast_bfloat16(cpu) else "emulated, slow; auto takes float32"
    )
    for choice in choices():
        gain = f", {choice.plain / choice.seconds:.1f} times as fast as without" if choice.seconds else ""
        half = choice.kind in ("attention", "training")
        what = f"{choice.kind} in bfloat16" if half else f"products in {choice.kind}"
        sizes = ", ".join(f"{inputs} to {outputs}" for inputs, outputs in choice.refused)
        left = f"; it gains nothing for products of {sizes} numbers, which stay as they are" if sizes else ""
        facts[what] = f"{choice.form} ({choice.kernel}){gain}{left}"
    facts["accelerator"] = torch.cuda.get_device_name() if gpu else "none"
    if gpu:
        facts["bfloat16 on the accelerator"] = (
            "in hardware" if fast_bfloat16(torch.device("cuda")) else "emulated, slow"
        )
    return facts


def _memory() -> tuple[int, int]:
    """Total and available bytes, the limit of a container included; zeros where they are unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0, 0
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    total, available = kilobytes["MemTotal"] * 1024, kilobytes.get("MemAvailable", 0) * 1024
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return total, available
    return min(total, limit), min(available, max(0, limit - used))


def check_folder(folder: Path, *, full: bool) -> str:
    """Check a folder; one sentence that describes it.

    Args:
        full: also read every byte and compare hashes; of a model the numbers of its task's head and the
            vocabulary, where it has them.

    Raises:
        AlbertineError: what is wrong with it.
    """
    from albertine.interop.exported_folder import is_exported
    from albertine.interop.model_files import checkpoint_in
    from albertine.interop.weights import refuse_adapter

    folder = resolve_model(folder)
    if is_run_checkpoint(folder):
        return f"a checkpoint of a run; {_check_model(folder, full)}"
    if is_exported(folder):
        return _check_exported(folder)
    if (folder / "config.json").is_file() or checkpoint_in(folder) is not None:
        return _check_model(folder, full)
    if any((folder / name).is_file() for name in ("manifest.json", "prepare.json")):
        return _check_corpus(folder, full)
    if (folder / "settings.yaml").is_file() or (folder / "checkpoints").is_dir():
        return _check_run(folder, full)
    refuse_adapter(folder)
    raise ModelError(
        "holds no model, corpus or run", where=folder, remedy="Name a folder that Albertine wrote"
    )


def _check_exported(folder: Path) -> str:
    """Open each graph whose runtime is installed."""
    from albertine.inference.exported_model import ExportedModel
    from albertine.interop.exported_folder import graphs_in
    from albertine.interop.runtimes import MODULES

    opened, left = [], []
    for graph in graphs_in(folder):
        name = f"{graph.runtime} {graph.precision}"
        if find_spec(MODULES[graph.runtime]) is None:
            left.append(f"; {name} was not opened, as {MODULES[graph.runtime]} is not installed")
            continue
        model = ExportedModel(folder, graph.precision, runtime=graph.runtime)  # type: ignore[arg-type]
        opened.append(name)
        check_tokenizer(model.config, load_tokenizer(folder), folder)
    return f"an exported model, whose graphs open ({', '.join(opened) or 'none'}){''.join(left)}"


def _check_corpus(folder: Path, full: bool) -> str:
    corpus, _ = (Corpus(folder, split) for split in SPLITS)  # each looks at the files of its own
    if full:
        corpus.verify(full=True)
    corpus.tokenizer()
    how = "every byte as in the manifest" if full else "all files there with the right size and edges"
    return f"a corpus of {corpus.manifest.tokens:,} tokens, {how}"


def _check_run(folder: Path, full: bool) -> str:
    from albertine.training.checkpoints import CheckpointStore, read

    store = CheckpointStore(folder / "checkpoints")
    steps = store.steps()
    for step in steps:
        read(store.path(step))  # every byte, as any reader of a checkpoint does
    newest = f", the newest of step {steps[-1]:,}" if steps else ""
    summary = f"a run with {len(steps)} whole checkpoints{newest}"
    models = [name for name in ("best", "final") if resolve_folder(folder / name).is_dir()]
    return "; ".join([summary, *(f"{name}: {_check_model(folder / name, full)}" for name in models)])


def _check_model(folder: Path, full: bool) -> str:
    from albertine.interop.head_checks import outdated_head
    from albertine.interop.huggingface.folders import read_folder
    from albertine.interop.weights import read_json

    folder = resolve_folder(folder)
    found = read_folder(folder)  # which refuses numbers of the model itself that are not finite
    summary = f"a model with {sum(p.numel() for p in found.model.parameters()):,} parameters"
    file = folder / "config.json"
    why = outdated_head(read_json(file), found) if file.is_file() else ""
    after = (
        f"; written by an earlier version so that transformers may load its head with other answers ({why}): "
        "`albertine convert FOLDER NEW-FOLDER` writes it anew"
        if why
        else ""
    )
    if not full:
        return f"{summary}, all tensors there{after}"
    if odd := [name for name, x in found.extra.items() if not bool(x.isfinite().all())]:
        raise ModelError(
            f"{odd[0]} holds values that are not finite",
            where=folder,
            remedy="The training that made it diverged; take an earlier checkpoint",
        )
    if has_vocabulary(folder):
        check_tokenizer(found.encoder, load_tokenizer(folder), folder)
        summary += " and a vocabulary that fits"
    return f"{summary}, every number finite{after}"


def fit_of(tokenizer: Tokenizer, documents: Iterable[Document]) -> dict[str, object]:
    """How a vocabulary fits a text: characters a token and the share of unknown tokens, at its start."""
    characters = tokens = unknown = 0
    for document in documents:
        for paragraph in document.paragraphs:
            ids = tokenizer.encode(paragraph)
            characters, tokens = characters + len(paragraph), tokens + len(ids)
            unknown += ids.count(tokenizer.unk_id)
        if characters >= MEASURED_CHARACTERS:
            break
    return {
        "measured on": f"{characters:,} characters",
        "characters a token": f"{characters / max(tokens, 1):.2f}",
        "unknown tokens": f"{unknown / max(tokens, 1):.3%}",
    }
