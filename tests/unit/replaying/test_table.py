"""Recorded tables, and searches over them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from replaying import samplers, search, table
from replaying.played import KINDS, Played
from replaying.table import Table

from autopipe.errors import MissingExtraError, TrialError
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.pipeline.config import Params, PipelineConfig, to_config
from autopipe.pipeline.space import Space
from autopipe.search import study
from autopipe.search.feasible import trim
from autopipe.search.surrogate import SURROGATE
from tests.fakes.surface import Surface
from tests.unit.replaying.conftest import header, record, surface
from tests.unit.search.conftest import session_of


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.gz"])
def test_a_table_holds_every_candidate_and_baseline_once_and_goes_on_where_it_was_cut_off(
    space: Space, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    whole = record(path, space, surface())
    keys = set(trim(space, surface().facts()).candidates)
    assert whole.entries.keys() == keys | {each.config.key() for each in surface().baselines()}
    assert table.read(path) == whole
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    left = len(table.read(path).entries)
    again, looks = surface(), iter([False, False, True])
    part = record(path, space, again, enough=lambda: next(looks))
    assert left + 2 == len(part.entries) < len(whole.entries)
    assert record(path, space, again).entries.keys() == whole.entries.keys()
    assert 0 < left == len(whole.entries) - len(again.measured)


def test_those_near_the_best_are_measured_several_times(recorded: Table, space: Space, tmp_path: Path) -> None:
    best = max(recorded.rates().values())
    again = surface()
    entries = record(tmp_path / "table.jsonl", space, again, rounds=3).entries
    near = {key for key, rate in recorded.rates().items() if rate >= 0.85 * best}
    assert {len(entries[key].runs) for key in near} == {3}
    assert {len(entry.runs) for key, entry in entries.items() if key not in near} == {1}
    assert len(again.measured) == 2 * len(near)
    assert 0 < len(near) < len(entries)


def test_failures_are_recorded_and_worth_nothing(space: Space, tmp_path: Path) -> None:
    failing = Surface(fails=lambda config: config.loader.kind == "keras")
    recorded = record(tmp_path / "table.jsonl", space, failing)
    entries = [entry for entry in recorded.entries.values() if entry.config.loader.kind == "keras"]
    assert {entry.rate for entry in entries} == {0.0}
    assert isinstance(search.Replay(recorded).measure(entries[0].config), TrialFailure)


@pytest.mark.parametrize(
    ("text", "place"), [("{}\n", "line 1"), ("", "line 1"), ("HEADER\n{}\n", "line 2"), ("HEADER\nwhat\n", "line 2")]
)
def test_what_is_no_table_is_named(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text(text.replace("HEADER", header(surface()).model_dump_json()))
    with pytest.raises(TrialError, match=place):
        table.read(path)


def test_a_replayed_measurement_is_near_the_recorded_one_and_another_each_time(recorded: Table) -> None:
    entry = next(iter(recorded.entries.values()))
    measurer = search.Replay(recorded, seed=2)
    first, second = (measurer.measure(entry.config) for _ in range(2))
    assert isinstance(first, Measurement)
    assert isinstance(second, Measurement)
    assert first.windows != second.windows
    assert first.images_per_second.value == pytest.approx(entry.rate, rel=0.03)


def test_between_recorded_configurations_the_nearest_is_taken(recorded: Table) -> None:
    shared: Params = {"loader": "threads", "threads.queue_size": 8, "keep": "memory", "finish": "device"}

    def threads(workers: int) -> PipelineConfig:
        return to_config({**shared, "threads.workers": workers, "device_prefetch": 2, "devices": 1})

    assert search.Replay(recorded).nearest(threads(7)) in (threads(6).key(), threads(8).key())


def test_on_the_cores_what_differs_without_effect_is_one_configuration(
    recorded: Table, space: Space, tmp_path: Path
) -> None:
    path, apart = tmp_path / "table.jsonl", recorded.entries
    path.write_text(path.read_text().replace('"accelerator":true', '"accelerator":false', 1))
    on_cores = table.read(path)
    assert {each.config.device_prefetch for each in apart.values()} == {0, 2}
    assert {each.device_prefetch for each in search.recorded(on_cores, space).candidates.values()} == {0}
    for key, entry in on_cores.entries.items():
        others = (entry.config.model_copy(update={"device_prefetch": count}).key() for count in (0, 2))
        runs = [run for other in others if other in apart for run in apart[other].runs]
        assert len(entry.runs) == len(runs) >= len(apart[key].runs)
        assert all(run in entry.runs for run in runs)


def test_the_default_sampler_beats_random_by_far_where_the_loader_counts(recorded: Table, space: Space) -> None:
    ours, chance = search.compare(recorded, space, ["surrogate", "random"], seeds=8, trials=15)
    assert ours.median[14] <= 0.05
    assert ours.median[14] <= 0.5 * chance.median[14]
    assert len(ours.median) == len(ours.worst) == 15


def test_of_a_space_recorded_in_part_only_that_part_is_tried(space: Space, tmp_path: Path) -> None:
    some = dict([*trim(space, surface().facts()).candidates.items()][::3])
    part = table.record(tmp_path / "table.jsonl", header(surface()), some, surface())
    trimmed = search.recorded(part, space)
    baselines = {each.config.key() for each in surface().baselines()}
    assert set(trimmed.candidates) == set(some) | baselines
    settings = search.settings_of(SURROGATE, seed=0, trials=len(trimmed.candidates), seeding=True)
    assert search.regret_curve(part, trimmed, settings)[-1] <= 0.02


def test_a_table_of_another_space_is_refused(space: Space, tmp_path: Path) -> None:
    part = table.record(tmp_path / "table.jsonl", header(surface()), {}, surface())
    with pytest.raises(TrialError, match="no configuration of this space"):
        search.recorded(part, space.only("loader", ["threads"]))


@pytest.mark.parametrize("name", [name for name in samplers.SAMPLERS if name != "gp"])
def test_each_sampler_searches_and_a_regret_curve_hangs_on_its_seed_alone(
    recorded: Table, space: Space, name: str
) -> None:
    trimmed = search.recorded(recorded, space)
    settings = [search.settings_of(samplers.named(name), seed=seed, trials=14, seeding=False) for seed in (1, 1, 2)]
    found = search.search(recorded, trimmed, settings[0])
    assert {row.origin.detail for row in found.rows} & samplers.SAMPLERS.keys() == {name}
    read = [[row.value for row in search.search(recorded, trimmed, each).rows] for each in settings]
    assert read[0] == read[1] != read[2]
    curves = [search.regret_curve(recorded, trimmed, each) for each in settings[:2]]
    assert curves[0] == curves[1]
    assert all(0.0 <= regret <= 1.0 for regret in curves[0])


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_a_sampler_without_its_package_names_the_extra(space: Space) -> None:
    with pytest.raises(MissingExtraError, match="torch"):
        samplers.named("gp").create(session_of(space, Surface()))


def test_a_machine_is_played_the_same_each_time_and_a_short_search_ends_near_its_best() -> None:
    machine = Played(KINDS[0], 0)
    trimmed = machine.candidates()
    config = next(iter(trimmed.candidates.values()))
    assert machine.rate(config) == Played(KINDS[0], 0).rate(config) != Played(KINDS[0], 1).rate(config)
    settings = search.settings_of(samplers.named("surrogate"), seed=0, trials=16, seeding=True)
    found = study.search(trimmed, machine, machine.facts(), settings).best_config
    assert found is not None
    assert machine.rate(found) >= 0.95 * max(map(machine.rate, trimmed.candidates.values()))
