"""A training that tunes itself: other configurations take its loader's place while it runs, and stay if faster.

Batches do not depend on the configuration, so the training cannot tell. Nothing is touched while the model hardly
waits for data. If it waits, the same race as a tune's (`autopipe.search.race`) names other configurations, and its
measure is the training: they run one at a time in windows by turns with the running one, and are judged in pairs, with
one error probability shared over all looks. What is not faster is taken back, and so is what fails. The model's setup,
the storage form and the transfers stay as they are, because they are compiled or built in. The rules come first;
`LiveTuner` follows a training by them. `race` has what a look at the samples tells.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import logging
import math
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Final, TypeVar

from autopipe.errors import AutopipeError
from autopipe.hardware import machine
from autopipe.measure.stats import CLEAR, EQUAL, FEWEST_PAIRS, REPEATABILITY, estimate, student_t
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.config import LOADERS, PipelineConfig
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.switching import SwitchingLoader, beside, close_when_open
from autopipe.search.race import Look, OfDataset, changeable
from autopipe.search.result import MOST_CHANGES, WORTH, Change, Learnt
from autopipe.values import Estimate
from autopipe.workload.ops.planner import make_plan
from autopipe.workload.workload import Workload

if TYPE_CHECKING:
    from autopipe.pipeline.devices.trainer import Trainer

_log = logging.getLogger(__name__)

# -------------------- windows and verdicts

WAITS: Final = 0.02  # a model that waits for less of its time has nothing to gain

_WINDOW_SECONDS = 0.25  # the least of a window
_LOOKS = (1, FEWEST_PAIRS, 4, 6, 9, 13)  # pairs after which a trial is judged; more are for what seems to be faster
_WORTH_KEEPING = -math.log(EQUAL)  # a smaller gain is not worth more workers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Consecutive batches of a training."""

    batches: int
    seconds: float
    waited: float  # seconds of these in which the model waited for data
    cut: bool = False  # whether it was ended early, because it took too long

    @property
    def rate(self) -> float:
        """Batches a second."""
        return self.batches / max(self.seconds, 1e-9)


def wait_share(windows: Iterable[Window]) -> float:
    """Return the share of the time in which the model waited for data, 0 to 1."""
    listed = list(windows)
    return sum(each.waited for each in listed) / max(sum(each.seconds for each in listed), 1e-9)


def noise(windows: Sequence[Window]) -> float:
    """Return the standard deviation of a window's rate, in log units, at least 0.02."""
    logs = [math.log(each.rate) for each in windows]
    return max(0.02, stdev(logs) if len(logs) >= FEWEST_PAIRS else 0.0)


def judged(ratios: Sequence[float], noise: float) -> bool | None:
    """Return whether another configuration is faster, by pairs of adjacent windows; None: that is open. One pair is
    enough if they are far apart, else 5 % are shared out evenly among the looks.
    """
    if len(ratios) not in _LOOKS:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    mean = fmean(logs)
    if len(logs) == 1:
        return None if abs(mean) <= CLEAR * REPEATABILITY * noise else mean > 0
    reach = student_t(len(logs) - 1, 0.05 / len(_LOOKS)) * stdev(logs) / math.sqrt(len(logs))
    if mean - reach > 0 and mean > _WORTH_KEEPING:
        return True
    expected = mean + reach if len(logs) < 6 else mean  # six are enough for what does not seem to be faster
    return False if expected < _WORTH_KEEPING or len(logs) == _LOOKS[-1] else None


# -------------------- what may be lost, and whether to look again

_LONG = 3  # windows in a row: noise explains fewer


def allowed_loss(epoch_seconds: float, trained_seconds: float) -> float:
    """Return the seconds that trials may have cost: 2 % of the first epoch, or a second, and 0.5 % of later ones."""
    return max(1.0, 0.02 * epoch_seconds) + 0.005 * max(0.0, trained_seconds - epoch_seconds)


def has_fallen(windows: Sequence[Window], settled: Estimate) -> bool:
    """True if the last windows are a tenth slower than the settled rate, for longer than noise explains."""
    last = windows[-_LONG:]
    least = min(settled.low, 0.9 * settled.value)
    return len(last) == _LONG and all(each.rate < least for each in last)


