from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from autopipe.api import verifying
from autopipe.core.config import PipelineConfig
from autopipe.core.description import WrappedDataset
from autopipe.core.verification import Verification
from autopipe.loaders.wrapped import Wrapped
from tests.fakes.facts import DESCRIBED

AS_IT_IS = PipelineConfig(loader=Wrapped.model_validate({"calls": 1, "prefetch": 0}), finish="host", device_prefetch=0)


def test_of_a_wrapped_dataset_each_parameter_is_changed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = WrappedDataset(as_it_is=AS_IT_IS, choices={"calls": (1, 2), "prefetch": (0, 4)})
    described = DESCRIBED.model_copy(update={"wrapped": wrapped})
    asked: list[str] = []

    class Runner:
        def verify(self, configs: Sequence[PipelineConfig], options: dict[str, Any]) -> Verification:
            asked.extend(config.short().partition(") ")[0] + ")" for config in configs)
            return Verification(agreements=(), compared=False)

    monkeypatch.setattr(verifying, "description", lambda runner: described)
    verifying.verify(Runner(), space="default", samples=1)  # type: ignore[arg-type]  # no trial is run
    assert asked == [
        "wrapped(calls=1, prefetch=0)",
        "wrapped(calls=2, prefetch=0)",
        "wrapped(calls=1, prefetch=4)",
    ]
