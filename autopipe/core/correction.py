"""How far predictions were from what one study measured, and by what they are corrected. Pure arithmetic."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean

from autopipe.core import costs as cost_model
from autopipe.core.config import PipelineConfig
from autopipe.core.costs import Costs
from autopipe.core.facts import Ceiling

_LEAST_ERROR = 0.05
_FEW_PAIRS_ERROR = 0.15  # where too few were measured to tell
_FEW_PAIRS = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a study measured."""

    ceiling: Ceiling  # each part on its own
    batch_size: int  # samples a batch
    winner: PipelineConfig  # the configuration that was chosen
    pairs: Sequence[tuple[PipelineConfig, float]]  # configurations and their images/s, the winner's among them
    cache_bytes: int | None = None  # what a cache of all samples holds; None where that is not known
    memory_bytes: int | None = None  # of the machine; None where that is not known


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """By what predictions are multiplied to meet what was measured."""

    factors: Mapping[Hashable, float]  # for each way of feeding that was measured
    factor: float  # for any other: the winner's, which was proved
    error: float  # how far off predictions are after that, as a ratio

    def of(self, config: PipelineConfig) -> float:
        """Return the factor of a configuration."""
        return self.factors.get(_way(config), self.factor)


def _way(config: PipelineConfig) -> Hashable:
    return config.loader.kind, config.cache, config.storage, config.finish


def correction(measured: Measured) -> Correction:
    """Return how predictions are to be corrected, from what was measured beside them."""
    costs = Costs.of([measured.ceiling])
    logs: dict[Hashable, list[float]] = {}
    for config, rate in measured.pairs:
        if rate > 0:
            logs.setdefault(_way(config), []).append(math.log(rate / cost_model.predict(config, costs)))
    centres = {way: fmean(each) for way, each in logs.items()}
    off = [each - centres[way] for way, those in logs.items() if len(those) > 1 for each in those]
    error = math.expm1(math.sqrt(fmean([each**2 for each in off]))) if off else 0.0
    return Correction(
        factors={way: math.exp(centre) for way, centre in centres.items()},
        factor=math.exp(centres.get(_way(measured.winner), 0.0)),
        error=max(error, _LEAST_ERROR if len(off) >= _FEW_PAIRS else _FEW_PAIRS_ERROR),
    )
