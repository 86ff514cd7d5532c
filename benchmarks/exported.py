"""What exports cost, what other programs compute with them, and inference without torch, as parts of
docs/results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.markdown import Result, newest, table


def exported(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "exports")) is None:
        return
    yield f"## Exports\n\n`python -m benchmarks.exports --save`, {found['date']}, {found['threads']} "
    yield "threads: the same weights and tokens, all programs in turns, the last hidden states from "
    yield f"all. Ratios are medians of those of {found['rounds']} rounds; the least cosine is that of a "
    yield "token's vector with our float32. Plain dynamic quantisation is the model of transformers through "
    yield "`torch.onnx` and `quantize_dynamic`.\n"
    for name, model in found["models"].items():
        yield f"\n### {name}\n\nWeights {model['weights'] / 1e6:.1f} MB.\n\n"
        yield _files(model)
        for shape, measured in model["shapes"].items():
            yield f"\n{shape}: {measured['sequences']} of at most {measured['longest']} tokens, "
            yield f"{measured['fill']:.0%} of the padded batch real"
            yield ".\n\n" if measured["quiet"] else "; the machine was BUSY, compare nothing.\n\n"
            yield _runs(measured)


def missing_torch_error(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "torch-free")) is None:
        return
    sizes, seconds = found["megabytes"], found["seconds_to_first_answer"]
    yield f"## Inference without torch\n\n`python -m benchmarks.torch_free --save`, {found['date']}: an "
    yield f"environment with `albertine[onnx]` alone has {sizes['without caches']:.0f} MB of packages, "
    yield f"{sizes['with caches']:.0f} with their bytecode (without pip). A new process has its first answer "
    yield f"after {seconds['no torch']:.2f} s, with torch after {seconds['torch']:.2f} s. Greatest "
    yield "difference of what both answer:\n\n"
    rows = [[name, f"{value:.0e}"] for name, value in found["greatest_difference"].items()]
    yield table(["head", "difference"], rows)
    if "packages" in sizes:
        yield from _packages(sizes)


def foreign(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "foreign-runtimes")) is None:
        return
    yield f"## Exports in other programs\n\n`python -m benchmarks.foreign_runtimes --save`, {found['date']}: "
    yield "small random models, exported, and the greatest difference of what the program computes of five "
    used = ", ".join(f"{name.partition('.')[0]} {one}" for name, one in found["versions"].items())
    yield f"texts from what Albertine does. llama.cpp tokenizes the texts itself. Used: {used}. "
    yield f"{found['note']}\n\n"
    words = {None: "", True: "the same", False: "OTHERS"}
    rows = [
        [one["runtime"], one["model"], one["answers"], f"{one['difference']:.0e}", words[one["same_tokens"]]]
        for one in found["compared"]
    ]
    yield table(["program", "encoder", "answers", "difference", "tokens"], rows)


def _packages(sizes: Result) -> Iterator[str]:
    idle = set(sizes["never imported"])
    parts = {name: part for name, part in sizes["packages"].items() if sum(part) >= 1}
    parts["others"] = [
        sum(x) for x in zip(*(sizes["packages"][n] for n in sizes["packages"].keys() - parts), strict=True)
    ]
    megabytes = sum(sum(part) for name, part in sizes["packages"].items() if name in idle)
    yield f"\nWhat these MB are. A process imports {megabytes:.0f} of them never up to its first answer from "
    yield "Python: what others ask pip for, `tokenizers` for the hub and its client, typer for rich.\n\n"
    rows = [
        [name, f"{files:.1f}", f"{bytecode:.1f}", "" if name not in idle else "no"]
        for name, (files, bytecode) in parts.items()
    ]
    yield table(["package", "unpacked", "bytecode", "imported"], rows)


def _files(model: Result) -> str:
    rows = []
    for name, record in model["files"].items():
        share = f"{record['quantised']} of {record['products']}" if "products" in record else ""
        share += ", refused" if "refused" in record else ""
        rows.append([name, f"{record['bytes'] / 1e6:.1f}", share])
    return table(["file", "MB", "products in int8"], rows)


def _runs(measured: Result) -> str:
    rows = [
        [way, f"{row['median_ms']:,.1f}", f"{row['least_cosine']:.4f}"]
        for way, row in sorted(measured["runs"].items(), key=lambda item: -item[1]["median_ms"])
    ]
    ratios = [[pair, f"{ratio:.2f}"] for pair, ratio in measured["ratios"].items()]
    both = table(["", "ms", "least cosine"], rows)
    return both + ("\n" + table(["ratio", "times faster"], ratios) if ratios else "")