_MOST_TRIALS = 16  # of one race

Found = TypeVar("Found")
Keep = Callable[[Learnt], object]  # gets what was learnt at the end of each epoch, in a thread of its own
Steps = Generator[None, tuple[float, float], Found]
"""Goes on with each batch, which it gets as the seconds that were waited for it, and those of its step."""


@dataclasses.dataclass(eq=False)
class LiveTuner:
    """Watches a training, and tries other configurations while it runs."""

    loader: SwitchingLoader
    config: PipelineConfig  # of the running loader
    opened: Callable[[PipelineConfig], Loader]  # opens others, and is called in a thread, as is `look`
    look: Callable[[], Look | OfDataset]  # measures what costs how much
    _: dataclasses.KW_ONLY
    keep: Keep = lambda learnt: None
    changes: list[Change] = dataclasses.field(default_factory=list)  # all that was tried so far
    _known: Look | OfDataset | None = None
    _windows: list[Window] = dataclasses.field(default_factory=list)  # the last ones of the running configuration
    _race: _Race | None = None  # that is going on
    _unfit: set[str] = dataclasses.field(default_factory=set)  # kinds of loaders, and configurations' keys, that failed
    _epoch: int = 0  # that is read
    _ended: int = 0  # epochs
    _filled_after: int = 1  # ended epochs, if there is a cache
    _trained: float = 0.0  # seconds
    _lost: float = 0.0  # of these, by trials
    _other: tuple[Loader, PipelineConfig] | None = None  # on trial
    _failure: Exception | None = None
    _opening: Future[Loader] | None = None
    _keeping: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._first = self.config
        self._work: Steps[None] | None = self._tuning()
        next(self._work)

    # -------- what the loader tells

    def took(self, waited: float, stepped: float) -> None:
        self._trained += waited + stepped
        if self._work is None:
            return
        try:
            self._work.send((waited, stepped))
        except StopIteration:
            self._work = None
        except Exception:  # noqa: BLE001  # whatever it was, the training goes on
            _log.exception("The training goes on without tuning itself.")
            self._work = None
            if self._race is not None:
                self._race.end()
            self.loader.stay()
            self.loader.keep()

    def epoch_ended(self, epoch: int) -> None:
        self._epoch, self._ended = epoch + 1, self._ended + 1
        if len(self._windows) >= FEWEST_PAIRS:
            self._keeping = threading.Thread(target=_kept, args=(self.keep, self.learnt()), name="autopipe-keeping")
            self._keeping.start()

    def failed(self, loader: Loader, error: Exception) -> None:
        self._failure = error

    def instead(self, error: Exception) -> Loader | None:
        """Open the configuration of the beginning again, if another one fails that was kept."""
        if self.config is self._first:
            return None
        try:
            loader = self.opened(self._first)
        except Exception:  # noqa: BLE001  # the error of the running loader is raised
            return None
        self._end()
        self._note(self._first, self.config, epoch=self._epoch, kept=False, failure=str(error))
        self.config = self._first
        self._work = self._tuning()
        next(self._work)
        return loader

    def closed(self) -> None:
        self._end()
        if self._keeping is not None:
            self._keeping.join()

    def _end(self) -> None:
        opening, self._opening, self._other, self._work = self._opening, None, None, None
        if opening is not None:
            close_when_open(opening)
        if self._race is not None:
            self._race.end()

    def learnt(self) -> Learnt:
        """Return the running configuration with its rate in the last windows."""
        return Learnt(
            config=self.config.model_dump(mode="json"),
            images_per_second=estimate([each.rate * self.loader.batch_size for each in self._windows]),
            data_wait_share=min(1.0, wait_share(self._windows)),
            trained_at=datetime.datetime.now(datetime.UTC),
            changes=tuple(self.changes[-MOST_CHANGES:]),
        )

    # -------- its work, batch by batch

    def _tuning(self) -> Steps[None]:
        yield from self._window()  # in which functions compile
        while True:
            yield from self._renewed()
            while wait_share(self._windows[-_LONG:]) <= WAITS:
                yield from self._goes_on()
            settled = yield from self._trying()
            if not (yield from self._until_full(settled)):
                self._known = None  # what costs how much has changed

    def _until_full(self, settled: Estimate) -> Steps[bool]:
        """Go on until the cache is full, and return True; or False, if the rate has fallen and the model waits."""
        was_filling = self._is_filling
        while not (has_fallen(self._windows, settled) and wait_share(self._windows[-_LONG:]) > WAITS):
            if was_filling and not self._is_filling:
                return True
            yield from self._goes_on()
            if all(each.rate > settled.high for each in self._windows):
                settled = estimate([each.rate for each in self._windows])
        return False

    @property
    def _is_filling(self) -> bool:
        return self.config.kept.in_memory and self._ended < self._filled_after

    def _goes_on(self) -> Steps[None]:
        """Add a window of the running configuration; the last six are kept."""
        window = yield from self._window()
        self._windows = [*self._windows, window][-6:]

    def _renewed(self) -> Steps[None]:
        """Put new windows in the place of all that are known."""
        self._windows = []
        while len(self._windows) < _LONG:
            yield from self._goes_on()

    def _trying(self) -> Steps[Estimate]:
        """Run a race until nothing is left to gain; return the rate that it ends with, in batches a second."""
        race = self._race = _Race(functools.partial(self._raced, self._windows))
        for _ in range(_MOST_TRIALS):
            while self._left() < max(_WINDOW_SECONDS, 1 / self._windows[-1].rate):  # the least that a trial may lose
                yield from self._goes_on()
            candidate = yield from self._until_done(beside(race.asks))
            if candidate is None:
                break
            before, epoch, self._failure, self._other = self.config, self._epoch, None, None
            ratio: float | None = None
            self._opening = beside(functools.partial(self.opened, candidate))
            try:
                other = yield from self._until_done(self._opening)
            except Exception as error:  # noqa: BLE001  # whatever it was, the running loader goes on
                self._failure = error
            else:
                self._opening, self._other = None, (other, candidate)
                ratio = yield from self._trial(candidate, other)
            self._opening = self._other = None
            kept, rate = self.config is candidate, self._windows[-1].rate * self.loader.batch_size
            race.answers(None if ratio is None else rate if kept else ratio * rate)
            failure = None if self._failure is None else str(self._failure)
            self._note(before, candidate, epoch=epoch, ratio=ratio, kept=kept, failure=failure)
        race.end()
        return estimate([each.rate for each in self._windows])

    def _raced(self, windows: Sequence[Window], going: _Race) -> None:
        """Run a race, which asks for trials, in a thread of its own. It is over once the model hardly waits."""
        look = self._known = self._known or self.look()
        now, is_filling, for_later = self.config, self._is_filling, not self.loader.is_last
        images = self.loader.batch_size * sum(each.batches for each in windows)
        seconds = sum(each.seconds for each in windows)

        @functools.cache
        def gain(keep: str) -> float:
            """What a cache brings once it is full, by loaders alone: in the training, an empty one brings nothing."""
            places = keep, now.kept.memory
            kept, fresh = (look.alone(changeable(now).model_copy(update={"keep": each})) for each in places)
            return kept / fresh if kept and fresh else 1.0

        def allowed(config: PipelineConfig) -> bool:
            if not {config.key(), config.loader.kind}.isdisjoint(self._unfit):
                return False
            if config.keep in (now.keep, self.config.keep):
                return True
            return for_later and not is_filling and (not config.kept.in_memory or gain(config.kept.memory) >= WORTH)

        def measure(config: PipelineConfig) -> float | None:
            rate = going.measured(config)
            is_empty = config.kept.in_memory and config.keep != now.keep
            return rate if rate is None or not is_empty else rate * gain(config.kept.memory)

        race = look.race(measure, lambda: going.is_over, now=now, allowed=allowed)
        race.table[changeable(now).key()] = changeable(now), images / seconds
        race.enough = (1 - WAITS) * images / max(seconds * (1 - wait_share(windows)), 1e-9)
        race.of_loaders()

    def _trial(self, candidate: PipelineConfig, other: Loader) -> Steps[float | None]:
        """Run another configuration by turns, and keep the faster; return the ratio of rates, None if it failed."""
        loader, mine, ratios = self.loader, self.loader.loader, list[float]()
        fills = candidate.kept.in_memory and candidate.keep != self.config.keep
        spread_of = noise(self._windows)
        is_faster, ours = None, [self._windows[-1]]
        while is_faster is None:
            # ours, theirs; theirs, ours; ours, theirs; ...: two windows of one follow each other
            theirs = yield from self._of(other)
            if theirs is not None and not theirs.cut and not ours:
                window = yield from self._of(mine)
                ours = [] if window is None else [window]
            if theirs is None or not ours:
                break
            ratios.append(theirs.rate / ours.pop().rate)
            if theirs.cut:
                break
            is_faster = judged(ratios, spread_of)
            if fills:  # it may cost 5 % and noise, as the next epochs gain by it
                is_faster = math.log(ratios[0] / 0.95) > -REPEATABILITY * spread_of
            if is_faster is None and loader.loader is mine:
                yield from self._goes_on()
                ours = self._windows[-1:]
        yield from self._served_by(other if is_faster else mine)
        if loader.loader is other:
            self._filled_after = self._ended + 2 if fills else self._filled_after  # all but the first few in this epoch
            self.config = candidate
        loader.keep()
        self._other = None
        if self.config is candidate:
            yield from self._renewed()
        return math.exp(fmean(map(math.log, ratios))) if ratios and self._failure is None else None

    def _of(self, wanted: Loader) -> Steps[Window | None]:
        """Have a loader serve, and return a window of it, which is cut if the other one is slow; None if it failed."""
        usual, serving = self._windows[-1].rate, self.loader
        # One that has lost half of a window ends before its own does; the running one is measured whole.
        most = max(_WINDOW_SECONDS, min(self._left(), self._windows[-1].seconds / 2))
        most = math.inf if self._on_trial(wanted) is None else most
        if serving.loader is not wanted:
            self._lost += max(0.0, (yield from self._served_by(wanted)))
            # Batches that were made while the loader before still served come faster than others.
            ready = (serving.occupancy() or (0, 0))[0] + self._at_once()
            began = yield from self._window(most, batches=ready)
            self._lost += max(0.0, began.seconds - began.batches / usual)
            if began.cut:
                return began if serving.loader is wanted else None
        window = yield from self._window(most)
        self._lost += max(0.0, window.seconds - window.batches / usual)
        return window if serving.loader is wanted else None

    def _served_by(self, wanted: Loader) -> Steps[float]:
        """Have a loader serve, and return the seconds lost until it does, or has failed."""
        lost, usual = 0.0, self._windows[-1].rate
        if self._failure is None:
            self.loader.switch(wanted)
        while self.loader.is_switching:
            waited, stepped = yield
            lost += waited + stepped - 1 / usual
        return lost

    def _until_done(self, future: Future[Found]) -> Steps[Found]:
        """Go on with windows of the running configuration until there is a result."""
        while not future.done():
            yield from self._goes_on()
        return future.result()

    def _window(self, most: float = math.inf, batches: int | None = None) -> Steps[Window]:
        """Return the next window of two rounds of the workers, or so many batches, cut once it loses `most` seconds."""
        least = max(4, 2 * self._at_once()) if batches is None else batches
        least_seconds = _WINDOW_SECONDS if batches is None else 0.0
        usual = 1 / self._windows[-1].rate if self._windows else 0.0
        count, seconds, waiting = 0, 0.0, 0.0
        while (count < least or seconds < least_seconds) and seconds - count * usual <= most:
            waited, stepped = yield
            count, seconds, waiting = count + 1, seconds + waited + stepped, waiting + waited
        return Window(batches=count, seconds=seconds, waited=waiting, cut=seconds - count * usual > most)

    def _at_once(self) -> int:
        """Return how many batches the serving loader makes side by side."""
        serving = self.loader.loader
        config = self._on_trial(serving) or self.config
        return serving.batches_at_once or config.loader.worker_count() or machine.usable_cores()

    def _on_trial(self, loader: Loader) -> PipelineConfig | None:
        """Return the configuration of the loader that is on trial; None if it is another one."""
        return self._other[1] if self._other is not None and self._other[0] is loader else None

    def _left(self) -> float:
        """Return the seconds that trials may still lose."""
        return allowed_loss(len(self.loader) / self._windows[-1].rate, self._trained) - self._lost

    def _note(self, before: PipelineConfig, after: PipelineConfig, **known: Any) -> None:
        change = Change(before=before.short(), after=after.short(), **known)
        if change.failure is not None:
            failed, goes_on = (before, after) if change.kept else (after, before)
            is_alone = failed.loader.kind != goes_on.loader.kind
            self._unfit.add(failed.loader.kind if is_alone else failed.key())
            _log.warning("%s failed, and %s goes on: %s", failed.short(), goes_on.short(), change.failure)
        else:
            said = "takes the place of" if change.kept else "was no better than"
            _log.info("%s %s %s: %.2f times its rate.", change.after, said, change.before, change.ratio or 0.0)
        self.changes.append(change)


