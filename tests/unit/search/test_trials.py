from __future__ import annotations

import pytest

from autopipe.measure.facts import Limits
from autopipe.measure.outcome import ConversionCost, Measurement, Resources
from autopipe.search import trials
from autopipe.search.space import to_config
from autopipe.search.trials import AskedBy, Asker
from autopipe.values import Estimate
from tests.fakes.facts import facts
from tests.fakes.measurements import measurement

CONFIG = to_config({"loader": "threads", "threads.workers": 2})


def measured(*rates: float, resources: Resources | None = None) -> Measurement:
    return measurement(CONFIG, rates, batch_size=32, first_batch_seconds=2.0, resources=resources)


def test_several_measurements_of_a_point_are_as_fast_as_their_median_and_as_sure_as_their_windows() -> None:
    one, other = measured(100.0, 110.0, 120.0), measured(80.0, 90.0)
    assert trials.merged([one]) == one.images_per_second
    both = trials.merged([one, other])
    assert both.value == pytest.approx((one.images_per_second.value + other.images_per_second.value) / 2)
    assert both.low < both.value < both.high


def test_a_measurement_counts_with_its_pauses_however_often_it_is_repeated() -> None:
    paused = [*[100.0] * 9, 10.0]  # images/s in windows of equal seconds
    one = measured(*paused)
    slower = one.model_copy(update={"images_per_second": Estimate(value=52.6, low=30.0, high=100.0)})
    assert trials.merged([slower, slower]).value == 52.6


def test_validation_counts_against_the_memory_with_its_samples_its_queue_and_its_own_worker_processes() -> None:
    batch, cache, workers, peak = 32 * 2**20, 800 * 2**10, 8 * 2**20, 2**30
    took = measured(1.0, resources=Resources(peak_rss_bytes=peak, workers_bytes=workers))
    config = to_config({"loader": "processes", "processes.workers": 4, "processes.queue_size": 4, "keep": "memory"})
    alone = facts(samples=800, fixed_bytes=cache, compact_bytes=2**20).workload
    assert trials.taken(took, config, alone).peak_rss_bytes == peak
    few, many = (alone.model_copy(update={"validation": count}) for count in (40, 400))
    # Two batches need two workers, and room for two more that wait and one in use.
    assert trials.taken(took, config, few).peak_rss_bytes == peak + cache // 20 + 5 * batch + workers // 2
    assert trials.taken(took, config, many).peak_rss_bytes == peak + cache // 2 + 9 * batch + workers


def test_over_a_training_one_time_costs_count() -> None:
    assert trials.score(500.0, one_time_seconds=10.0, images=5000) == pytest.approx(250.0)
    one, twenty = (trials.score(1000.0, one_time_seconds=30.0, images=epochs * 10_000) for epochs in (1, 20))
    assert one < 500.0 < twenty  # a conversion pays over many epochs and not over few


def test_what_was_measured_once_counts_before_what_was_predicted() -> None:
    assert trials.one_time_seconds([measured(1.0, 1.0)], (5.0, 3.0), 100) == 10.0  # conversion, fill and start
    cost = ConversionCost(
        cut=1, samples=10, bytes=100, workers=1, seconds=1.0, shard_samples=(5, 5), shard_seconds=(0.5, 0.5)
    )
    known = measured(1.0, 1.0).model_copy(update={"conversion": cost, "cache_fill_seconds": 7.0})
    assert trials.one_time_seconds([known], (5.0, 3.0), 100) == pytest.approx(10.0 + 7.0 + 2.0)


def test_a_cache_that_a_trial_filled_in_part_counts_whole_against_the_memory() -> None:
    took, limits = Resources(peak_rss_bytes=2000), Limits(memory_bytes=5000)
    part = measured(1.0, resources=took).model_copy(update={"data_share": 0.25})
    workload = facts(fixed_bytes=8000).workload
    whole = trials.taken(part, CONFIG.keeping(in_memory=True), workload)
    assert trials.excesses(whole, limits) == {"memory_bytes": 3000.0}
    assert trials.taken(part, CONFIG, workload).peak_rss_bytes == 2000
    unknown = trials.taken(measured(1.0), CONFIG.keeping(in_memory=True), workload)
    assert unknown.peak_rss_bytes is None
    assert trials.excesses(unknown, limits) == {}  # what was not measured breaks none


@pytest.mark.parametrize(
    ("origin", "word", "block"),
    [
        (AskedBy(Asker.BASELINE, "tf.data AUTOTUNE, 2 devices"), "baseline:tf.data AUTOTUNE, 2 devices", None),
        (AskedBy(Asker.KNOWN), "known", None),
        (AskedBy(Asker.RACE, "predicted"), "race:predicted", None),
        (AskedBy(Asker.ADVICE), "advice", None),
        (AskedBy(Asker.SAMPLER, "tpe:x"), "tpe:x", None),
        (AskedBy(Asker.SAMPLER), "", None),
        (AskedBy(Asker.PROOF, "0"), "proof:0", 0),
        (AskedBy(Asker.PROOF, "12"), "proof:12", 12),
    ],
)
def test_a_study_holds_a_word_that_is_read_back(origin: AskedBy, word: str, block: int | None) -> None:
    assert str(origin) == word
    assert AskedBy.parse(word) == origin
    assert origin.block == block
