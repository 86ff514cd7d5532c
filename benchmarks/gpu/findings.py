"""What a part found, kept on disk as it goes, so that a part that is ended loses nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from albertine.core.files import replace_durably


class Findings:
    """
    Attributes:
        values: what was found, by name. wrong: what was found and must not be.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.wrong: list[str] = []

    def note(self, name: str, value: Any) -> None:
        self.values[name] = value
        print(f"  {name}: {json.dumps(value)}", flush=True)
        self.write()

    def bounded(self, name: str, value: float, bound: float) -> None:
        """A number that may be at most `bound`; one that is none is wrong as well."""
        self.note(name, value)
        self.demand(math.isfinite(value) and value <= bound, f"{name} is {value:.3g}, the bound is {bound:g}")

    def demand(self, fulfilled: bool, otherwise: str) -> None:
        if not fulfilled:
            self.wrong.append(otherwise)
            print(f"  WRONG: {otherwise}", flush=True)
            self.write()

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {**self.values, **({"wrong": self.wrong} if self.wrong else {})}

    def write(self) -> None:
        if self.path is not None:
            replace_durably(self.path, json.dumps(self.as_dict(), indent=2).encode())
