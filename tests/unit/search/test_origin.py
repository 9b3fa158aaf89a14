from __future__ import annotations

import pytest

from autopipe.search.trials import AskedBy, Asker


@pytest.mark.parametrize(
    ("origin", "word"),
    [
        (AskedBy(Asker.BASELINE, "tf.data AUTOTUNE, 2 devices"), "baseline:tf.data AUTOTUNE, 2 devices"),
        (AskedBy(Asker.KNOWN), "known"),
        (AskedBy(Asker.SEED, "predicted"), "seed:predicted"),
        (AskedBy(Asker.ADVICE), "advice"),
        (AskedBy(Asker.SAMPLER, "tpe:x"), "tpe:x"),
        (AskedBy(Asker.AGAIN, "ceiling"), "again:ceiling"),
        (AskedBy(Asker.PROOF, "3"), "proof:3"),
    ],
)
def test_a_study_holds_a_word_that_is_read_back(origin: AskedBy, word: str) -> None:
    assert str(origin) == word
    assert AskedBy.parse(word) == origin


def test_only_trials_of_a_proof_have_a_block() -> None:
    assert [AskedBy.parse(word).block for word in ("proof:0", "proof:12", "surrogate", "")] == [0, 12, None, None]
