from __future__ import annotations

import pytest

from autopipe.core.config import PipelineConfig
from autopipe.errors import ConfigError
from autopipe.loaders.foreign import Foreign
from autopipe.loaders.threads import Threads
from autopipe.search import feasible
from tests.fakes.facts import facts


def test_it_says_whose_code_it_is() -> None:
    assert Foreign(code="keras").whose == "plain code: autopipe eject --to keras"
    assert Foreign(code="bench.py:make").whose == "yours: bench.py:make"
    assert Threads(workers=2).whose == "autopipe's loader threads"


def test_it_is_compared_with_and_never_opened_nor_chosen() -> None:
    with pytest.raises(ConfigError, match="somebody else's code"):
        Foreign(code="keras").open(None)  # type: ignore[arg-type]  # it does not come to that
    config = PipelineConfig(loader=Foreign(code="keras"))
    why = feasible.why_not(config, facts())
    assert why is not None
    assert why.rule is feasible.Rule.FOREIGN