class _Race:
    """A race in a thread of its own, which asks the training to measure what it compares."""

    def __init__(self, run: Callable[[_Race], None]) -> None:
        self.is_over = False
        self._asked: queue.SimpleQueue[PipelineConfig | Exception | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(run,), name="autopipe-race", daemon=True).start()

    def _run(self, run: Callable[[_Race], None]) -> None:
        ended = None
        try:
            run(self)
        except Exception as error:  # noqa: BLE001  # raised where the next question is waited for
            ended = error
        self._asked.put(ended)

    def measured(self, config: PipelineConfig) -> float | None:
        """Return the images/s of a configuration in the training; None if it failed, or the race is over."""
        if self.is_over:
            return None
        self._asked.put(config)
        return self._answers.get()

    def asks(self) -> PipelineConfig | None:
        """Wait for the next configuration to measure, and return it; None if the race has ended. Raises its error."""
        asked = self._asked.get()
        if isinstance(asked, Exception):
            raise asked
        return asked

    def answers(self, rate: float | None) -> None:
        self._answers.put(rate)

    def end(self) -> None:
        self.is_over = True
        self._answers.put(None)


def _kept(keep: Keep, learnt: Learnt) -> None:
    try:
        keep(learnt)
    except (AutopipeError, OSError) as error:
        _log.warning("What this training has learnt was not written: %s", error)


