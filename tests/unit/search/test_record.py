"""The study of a search, in memory and in a storage. That it outlives its process: tests/integration/test_search.py."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import optuna
import pytest
from optuna.study import StudyDirection

from autopipe.errors import TrialError
from autopipe.measure.facts import Ceiling, Limits
from autopipe.measure.outcome import FailureKind, Measurement, Phase, Resources, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.search import record
from autopipe.search import space as spaces
from autopipe.search.measurer import Baseline
from autopipe.search.record import Record, best_elsewhere, open_record
from autopipe.search.result import AskedBy, Asker, BudgetPlanned, Event, Reason, Stop
from autopipe.search.space import Params, Space, to_config
from autopipe.values import Estimate
from tests.fakes.facts import facts, measurement
from tests.fakes.surface import Surface
from tests.unit.search.conftest import loader_bound, run, some, space_of

CONFIG = to_config({"loader": "threads", "threads.workers": 2, "threads.queue_size": 8, "keep": "memory"})
WORKERS = to_config({"loader": "threads", "threads.workers": 2})
FAILURE = TrialFailure(kind=FailureKind.CRASHED, phase=Phase.OPEN, message="it crashed")


def opened(url: str | None, *, fresh: bool = False, **digests: str) -> Record:
    return open_record(url, "tune", digests=digests or {"workload": "w1"}, fresh=fresh)


def begun(record: Record, space: Space, origin: str) -> optuna.Trial:
    record.enqueue(space, CONFIG, origin=AskedBy.parse(origin))
    return record.study.ask()


def run_one(record: Record, space: Space, excess: int = -1) -> Measurement:
    outcome = Surface().measure(CONFIG)
    assert isinstance(outcome, Measurement)
    record.tell(begun(record, space, "race:rule"), outcome, value=5.0, excess_bytes=excess, seconds=2.0)
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
    for word, block in {"baseline:tf.data AUTOTUNE, 2 devices": None, "known": None, "": None, "proof:12": 12}.items():
        assert (str(AskedBy.parse(word)), AskedBy.parse(word).block) == (word, block)


def test_trials_that_failed_were_cut_off_broke_a_limit_or_were_refused_are_told_apart(space: Space) -> None:
    record = opened(None)
    record.tell(begun(record, space, "proof:4"), FAILURE, value=None, excess_bytes=None, seconds=1.0)
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
        ({"workload": "w1"}, "workload: 'w1' there, 'w2' here."),
        ({"hardware": '{"cores": 2, "storage": "ext4"}'}, "hardware: storage 'ext4' there, 'nfs'"),
        ({"schema_version": "0"}, "schema_version: '0' there, '1' here."),
    ],
)
def test_a_study_of_something_else_is_refused(space: Space, url: str, there: dict[str, str], said: str) -> None:
    here: dict[str, Any] = {"workload": "w2", "hardware": '{"cores": 2, "storage": "nfs"}'}
    opened(url, workload="a model that could not be built").keep_ceilings([Surface().ceiling(ModelSetup())])
    first = opened(url, **here)  # as the one before holds no trial
    assert first.ceilings() == []
    run_one(first, space)
    first.whole.set_user_attr("digests", {**first.whole.user_attrs["digests"], **there})
    with pytest.raises(TrialError, match=re.escape(f"something else: {said}")) as refused:
        opened(url, **here)
    assert "`--fresh`, in Python fresh=True" in (refused.value.hint or "")
    assert opened(url, fresh=True, **here).rows() == []


def measured(*rates: float, resources: Resources | None = None) -> Measurement:
    return measurement(WORKERS, rates, batch_size=32, first_batch_seconds=2.0, resources=resources)


def test_several_measurements_of_a_point_are_as_fast_as_their_median_and_as_sure_as_their_windows() -> None:
    one, other = measured(100.0, 110.0, 120.0), measured(80.0, 90.0)
    both = record.merged([one, other])
    assert record.merged([one]) == one.images_per_second
    assert both.value == pytest.approx((one.images_per_second.value + other.images_per_second.value) / 2)
    assert both.low < both.value < both.high
    slower = one.model_copy(update={"images_per_second": Estimate(value=52.6, low=30.0, high=100.0)})
    assert record.merged([slower, slower]).value == 52.6  # with its pauses, however often it is repeated


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
    # A cache that a trial filled in part counts whole.
    part = measured(1.0, resources=Resources(peak_rss_bytes=2000)).model_copy(update={"data_share": 0.25})
    workload, cached = facts(fixed_bytes=8000).workload, WORKERS.keeping(in_memory=True)
    cases = [(part, cached), (part, WORKERS), (measured(1.0), cached)]
    assert [record.taken(took, config, workload).peak_rss_bytes for took, config in cases] == [8000, 2000, None]


def test_a_storage_that_cannot_be_used_is_named_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9").mkdir()
    for url, shown in (
        ("sqlite:////no/such/folder/study.db", "sqlite:////no/such/folder/study.db"),
        ("nosuchdatabase://me:secret@host/name", "nosuchdatabase://me@host/name"),
        ("postgresql+psycopg://me@127.0.0.1:9/name", "postgresql+psycopg://me@127.0.0.1:9/name"),  # does not answer
        (record.url_of(tmp_path / "caf\udce9" / "study.db"), "sqlite"),
        ("what", "what"),
    ):
        with pytest.raises(TrialError, match=f"{re.escape(shown)}.* cannot be used") as caught:
            opened(url)
        assert "secret" not in str(caught.value)
    shared = [url for url in (None, "sqlite:///a.db", "mysql://h/n", "postgresql://h/n") if record.is_shared(url)]
    assert shared == ["mysql://h/n", "postgresql://h/n"]


def test_a_study_lies_in_its_file_whatever_its_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "was? 50% #1 %20"
    folder.mkdir()
    with record.opened(record.url_of(folder / "study.db")) as kept:
        kept.create_new_study([StudyDirection.MAXIMIZE])
    assert (folder / "study.db").stat().st_size > 0
    assert [each.name for each in tmp_path.iterdir()] == [folder.name]


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


@pytest.mark.parametrize("limited", ["the first", "the second"])
def test_what_was_measured_is_held_to_the_limits_of_today(space: Space, url: str, limited: str) -> None:
    little = Limits(memory_bytes=3 * 2**30)
    for limits in (little, Limits()) if limited == "the first" else (Limits(), little):
        surface = loader_bound(quirks=1)
        ended = run(space, surface, url, limits=limits, trials=7, budget_seconds=None, blocks=(0, 0))
        memory = some(surface.resources(some(ended.best_config)).peak_rss_bytes)
        assert (memory <= 3 * 2**30) == bool(ended.result.over_limits) == (limits is little)
    assert limited == "the first" or surface.measured == []


def test_a_study_whose_time_is_used_up_keeps_what_it_proved_and_says_so_only_at_the_end(space: Space, url: str) -> None:
    """It has compared more than two: that there is no time for two configurations is not told."""
    first = run(space, loader_bound(quirks=2), url, budget_seconds=60.0)
    told, again = list[Event](), loader_bound(quirks=2)
    second = run(space, again, url, told=told, budget_seconds=sum(row.seconds for row in first.rows))
    assert (second.result.proved, second.best_config) == (first.result.proved, first.best_config)
    assert first.result.proved
    assert (second.result.raced, again.measured, again.now) == (first.result.raced, [], 0.0)
    assert not [event for event in told if isinstance(event, BudgetPlanned)]
    assert [event.reason for event in told if isinstance(event, Stop)] == [Reason.TIME]


def test_a_study_of_another_version_is_refused_in_words_and_holds_nothing_for_others(space: Space, url: str) -> None:
    run_one(opened(url), space)
    with optuna.storages.RDBStorage(url).engine.begin() as database:
        for table in ("trial_user_attributes", "study_user_attributes"):  # get a key that is not known here
            new = "replace(value_json, '\\\"status\\\"', '\\\"state\\\"')"
            database.exec_driver_sql(f"UPDATE {table} SET value_json = {new}")
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


def test_another_space_is_refused_and_what_fits_it_is_kept(space: Space, url: str) -> None:
    run(space, Surface(), url, trials=2)
    quick, surface = spaces.load("quick", {"cores": 4, "gpus": 0}), Surface()
    for other, said in (
        (space.only("loader", ["threads"]), r"space: loader 'threads, processes, tfdata, keras' there, 'threads' he"),
        (quick, r"space: loader '.*, and \d+ more\."),
    ):
        with pytest.raises(TrialError, match="something else: " + said):
            run(other, surface, url, trials=2)
    assert surface.measured == []
    outside: Params = {"loader": "threads", "threads.workers": 99, "threads.queue_size": 8, "keep": "array"}
    assert record.fitting(space, outside) == {"loader": "threads", "threads.queue_size": 8}
    places = space_of({"loader": ["threads"], "keep": ["none", "memory:100%"]})
    assert record.fitting(places, {"loader": "threads", "keep": "memory"})["keep"] == "memory:100%"
    without = space.only("loader", ["threads"])
    assert record.fitting(without, {"loader": "keras", "keras.workers": 1, "keep": "none"}) == {"keep": "none"}


Moment = Literal["baselines", "ceiling", "first trial", "second trial", "third trial", "proof", "late in the proof"]
NOTHING = "Interrupted before anything to use was measured."
SO_FAR = "Interrupted: this is the best so far."
BLOCKS_RUN = 5  # the trials of a proof that have run late in it: two blocks


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
        elif len(self.measured) < 3:
            self._press_if(f"{('first', 'second', 'third')[len(self.measured)]} trial")

    def _press_if(self, now: str) -> None:
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
    if moment == "second trial":  # what breaks a limit is not called the best
        limited = run(space, Impatient(pressed=moment), limits=Limits(memory_bytes=2**30))
        assert (limited.best_config, limited.result.stop.message) == (None, NOTHING)


@pytest.mark.parametrize("moment", ["baselines", "proof"])
def test_what_an_earlier_session_measured_is_the_best_so_far(space: Space, url: str, moment: Moment) -> None:
    first = run(space, Impatient(pressed="third trial"), url)
    again = run(space, Impatient(pressed=moment), url)
    assert again.best_config == first.best_config is not None
    assert again.result.stop.message == SO_FAR
