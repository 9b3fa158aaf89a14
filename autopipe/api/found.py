"""The result of a search on this machine, and the profile that the artefact keeps of it."""

from __future__ import annotations

import dataclasses
import datetime

from autopipe.api import asking
from autopipe.api.search_facts import workload_digest
from autopipe.core.config import PipelineConfig
from autopipe.core.facts import Description
from autopipe.core.outcome import Measurement
from autopipe.core.value import Estimate
from autopipe.reports import gathering
from autopipe.search import storage
from autopipe.search.result import SearchResult
from autopipe.search.settings import Settings
from autopipe.tuned.findings import Asked
from autopipe.tuned.schema import Baseline, Figures, Hardware, Limit, Profile, Tried

_TRIED_KEPT = 8  # other configurations that the artefact keeps, as evidence for machines that were never tuned on


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a search on this machine."""

    result: SearchResult
    described: Description
    hardware: Hardware
    settings: Settings
    retune: bool = False

    def profile(self, config: PipelineConfig) -> Profile | None:
        """Return this machine's profile with a measured configuration, or None if it failed."""
        measured = [(row, row.outcome) for row in self.result.trials if isinstance(row.outcome, Measurement)]
        own = [outcome for row, outcome in measured if row.key == config.key()]
        if not own:
            return None
        result, settings = self.result, self.settings
        ours = [(row, outcome) for row, outcome in measured if not row.config.loader.is_foreign]
        rates = {row.key: (row.config, outcome.images_per_second.value) for row, outcome in ours}
        best = sorted(rates.values(), key=lambda pair: -pair[1])[:_TRIED_KEPT]
        return Profile(
            hardware=self.hardware,
            workload=workload_digest(self.described),
            config=config.model_dump(mode="json"),
            key=config.key(),
            measurement=Figures.of(own[-1], self._rate(config)),
            baselines=tuple(
                Baseline(name=each.name, config=each.config.model_dump(mode="json"), images_per_second=each.estimate)
                for each in result.baselines
                if each.estimate
            ),
            ceiling=None if result.ceiling is None else Limit.of(result.ceiling),
            tried=tuple(Tried(config=each.model_dump(mode="json"), images_per_second=rate) for each, rate in best),
            study=result.study.study_name,
            request=asking.kept(settings, retune=self.retune),
            study_url=None if settings.storage is None else storage.without_password(settings.storage),
            findings=gathering.findings_of(
                result,
                config,
                asked=Asked(
                    command=settings.command,
                    seed=settings.seed,
                    space=settings.space,
                    budget_seconds=settings.budget_seconds,
                    epochs=result.epochs,
                    data=self.described.data_digest,
                ),
                simulated=settings.simulate,
                cache_bytes=self.described.fixed_bytes,
            ),
            measured_at=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
        )

    def _rate(self, config: PipelineConfig) -> Estimate | None:
        """Return the rate to show for a configuration; None for that of its last measurement."""
        result = self.result
        if result.best_config is not None and result.best_config.key() == config.key():
            return result.estimate
        if not result.proved:
            return None
        return next((each.estimate for each in result.baselines if each.config.key() == config.key()), None)
