"""Recorded tables, and searches over them."""

from __future__ import annotations

from pathlib import Path

import pytest
from replaying import samplers, search, table
from replaying.table import Header, Table

from autopipe.errors import TrialError
from autopipe.measure.outcome import Measurement, TrialFailure
from autopipe.pipeline.config import ModelSetup, Params, PipelineConfig, to_config
from autopipe.pipeline.space import Space
from autopipe.search.feasible import trim
from autopipe.search.measurer import Effort
from autopipe.search.surrogate import SURROGATE
from tests.fakes.surface import Surface


def header(surface: Surface) -> Header:
    facts = surface.facts()
    return Header(
        name="surface",
        hardware="none",
        space="test",
        cores=facts.cores,
        accelerator=facts.accelerator,
        batch_size=facts.workload.batch_size,
        sample_count=facts.workload.samples,
        prefix_bytes=facts.workload.fixed_bytes,
        compact_bytes=facts.workload.compact_bytes,
        finished_bytes=facts.workload.finished_bytes,
        ceilings=list(surface.ceilings([ModelSetup()])),
        baselines={each.name: each.config.model_dump(mode="json") for each in surface.baselines()},
    )


def record(path: Path, space: Space, surface: Surface, rounds: int = 1) -> Table:
    candidates = trim(space, surface.facts()).candidates
    return table.record(path, header(surface), candidates, surface, rounds=rounds)


def surface(seed: int = 1) -> Surface:
    """A machine where the loader counts: few configurations are near the best."""
    return Surface(cores=4, model_rate=60_000.0, quirks=seed, seed=seed, noise=0.01)


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.gz"])
def test_a_table_holds_every_candidate_and_baseline_once(space: Space, tmp_path: Path, name: str) -> None:
    recorded = record(tmp_path / name, space, surface())
    keys = {each.key for each in trim(space, surface().facts()).candidates}
    assert recorded.entries.keys() == keys | {each.config.key() for each in surface().baselines()}
    assert table.read(tmp_path / name) == recorded


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.gz"])
def test_recording_goes_on_where_it_was_cut_off(space: Space, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    whole = record(path, space, surface())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    left = len(table.read(path).entries)
    again = surface()
    assert record(path, space, again).entries.keys() == whole.entries.keys()
    assert 0 < left == len(whole.entries) - len(again.measured)


def test_those_near_the_best_are_measured_several_times(space: Space, tmp_path: Path) -> None:
    once = record(tmp_path / "table.jsonl", space, surface())
    best = max(once.rates().values())
    again = surface()
    entries = record(tmp_path / "table.jsonl", space, again, rounds=3).entries
    near = {key for key, rate in once.rates().items() if rate >= 0.85 * best}
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


def test_a_replayed_measurement_is_near_the_recorded_one_and_another_each_time(space: Space, tmp_path: Path) -> None:
    recorded = record(tmp_path / "table.jsonl", space, surface())
    entry = next(iter(recorded.entries.values()))
    measurer = search.Replay(recorded, seed=2)
    first, second = (measurer.measure(entry.config, effort=Effort.SEARCH) for _ in range(2))
    assert isinstance(first, Measurement)
    assert isinstance(second, Measurement)
    assert first.windows != second.windows
    assert first.images_per_second.value == pytest.approx(entry.rate, rel=0.03)


def test_between_recorded_configurations_the_nearest_is_taken(space: Space, tmp_path: Path) -> None:
    measurer = search.Replay(record(tmp_path / "table.jsonl", space, surface()))
    shared: Params = {"loader": "threads", "threads.queue_size": 8, "cache": "memory", "finish": "device"}

    def threads(workers: int) -> PipelineConfig:
        return to_config({**shared, "threads.workers": workers, "device_prefetch": 2, "devices": 1})

    assert measurer.nearest(threads(7)) in (threads(6).key(), threads(8).key())


def test_on_the_cores_what_differs_without_effect_is_one_configuration(space: Space, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    apart = record(path, space, surface()).entries
    path.write_text(path.read_text().replace('"accelerator":true', '"accelerator":false', 1))
    on_cores = table.read(path)
    assert {each.config.device_prefetch for each in apart.values()} == {0, 2}
    assert {each.config.device_prefetch for each in search.recorded(on_cores, space).candidates} == {0}
    for key, entry in on_cores.entries.items():
        others = (entry.config.model_copy(update={"device_prefetch": count}).key() for count in (0, 2))
        runs = [run for other in others if other in apart for run in apart[other].runs]
        assert len(entry.runs) == len(runs) >= len(apart[key].runs)
        assert all(run in entry.runs for run in runs)


def test_the_default_sampler_beats_random_by_far_where_the_loader_counts(space: Space, tmp_path: Path) -> None:
    recorded = record(tmp_path / "table.jsonl", space, surface())
    ours, chance = search.compare(recorded, space, ["surrogate", "random"], seeds=8, trials=15)
    assert ours.median[14] <= 0.05
    assert ours.median[14] <= 0.5 * chance.median[14]
    assert len(ours.median) == len(ours.worst) == 15


def test_of_a_space_recorded_in_part_only_that_part_is_tried(space: Space, tmp_path: Path) -> None:
    some = trim(space, surface().facts()).candidates[::3]
    part = table.record(tmp_path / "table.jsonl", header(surface()), some, surface())
    trimmed = search.recorded(part, space)
    baselines = {each.config.key() for each in surface().baselines()}
    assert {each.key for each in trimmed.candidates} == {each.key for each in some} | baselines
    settings = search.settings_of(SURROGATE, seed=0, trials=len(trimmed.candidates), seeding=True)
    curve = search.regret_curve(part, trimmed, settings)
    assert curve[-1] <= 0.02


def test_a_table_of_another_space_is_refused(space: Space, tmp_path: Path) -> None:
    part = table.record(tmp_path / "table.jsonl", header(surface()), [], surface())
    with pytest.raises(TrialError, match="no configuration of this space"):
        search.recorded(part, space.only("loader", ["threads"]))


def test_a_regret_curve_hangs_on_its_seed_alone(space: Space, tmp_path: Path) -> None:
    recorded = record(tmp_path / "table.jsonl", space, surface())
    trimmed = search.recorded(recorded, space)
    settings = [search.settings_of(samplers.named("random"), seed=seed, trials=8, seeding=False) for seed in (1, 1, 2)]
    curves = [search.regret_curve(recorded, trimmed, each) for each in settings]
    assert curves[0] == curves[1] != curves[2]
    assert all(0.0 <= regret <= 1.0 for regret in curves[0])
