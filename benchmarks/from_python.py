"""What `import albertine` takes, and `albertine.finetune` from a frame of 1,000 rows.

    python -m benchmarks.from_python --shared ../shared/data --save

The import is timed in processes of their own, beside those of torch and transformers. The frame holds
sentences of SST-2 with their classes; the released English model learns from them for one epoch and is
scored on 200 others, twice: the first call of a process also imports torch.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from albertine.bench.machine import describe, save_result

IMPORTED = ("albertine", "torch", "transformers")
ROWS, DEV = 1000, 200


def import_seconds(module: str, times: int) -> float:
    """The median over some processes, without the start of Python."""
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    found = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(times)
    ]
    return statistics.median(float(one.stdout) for one in found)


def frames(shared: Path) -> tuple[Any, Any]:
    """1,000 rows to learn from and 200 to be judged by, as pandas has them."""
    import pandas

    text = lzma.decompress((shared / "glue" / "SST-2" / "train.tsv.xz").read_bytes()).decode()
    rows = [line.split("\t") for line in text.splitlines()[1 : ROWS + DEV + 1]]
    frame = pandas.DataFrame(rows, columns=["text", "label"])
    return frame[:ROWS], frame[ROWS:]


def tuned(train: Any, dev: Any, folder: Path, name: str) -> dict[str, float]:
    """Seconds and accuracy of one epoch from the frame."""
    begin = time.perf_counter()
    import albertine
    from albertine.training.progress import Reporter

    result = albertine.finetune(
        "albertine-mini-en",
        name=name,
        output=folder,
        train=train,
        dev=dev,
        reporter=Reporter(quiet=True),
        training={"epochs": 1},
        watching={"evaluations": 1, "tensorboard": False},
    )
    return {"seconds": time.perf_counter() - begin, "accuracy": result.scores["accuracy"]}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args(words)
    imports = {module: import_seconds(module, 7) for module in IMPORTED}
    train, dev = frames(arguments.shared)
    with TemporaryDirectory() as place:
        first, again = (tuned(train, dev, Path(place), name) for name in ("first", "again"))
    result = {"import_seconds": imports, "rows": ROWS, "first_call": first, "second_call": again}
    print(json.dumps(result, indent=2))
    if arguments.save:
        print(f"written: {save_result('from-python', {'machine': describe(), **result})}")


if __name__ == "__main__":
    main()
