from __future__ import annotations

from autopipe.core.config import PipelineConfig
from autopipe.core.verification import Agreement, Verification
from autopipe.loaders.threads import Threads


def test_a_verification_survives_json() -> None:
    config = PipelineConfig(loader=Threads(workers=2))
    found = Verification(agreements=(Agreement(config=config, digest="ab", samples=8, largest_difference=0.002),))
    assert Verification.model_validate_json(found.model_dump_json()) == found
