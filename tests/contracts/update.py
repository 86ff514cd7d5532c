"""Rewrite the stored contract on purpose: `python -m tests.contracts.update [PART...]`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in the tests
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def main(parts: list[str]) -> None:
    from tests.contracts.parts import ALONE, OF_PRODUCTS
    from tests.contracts.products import make
    from tests.contracts.snapshots import differences, plain, store, stored

    if unknown := set(parts) - {*ALONE, *OF_PRODUCTS}:
        raise SystemExit(
            f"there is no part {', '.join(unknown)}; there are {', '.join([*ALONE, *OF_PRODUCTS])}"
        )
    found = {part: collect() for part, collect in ALONE.items() if not parts or part in parts}
    if not parts or set(parts) & OF_PRODUCTS.keys():
        with tempfile.TemporaryDirectory() as folder:
            products = make(Path(folder))
            for part, collect in OF_PRODUCTS.items():
                if not parts or part in parts:
                    found[part] = collect(products)
    for part, contract in found.items():
        try:
            changed = list(differences(stored(part), plain(contract)))
        except FileNotFoundError:
            changed = ["new"]
        store(part, contract)
        print(f"{part}: {len(changed)} differences", *changed[:20], sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