def follow(
    loader: Loader,
    workload: Workload,
    config: PipelineConfig,
    opened: Callable[[PipelineConfig], Loader],
    keep: Keep = lambda learnt: None,
    kinds: Sequence[str] = (),
) -> Loader:
    """Return a loader of the same batches that begins as `loader`, which it owns, and tunes itself while it is read. A
    user's dataset that is read as it is, or that its epochs change, keeps its loader, as the log says; another one
    changes between these `kinds` of loaders (none: all). `opened` opens another configuration.
    """
    own = wrap.as_it_is(workload)
    if own is not None and (own.loader.kind == config.loader.kind or getattr(workload.data, "has_hooks", False)):
        _log.warning("A wrapped dataset makes its own batches, so it is trained as it is, without `tune`.")
        return loader
    live = SwitchingLoader(loader)

    def look() -> Look | OfDataset:
        if own is not None:
            fit = [kind for kind in wrap.kinds_of_workers() if LOADERS[kind].against(workload.data) is None]
            return OfDataset(tuple(kinds or fit or [config.loader.kind]))
        return Look.at(workload, make_plan(workload))

    live.watch = LiveTuner(live, config, opened, look, keep=keep)
    return live


def able(trainer: Trainer, workload: Workload, config: PipelineConfig, keep: Keep = lambda learnt: None) -> None:
    """Let a trainer of this workload and configuration tune itself, when its `fit` is told to."""
    opened = trainer.opened
    assert opened is not None
    trainer.live = lambda it: follow(it.loader, workload, config, opened, keep)


def open_loader(
    workload: Workload,
    config: PipelineConfig,
    shard: tuple[int, int] = (0, 1),
    keep: Keep = lambda learnt: None,
    kinds: Sequence[str] = (),
) -> Loader:
    """Open a loader that tunes itself, for a training of one's own. Its workers do what a trainer leaves to the device,
    `keep` gets configurations of a trainer, and a user's dataset changes between these `kinds` of loaders.
    """
    open_one = assembly.opener(workload, shard=shard)

    def opened(chosen: PipelineConfig) -> Loader:
        return open_one(chosen.model_copy(update={"finish": "host"}))

    return follow(opened(config), workload, config, opened, keep, kinds)
