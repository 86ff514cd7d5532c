"""Metadata of a model card that a person states: licence, languages, power; and the emissions from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from albertine.errors import SettingsError
from albertine.evaluation.run_facts import Facts

_LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")


@dataclass(frozen=True)
class CardMetadata:
    """Stated metadata of a model; None is not stated.

    Attributes:
        licence: by its name on the Hub, such as apache-2.0. languages: codes, such as en.
        watts: power during training. grid: grams of CO2 equivalent per kilowatt-hour.
        base: base model or models, by their names on the Hub.
    """

    licence: str | None = None
    languages: tuple[str, ...] | None = None
    watts: float | None = None
    grid: float | None = None
    base: str | list[str] | None = None

    def merged_with(self, before: Mapping[str, Any]) -> CardMetadata:
        """These metadata, completed by those of an earlier card.

        Raises:
            SettingsError: an invalid name of a licence, or a power or an intensity that is not a number above
                zero.
        """
        known = {name: before.get(name) for name in self.__dataclass_fields__}
        merged = {
            name: getattr(self, name) if getattr(self, name) is not None else x for name, x in known.items()
        }
        if merged["languages"] is not None:
            merged["languages"] = tuple(merged["languages"])
        result = CardMetadata(**merged)
        named = result.licence is not None
        if named and not (isinstance(result.licence, str) and _LICENCE.fullmatch(result.licence)):
            raise SettingsError(
                f"`{result.licence}` is no name of a licence",
                remedy="Write it as the Hub does: apache-2.0, mit, cc-by-sa-4.0, other",
            )
        for name in ("watts", "grid"):
            value = getattr(result, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise SettingsError(f"{name} is {value!r:.40}; it must be a number above zero")
            if value is not None and not value > 0:
                raise SettingsError(f"{name} is {value:g}; it must be above zero")
        return result

    def as_dict(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in self.__dataclass_fields__ if getattr(self, name) is not None
        }


def licence(metadata: CardMetadata) -> str:
    if metadata.licence is None:
        return (
            "Unknown: no licence is stated, and without one the model may not be used. `albertine card "
            "FOLDER --licence apache-2.0` states it."
        )
    return f"{metadata.licence}, as stated by the author of this card. The training texts keep their own."


def amount(number: float) -> str:
    """Two decimals, or two significant digits below 0.1."""
    return f"{number:,.2f}" if number >= 0.1 else f"{number:.2g}"


def _hours(facts: Facts) -> float | None:
    return facts.seconds / 3600 if facts.seconds else None


def carbon(facts: Facts, metadata: CardMetadata) -> str:
    hours = _hours(facts)
    if hours is None:
        return "Unknown: no record of a run has its duration."
    if metadata.watts is None:
        return f"Unknown: the run took {amount(hours)} hours, and the power of its machine is not stated."
    used = hours * metadata.watts / 1000
    energy = f"{amount(hours)} hours (record of the run) x {metadata.watts:g} W (stated) = {used:.3g} kWh"
    if metadata.grid is None:
        return f"{energy}. The carbon intensity of the grid is not stated, so the emissions are unknown."
    given_off = used * metadata.grid / 1000
    whose = "this run and of the one that it branches from, up to there" if facts.branch else "this run alone"
    return f"{energy}; x {metadata.grid:g} g CO2e/kWh (stated) = {given_off:.3g} kg CO2e. Of {whose}."


def emissions(facts: Facts, metadata: CardMetadata) -> dict[str, Any] | None:
    hours = _hours(facts)
    if hours is None or metadata.watts is None or metadata.grid is None:
        return None
    machine = facts.environment
    hardware = machine.get("cpu") if machine.get("device") == "cpu" else machine.get("device")
    return {
        "emissions": round(hours * metadata.watts / 1000 * metadata.grid, 3),
        "source": "hours of the run x stated watts x stated intensity of the grid",
        "training_type": "fine-tuning" if "task" in facts.settings else "pre-training",
        **({"hardware_used": str(hardware)} if hardware else {}),
    }
