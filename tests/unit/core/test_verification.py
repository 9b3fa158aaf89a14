from __future__ import annotations

from autopipe.core.verification import Agreement, Verification


def test_a_verification_survives_json() -> None:
    found = Verification(agreements=(Agreement(config={}, digest="ab", samples=8, largest_difference=0.002),))
    assert Verification.model_validate_json(found.model_dump_json()) == found
