"""Machines that are played, and whole searches of them."""

from __future__ import annotations

from replaying import search
from replaying.played import KINDS, Played
from replaying.samplers import named

from autopipe.search import study

SMALL = KINDS[0]


def test_a_machine_is_played_the_same_each_time_and_no_two_are_alike() -> None:
    config = Played(SMALL, 1).candidates().candidates[0].config
    first, again, other = Played(SMALL, 1), Played(SMALL, 1), Played(SMALL, 2)
    assert first.rate(config) == again.rate(config) != other.rate(config)


def test_a_short_search_of_a_played_machine_ends_near_the_best_of_its_space() -> None:
    machine = Played(SMALL, 0)
    trimmed = machine.candidates()
    settings = search.settings_of(named("surrogate"), seed=0, trials=16, seeding=True)
    found = study.search(trimmed, machine, machine.facts(), settings).best_config
    assert found is not None
    assert machine.rate(found) >= 0.95 * max(machine.rate(each.config) for each in trimmed.candidates)
