"""What of a card only a person can tell: licence, languages, power; and what is worked out of that."""

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
    """What a person says of a model; None is not said.

    Attributes:
        licence: as the Hub names licences, such as apache-2.0. languages: codes, such as en.
        watts: drawn while it was trained. grid: grams of CO2 equivalent a kilowatt-hour.
        base: of the Hub, what it was made from, or several.
    """

    licence: str | None = None
    languages: tuple[str, ...] | None = None
    watts: float | None = None
    grid: float | None = None
    base: str | list[str] | None = None

    def over(self, before: Mapping[str, Any]) -> CardMetadata:
        """With what was said when the card was last written, where it is not said anew.

        Raises:
            SettingsError: a licence that is no name of one, a power or an intensity that is no number
                above zero.
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


def licence(said: CardMetadata) -> str:
    if said.licence is None:
        return (
            "Unknown: nobody stated one, and without one nobody may use the model. `albertine card FOLDER "
            "--licence apache-2.0` states it."
        )
    return f"{said.licence}, as stated by who wrote this card. The texts it was trained on keep their own."


def amount(number: float) -> str:
    """Two decimals, or two digits of what is below a tenth."""
    return f"{number:,.2f}" if number >= 0.1 else f"{number:.2g}"


def _hours(facts: Facts) -> float | None:
    return facts.seconds / 3600 if facts.seconds else None


def carbon(facts: Facts, said: CardMetadata) -> str:
    hours = _hours(facts)
    if hours is None:
        return "Not told: no record of a run says how long it took."
    if said.watts is None:
        return f"Not told: the run took {amount(hours)} hours, and nobody stated the power its machine drew."
    used = hours * said.watts / 1000
    energy = f"{amount(hours)} hours (record of the run) x {said.watts:g} W (stated) = {used:.3g} kWh"
    if said.grid is None:
        return f"{energy}. Of the grid nothing was stated, so what that gave off is not told."
    given_off = used * said.grid / 1000
    whose = "this run and of the one that it branches from, up to there" if facts.branch else "this run alone"
    return f"{energy}; x {said.grid:g} g CO2e/kWh (stated) = {given_off:.3g} kg CO2e. Of {whose}."


def emissions(facts: Facts, said: CardMetadata) -> dict[str, Any] | None:
    hours = _hours(facts)
    if hours is None or said.watts is None or said.grid is None:
        return None
    machine = facts.environment
    hardware = machine.get("cpu") if machine.get("device") == "cpu" else machine.get("device")
    return {
        "emissions": round(hours * said.watts / 1000 * said.grid, 3),
        "source": "hours of the run x stated watts x stated intensity of the grid",
        "training_type": "fine-tuning" if "task" in facts.settings else "pre-training",
        **({"hardware_used": str(hardware)} if hardware else {}),
    }
