"""The edits of ``edgekit calibrate merge`` as the command line says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.errors import UsageError

__all__ = ["ranges", "renames"]


def ranges(options: Sequence[str]) -> dict[str, float]:
    """Parses NAME=AMAX; a name may hold the sign itself."""
    found = {}
    for option in options:
        name, _, text = option.rpartition("=")
        try:
            found[name] = float(text)
        except ValueError:
            name = ""
        if not name:
            raise UsageError(
                f"--set {option!r} is not NAME=AMAX", code="cache.set", hint="--set conv1_out=6.5"
            )
    return found


def renames(options: Sequence[str], scales: Mapping[str, float]) -> dict[str, str]:
    """Parses OLD=NEW; where names hold the sign, OLD is what the cache has."""
    found = {}
    for option in options:
        cuts = [place for place, sign in enumerate(option) if sign == "="]
        fits = [place for place in cuts if option[:place] in scales] or cuts[:1]
        if len(fits) != 1 or not option[: fits[0]] or not option[fits[0] + 1 :]:
            raise UsageError(
                f"--rename {option!r} is not OLD=NEW"
                + (": it can be read in several ways" if len(fits) > 1 else ""),
                code="cache.rename",
                hint="--rename 'input:0=input'",
            )
        found[option[: fits[0]]] = option[fits[0] + 1 :]
    return found
