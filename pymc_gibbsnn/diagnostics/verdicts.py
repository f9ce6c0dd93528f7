"""How a verdict on a chain is put into a sentence, with the numbers and bounds on which it rests."""

from __future__ import annotations

import numpy as np
import xarray as xr

from pymc_gibbsnn.diagnostics.convergence import LEAST_ESS, MARGIN

__all__ = ["in_words"]


def in_words(judgement: xr.Dataset) -> str:
    """Say what :func:`~pymc_gibbsnn.thermalisation` has found, in one sentence for each uninformed chain."""
    lines = [_sentence(str(start), judgement.sel(start=start), judgement.attrs) for start in judgement["start"].values]
    if np.isfinite(judgement.get("rhat_time_uninformed", np.nan)) and "not thermalised" in judgement["verdict"]:
        lines.append("R-hat of the uninformed chains among themselves has come close to 1 all the same.")
    return "\n".join(lines)


def _sentence(start: str, this: xr.Dataset, attrs: dict) -> str:
    """Say what the verdict on one chain is and on which numbers and bounds it rests."""
    verdict, part = str(this["verdict"].item()), str(this["part"].item())
    difference, half, bound = (float(this[name]) for name in ("difference", "half_width", "bound"))
    side = "above" if difference > 0 else "below"
    lies = (
        f"over the {part} of the run the mean of its test function lies {_plain(abs(difference))} standard deviations "
        f"{side} that of the informed chain"
    )
    interval = f"the 99% interval of the difference, {_plain(difference - half)} to {_plain(difference + half)}"
    band = f"{-MARGIN:g} to {MARGIN:g}"
    if verdict == "thermalised":
        time = this["merge_time"].item()
        since = f"from sweep {time:,.0f} on" if time else "from the first sweep on"
        return f"{start}: thermalised {since}; {lies}, and {interval}, lies within {band}."
    if verdict == "not thermalised":
        return f"{start}: not thermalised; {lies}, where chains in equilibrium differ by at most {_plain(bound)}."
    if attrs["ess"] < LEAST_ESS:
        why = (
            f"the second half of the informed chain is worth {attrs['ess']:.0f} independent draws, and a verdict takes "
            f"{LEAST_ESS}"
        )
    elif abs(difference) + half < MARGIN:
        why = f"{interval}, lies within {band}, but the chain is outside the band of equilibrium in its last block"
    else:
        why = f"{lies}, no more than the {_plain(bound)} of chains in equilibrium, but {interval}, is not within {band}"
    return f"{start}: undecided; {why}. Run longer."


def _plain(x: float) -> str:
    """Write a number with as many digits as a reader needs: 0.12, 3.4 or 1,200."""
    digits = 2 if abs(x) < 1 else 1 if abs(x) < 10 else 0
    return f"{x:,.{digits}f}"
