from __future__ import annotations

import dataclasses

import pytest

from autopipe.api.found import Found
from autopipe.search.settings import Settings
from tests.fakes import findings
from tests.fakes.facts import DESCRIBED
from tests.fakes.profiles import hardware


def test_the_storages_password_is_not_kept_in_the_profile() -> None:
    result = findings.result()
    found = Found(result=result, described=DESCRIBED, hardware=hardware(), settings=Settings(storage="memory://"))
    assert result.best_config is not None
    for url, kept in {
        "sqlite:////studies/a.db": "sqlite:////studies/a.db",
        "postgresql://me:secret@host:5432/studies": "postgresql://me@host:5432/studies",
    }.items():
        profile = dataclasses.replace(found, settings=Settings(storage=url)).profile(result.best_config)
        assert profile is not None
        assert profile.study_url == kept


@pytest.mark.parametrize("proved", [True, False])
def test_the_winners_rate_is_the_one_that_the_search_tells(proved: bool) -> None:
    result = dataclasses.replace(findings.result(), proved=proved)
    assert findings.profile(result).measurement.images_per_second == result.estimate
