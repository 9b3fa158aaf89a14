from __future__ import annotations

import pytest

from autopipe.api import verifying
from autopipe.core.description import Description, WrappedDataset
from autopipe.errors import ConfigError


def test_a_wrapped_dataset_has_nothing_to_be_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    described = Description(
        samples=12,
        batch_size=4,
        data_bytes=1,
        compact_bytes=1,
        finished_bytes=1,
        backend="tensorflow",
        devices=1,
        mean_bytes=1.0,
        data_digest="d",
        ops_digest="o",
        model_digest="m",
        wrapped=WrappedDataset(as_it_is={}, choices={"calls": (1, 2)}),
    )
    monkeypatch.setattr(verifying, "description", lambda runner: described)
    with pytest.raises(ConfigError, match="nothing to compare"):
        verifying.verify(None, space="default", samples=1)  # type: ignore[arg-type]  # no trial is run
