"""The study of a search, in memory and in a storage.

That it outlives its process is tested in tests/integration/test_search.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import optuna
import pytest
from optuna.study import StudyDirection

from autopipe.errors import TrialError
from autopipe.measure import costs
from autopipe.measure.facts import Ceiling, Limits
from autopipe.measure.outcome import ConversionCost, FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.search import record
from autopipe.search import space as spaces
from autopipe.search.measurer import Baseline
from autopipe.search.record import Record, best_elsewhere, open_record
from autopipe.search.result import AskedBy, Asker, BudgetPlanned, Event, Reason, Stop, StudyOpened
from autopipe.search.space import Params, Space, to_config
from autopipe.values import Estimate
from tests.fakes.facts import facts
from tests.fakes.measurements import measurement
from tests.fakes.spaces import holds
from tests.fakes.surface import Surface
from tests.unit.search.conftest import loader_bound, run, session_of, some, space_of

CONFIG = to_config({"loader": "threads", "threads.workers": 2, "threads.queue_size": 8, "keep": "memory"})
FAILURE = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="it crashed")


def opened(url: str | None, *, fresh: bool = False, **digests: str) -> Record:
    return open_record(url, "tune", digests=digests or {"workload": "w1"}, fresh=fresh)


def begun(record: Record, space: Space, origin: str) -> optuna.Trial:
    record.enqueue(space, CONFIG, origin=AskedBy.parse(origin))
    return record.study.ask()


def fail(record: Record, trial: optuna.Trial) -> None:
    record.tell(trial, FAILURE, value=None, excess_bytes=None, seconds=1.0)


def run_one(record: Record, space: Space, excess: int = -1) -> Measurement:
    outcome = Surface().measure(CONFIG)
    assert isinstance(outcome, Measurement)
    trial = begun(record, space, "race:rule")
    record.tell(trial, outcome, value=5.0, excess_bytes=excess, seconds=2.0)
    return outcome


def test_a_trial_and_the_ceilings_are_read_back_as_they_were_written(space: Space, url: str) -> None:
    record, ceilings = opened(url), [Surface().ceiling(ModelSetup())]
    record.keep_ceilings(ceilings)
    outcome = run_one(record, space)
    (row,) = opened(url).rows()
    assert (row.origin, row.value) == (AskedBy(Asker.RACE, "rule"), 5.0)
    assert (row.seconds, row.feasible, row.block) == (2.0, True, None)
    assert (row.config, row.key, row.outcome) == (CONFIG, CONFIG.key(), outcome)
    assert opened(url).ceilings() == ceilings


def test_trials_that_failed_were_cut_off_broke_a_limit_or_were_refused_are_told_apart(space: Space) -> None:
    record = opened(None)
    fail(record, begun(record, space, "proof:4"))
    record.give_up(begun(record, space, "proof:4"))
    run_one(record, space, excess=7)
    record.refuse(record.study.ask(), "devices > 1: 0 GPUs")  # it never ran
    failed, cut_off, infeasible = record.rows()
    assert (failed.outcome, failed.value, failed.block) == (FAILURE, None, 4)
    assert cut_off.outcome is None
    assert [row.feasible for row in (failed, infeasible)] == [True, False]
    assert record.study.trials[3].user_attrs["refused"] == "devices > 1: 0 GPUs"


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"workload": "w1"}, "something else: workload: 'w1' there, 'w2' here."),
        ({"hardware": '{"cores": 2, "storage": "ext4"}'}, "something else: hardware: storage 'ext4' there, 'nfs'"),
        ({"schema_version": "0"}, "something else: schema_version: '0' there, '1' here."),
    ],
)
def test_a_study_of_something_else_is_refused_with_both_sides_unless_it_begins_anew(
    space: Space, url: str, there: dict[str, str], said: str
) -> None:
    here: dict[str, Any] = {"workload": "w2", "hardware": '{"cores": 2, "storage": "nfs"}'}
    first = opened(url, **here)
    run_one(first, space)
    first.whole.set_user_attr("digests", {**first.whole.user_attrs["digests"], **there})
    with pytest.raises(TrialError, match=re.escape(said)) as refused:
        opened(url, **here)
    assert "`--fresh`, in Python fresh=True" in (refused.value.hint or "")
    assert opened(url, fresh=True, **here).rows() == []


def test_a_study_of_something_else_that_holds_no_trial_begins_anew(space: Space, url: str) -> None:
    opened(url, workload="a model that could not be built").keep_ceilings([Surface().ceiling(ModelSetup())])
    mended = opened(url, workload="mended")
    assert mended.ceilings() == []
    run_one(mended, space)
    assert len(opened(url, workload="mended").rows()) == 1


def test_optunas_own_verbosity_is_left_as_it_was() -> None:
    before = optuna.logging.get_verbosity()
    opened(None)
    assert optuna.logging.get_verbosity() == before


# ---------------------------------------------------------------- what several trials tell of a configuration

WORKERS = to_config({"loader": "threads", "threads.workers": 2})


def measured(*rates: float, resources: Resources | None = None) -> Measurement:
    return measurement(WORKERS, rates, batch_size=32, first_batch_seconds=2.0, resources=resources)


def test_several_measurements_of_a_point_are_as_fast_as_their_median_and_as_sure_as_their_windows() -> None:
    one, other = measured(100.0, 110.0, 120.0), measured(80.0, 90.0)
    assert record.merged([one]) == one.images_per_second
    both = record.merged([one, other])
    assert both.value == pytest.approx((one.images_per_second.value + other.images_per_second.value) / 2)
    assert both.low < both.value < both.high


def test_a_measurement_counts_with_its_pauses_however_often_it_is_repeated() -> None:
    paused = [*[100.0] * 9, 10.0]  # images/s in windows of equal seconds
    one = measured(*paused)
    slower = one.model_copy(update={"images_per_second": Estimate(value=52.6, low=30.0, high=100.0)})
    assert record.merged([slower, slower]).value == 52.6


def test_validation_counts_against_the_memory_with_its_samples_its_queue_and_its_own_worker_processes() -> None:
    batch, cache, workers, peak = 32 * 2**20, 800 * 2**10, 8 * 2**20, 2**30
    took = measured(1.0, resources=Resources(peak_rss_bytes=peak, workers_bytes=workers))
    config = to_config({"loader": "processes", "processes.workers": 4, "processes.queue_size": 4, "keep": "memory"})
    alone = facts(samples=800, fixed_bytes=cache, compact_bytes=2**20).workload
    assert record.taken(took, config, alone).peak_rss_bytes == peak
    few, many = (alone.model_copy(update={"validation": count}) for count in (40, 400))
    # Two batches need two workers, and room for two more that wait and one in use.
    assert record.taken(took, config, few).peak_rss_bytes == peak + cache // 20 + 5 * batch + workers // 2
    assert record.taken(took, config, many).peak_rss_bytes == peak + cache // 2 + 9 * batch + workers


@pytest.mark.parametrize(("epochs", "value"), [(None, 500.0), (1, 250.0), (4, 400.0)])
def test_over_a_training_one_time_costs_count(space: Space, epochs: int | None, value: float) -> None:
    session = session_of(space, Surface(sample_count=5000), ceilings=False, epochs=epochs)
    long = measured(500.0).model_copy(update={"first_batch_seconds": 10.0})
    assert session.score(WORKERS, [long], 500.0) == pytest.approx(value)


def test_what_was_measured_once_counts_before_what_was_predicted(space: Space) -> None:
    session = session_of(space, Surface(sample_count=100))
    kept, start = CONFIG.keeping(form="array"), measured(1.0, 1.0)
    predicted = costs.one_time_seconds(kept, costs.known(session.ceilings, session.facts), 100)
    assert session.once_seconds(kept, [start]) == pytest.approx(sum(predicted) + 2.0)  # conversion, fill and start
    cost = ConversionCost(
        cut=1, samples=10, bytes=100, workers=1, seconds=1.0, shard_samples=(5, 5), shard_seconds=(0.5, 0.5)
    )
    known = start.model_copy(update={"conversion": cost, "cache_fill_seconds": 7.0})
    assert session.once_seconds(kept, [known]) == pytest.approx(10.0 + 7.0 + 2.0)


def test_a_cache_that_a_trial_filled_in_part_counts_whole_against_the_memory(space: Space) -> None:
    part = measured(1.0, resources=Resources(peak_rss_bytes=2000)).model_copy(update={"data_share": 0.25})
    workload, cached = facts(fixed_bytes=8000).workload, WORKERS.keeping(in_memory=True)
    assert record.taken(part, cached, workload).peak_rss_bytes == 8000
    assert record.taken(part, WORKERS, workload).peak_rss_bytes == 2000
    assert record.taken(measured(1.0), cached, workload).peak_rss_bytes is None


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


# ---------------------------------------------------------------- storages, and their faults


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////no/such/folder/study.db", "sqlite:////no/such/folder/study.db"),
        ("nosuchdatabase://me:secret@host/name", "nosuchdatabase://me@host/name"),
        ("postgresql+psycopg://me@127.0.0.1:9/name", "postgresql+psycopg://me@127.0.0.1:9/name"),  # does not answer
        ("what", "what"),
    ],
)
def test_a_storage_that_cannot_be_used_is_named(url: str, shown: str) -> None:
    with pytest.raises(TrialError, match=f"{re.escape(shown)}.* cannot be used") as caught:
        opened(url)
    assert "secret" not in str(caught.value)


def test_a_study_lies_in_its_file_whatever_its_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "was? 50% #1 %20"
    folder.mkdir()
    with record.opened(record.url_of(folder / "study.db")) as kept:
        kept.create_new_study([StudyDirection.MAXIMIZE])
    assert (folder / "study.db").stat().st_size > 0
    assert [each.name for each in tmp_path.iterdir()] == [folder.name]


def test_a_folder_whose_name_is_no_text_is_refused_as_a_storage(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9").mkdir()
    with pytest.raises(TrialError, match="cannot be used"):
        opened(record.url_of(tmp_path / "caf\udce9" / "study.db"))


def test_only_a_file_of_ones_own_holds_one_study() -> None:
    urls = (None, "sqlite:///a.db", "mysql://h/n", "postgresql://h/n")
    assert [url for url in urls if record.is_shared(url)] == ["mysql://h/n", "postgresql://h/n"]


def test_a_study_that_is_deleted_in_a_search_stays_in_memory(space: Space, url: str) -> None:
    record = opened(url)
    optuna.delete_study(study_name="tune", storage=url)
    run_one(record, space)
    assert [row.value for row in record.rows()] == [5.0]
    assert record.lost is not None


def test_the_best_of_each_study_of_the_workload_is_found_and_of_no_other(space: Space, url: str) -> None:
    assert best_elsewhere(None, "w") == best_elsewhere(url, "w") == []
    best = {}
    for name, workload, quirks in (("here", "w", 1), ("there", "w", 5), ("other", "v", 3)):
        surface = loader_bound(quirks=quirks, seed=1, noise=0.01)
        asked: dict[str, Any] = {"study_name": name, "digests": {"workload": workload}}
        ended = run(space, surface, url, trials=8, blocks=(0, 0), **asked)
        values = {row.key: row.value for row in ended.rows if row.value is not None and row.feasible}
        best[name] = max(values, key=lambda key: values[key])
    latest_first = list(dict.fromkeys([best["there"], best["here"]]))
    assert [config.key() for config in best_elsewhere(url, "w")] == latest_first
    assert [config.key() for config in best_elsewhere(url, "v")] == [best["other"]]


def test_a_trial_is_asked_only_for_what_counts(space: Space) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(20):
        trial = study.ask()
        params = record.suggest(space, trial)
        assert holds(space, params)
        assert trial.params == params


def test_of_a_configuration_outside_the_space_what_fits_is_kept(space: Space) -> None:
    knobs: Params = {"loader": "threads", "threads.workers": 99, "threads.queue_size": 8}
    outside: Params = {**knobs, "finish": "host", "keep": "array"}
    assert record.fitting(space, outside) == {"loader": "threads", "threads.queue_size": 8, "finish": "host"}
    places = space_of({"loader": ["threads"], "keep": ["none", "memory:100%"]})
    assert record.fitting(places, {"loader": "threads", "keep": "memory"})["keep"] == "memory:100%"
    without = space.only("loader", ["threads"])
    assert record.fitting(without, {"loader": "keras", "keras.workers": 1, "keep": "none"}) == {"keep": "none"}


# ---------------------------------------------------------------- resumed searches


LITTLE = Limits(memory_bytes=3 * 2**30)


@pytest.mark.parametrize("limited", ["the first", "the second"])
def test_what_was_measured_is_held_to_the_limits_of_today(space: Space, url: str, limited: str) -> None:
    before, today = (LITTLE, Limits()) if limited == "the first" else (Limits(), LITTLE)
    asked: dict[str, Any] = {"trials": 7, "budget_seconds": None, "blocks": (0, 0)}
    first = run(space, loader_bound(quirks=1), url, limits=before, **asked)
    surface = loader_bound(quirks=1)
    second = run(space, surface, url, limits=today, **asked)
    for ended, limits in ((first, before), (second, today)):
        memory = surface.resources(some(ended.best_config)).peak_rss_bytes or 0
        assert (memory <= 3 * 2**30) == (limits is LITTLE)
        assert bool(ended.result.over_limits) == (limits is LITTLE)
    assert limited == "the first" or surface.measured == []


def test_a_study_whose_time_is_used_up_keeps_what_it_proved_and_says_so_only_at_the_end(space: Space, url: str) -> None:
    """It has compared more than two: that there is no time for two configurations is not told."""
    first = run(space, loader_bound(quirks=2), url, budget_seconds=60.0)
    told, again = list[Event](), loader_bound(quirks=2)
    second = run(space, again, url, told=told, budget_seconds=sum(row.seconds for row in first.rows))
    assert first.result.proved
    assert second.result.proved
    assert second.best_config == first.best_config
    assert again.measured == []
    assert not [event for event in told if isinstance(event, BudgetPlanned)]
    (stopped,) = [event for event in told if isinstance(event, Stop)]
    assert stopped.reason is Reason.TIME


def test_a_study_whose_time_is_used_up_races_no_more_loaders(space: Space, url: str) -> None:
    first = run(space, loader_bound(quirks=2), url, budget_seconds=15.0)
    again = loader_bound(quirks=2)
    second = run(space, again, url, budget_seconds=sum(row.seconds for row in first.rows))
    assert second.best_config == first.best_config
    assert (second.result.raced, again.now) == (first.result.raced, 0.0)


def of_another_version(url: str) -> None:
    """Write into what a study holds of its trials a key that is not known here."""
    with optuna.storages.RDBStorage(url).engine.begin() as database:
        for table in ("trial_user_attributes", "study_user_attributes"):
            new = "replace(value_json, '\\\"status\\\"', '\\\"state\\\"')"
            database.exec_driver_sql(f"UPDATE {table} SET value_json = {new}")


def test_a_study_of_another_version_is_refused_in_words_and_holds_nothing_for_others(space: Space, url: str) -> None:
    run_one(opened(url), space)
    of_another_version(url)
    with pytest.raises(TrialError, match="`tune` is of another version of autopipe, or of a loader") as refused:
        opened(url)
    assert "`--fresh`" in (refused.value.hint or "")
    assert best_elsewhere(url, "w1") == []


def test_a_bug_in_the_measurer_is_not_swallowed_and_leaves_no_trial_running(space: Space, url: str) -> None:
    class Broken(Surface):
        def before(self, config: PipelineConfig, proof: bool) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(space, Broken(), url)
    assert run(space, Surface(quirks=1), url).rows[0].outcome is None


def test_more_trials_go_on_where_the_study_ended(space: Space, url: str) -> None:
    first = run(space, loader_bound(quirks=2), url, trials=8, budget_seconds=None, beyond=True)
    surface = loader_bound(quirks=2, seed=1)
    second = run(space, surface, url, trials=14, budget_seconds=None, patience=99, beyond=True)
    searched = [row.key for row in second.rows if row.block is None]
    assert len(searched) == len(set(searched)) == 14
    assert [row.key for row in second.rows[: len(first.rows)]] == [row.key for row in first.rows]
    assert second.result.proved


def test_trials_that_the_user_enqueued_run_first(space: Space, url: str) -> None:
    first = run(space, loader_bound(), url, trials=1, blocks=(0, 0))
    wish: Params = {"loader": "processes", "processes.workers": 3, "processes.queue_size": 8}
    rest: Params = {"keep": "none", "finish": "device", "device_prefetch": 2, "devices": 1}
    first.study.enqueue_trial({**wish, **rest})
    surface = loader_bound()
    run(space, surface, url, trials=4, blocks=(0, 0))
    assert surface.measured[0][0] == to_config({**wish, **rest}).key()


def test_another_space_is_refused(space: Space, url: str) -> None:
    run(space, Surface(), url, trials=2)
    quick, surface = spaces.load("quick", {"cores": 4, "gpus": 0}), Surface()
    for other, said in (
        (space.only("loader", ["threads"]), r"space: loader 'threads, processes, tfdata, keras' there, 'threads' he"),
        (quick, r"space: loader '.*, and \d+ more\."),
    ):
        with pytest.raises(TrialError, match="something else: " + said):
            run(other, surface, url, trials=2)
    assert surface.measured == []


# ---------------------------------------------------------------- Ctrl-C

Moment = Literal["baselines", "ceiling", "first trial", "second trial", "third trial", "proof", "late in the proof"]
NOTHING = "Interrupted before anything to use was measured."
SO_FAR = "Interrupted: this is the best so far."
BLOCKS_RUN = 5
"""The trials of a proof that have run late in it: two blocks."""


@dataclass(kw_only=True)
class Impatient(Surface):
    """Somebody presses Ctrl-C at one moment."""

    quirks: int = 1
    model_rate: float = 60_000.0
    pressed: Moment

    def baselines(self) -> Sequence[Baseline]:
        self._press_if("baselines")
        return super().baselines()

    def ceiling(self, setup: ModelSetup) -> Ceiling:
        self._press_if("ceiling")
        return super().ceiling(setup)

    def before(self, config: PipelineConfig, proof: bool) -> None:
        proving = sum(done for _, done in self.measured)
        if proof:
            self._press_if("late in the proof" if proving == BLOCKS_RUN else "proof")
        else:
            self._press_if({0: "first trial", 1: "second trial", 2: "third trial"}.get(len(self.measured)))

    def _press_if(self, now: str | None) -> None:
        if now == self.pressed:
            raise KeyboardInterrupt


@pytest.mark.parametrize("moment", get_args(Moment))
def test_what_is_said_is_true_at_each_moment(space: Space, moment: Moment) -> None:
    told, said = list[Event](), NOTHING if moment in ("baselines", "ceiling", "first trial") else SO_FAR
    ended = run(space, Impatient(pressed=moment), told=told)
    assert ended.result.stop.reason is Reason.INTERRUPTED
    assert (ended.result.interrupted, ended.result.proved) == (True, False)
    assert (ended.best_config is None) == (said == NOTHING)
    assert [event.message for event in told if isinstance(event, Stop)][-1] == ended.result.stop.message == said
    assert all(trial.state.is_finished() for trial in ended.study.trials)
    assert bool(ended.result.contests) == (moment == "late in the proof")  # by the blocks that are there


def test_what_breaks_a_limit_is_not_called_the_best(space: Space) -> None:
    ended = run(space, Impatient(pressed="second trial"), limits=Limits(memory_bytes=2**30))
    assert ended.best_config is None
    assert ended.result.stop.message == NOTHING


@pytest.mark.parametrize("moment", ["baselines", "proof"])
def test_what_an_earlier_session_measured_is_the_best_so_far(space: Space, url: str, moment: Moment) -> None:
    first = run(space, Impatient(pressed="third trial"), url)
    again = run(space, Impatient(pressed=moment), url)
    assert again.best_config == first.best_config is not None
    assert again.result.stop.message == SO_FAR


def test_a_baseline_that_failed_is_measured_again_if_the_study_is_continued(space: Space, url: str) -> None:
    asked: dict[str, Any] = {"budget_seconds": None, "blocks": (0, 0)}
    baselines = [each.config for each in Surface().baselines()]
    first = run(space, loader_bound(fails=baselines.__contains__), url, trials=6, **asked)
    assert first.result.baselines[0].failure is not None
    told = list[Event]()
    second = run(space, loader_bound(), url, told=told, trials=9, **asked)
    assert second.result.baselines[0].images_per_second is not None
    assert [event.failed for event in told if isinstance(event, StudyOpened)] == [0]
