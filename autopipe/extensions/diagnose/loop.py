"""`ap.watch`: whether a training loop of one's own waits for its data. And loops without `fit` that `diagnose` finds.

No framework is imported here. Times of such a loop are the host's: a device may still compute while a batch is waited
for, so a wait counts only if the devices have nothing left to do when the batch comes.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from autopipe import frameworks
from autopipe.errors import ConfigError
from autopipe.extensions.diagnose import steps as timing
from autopipe.extensions.diagnose.data import (
    ahead_of,
    begins_anew,
    held_ahead,
    larger,
    listed,
    misordered,
    of_loader,
    shared,
    shuffled_ahead,
)
from autopipe.extensions.diagnose.samples import Samples
from autopipe.extensions.diagnose.steps import Look, StepClock
from autopipe.frameworks import grain, tfdata
from autopipe.hardware import machine, processes
from autopipe.measure import epochs, outcome, randomness
from autopipe.measure.lines import LineWatch, users_frame
from autopipe.pipeline.batching import stream, torch_batches
from autopipe.values import capital, count_text

if TYPE_CHECKING:  # imported when there is something to tell
    from autopipe.extensions.diagnose.watched import Watched

T = TypeVar("T")

_ALL = 0.99  # of the steps' own time is compiling: what they take without it is not known
_BUSY_SECONDS = 0.001  # that devices still compute when a batch comes: it was not waited for


class Loop:
    """Times the steps of a loop: each begins when a batch is asked for, and ends when the next one is."""

    def __init__(self, look: Look, data: Any, place: str, warnings: Sequence[str] = ()) -> None:
        self.clock, self.is_done, self.trains, self.eager = StepClock(), False, 0, 0  # steps
        self.traced = set[int]()  # steps in which @tf.function read its Python anew
        self._look, self._kind, self._asked = look, kind_of_data(data), timing.asked_of(data)
        self._workers, self._of_grain = of_loader(data, "num_workers"), grain.workers(data)
        self._forks = stream.forks_workers(data)
        self._kind += _OF_TENSORS * _stacks_tensors(data) or _OF_STREAM * torch_batches.is_streamed(data)
        self._kind += _trainer() * (self._kind == "torch DataLoader")
        of = getattr(data, "_dataset", data) if self._kind == "tf.data.Dataset" else data  # an iterator's dataset
        shuffles = hasattr(of, "element_spec") and tfdata.shuffle_buffer(of) is not None
        self._anew = begins_anew(of, once=_MAKE_ONCE) if shuffles or self._workers else None
        self._copied = randomness.is_passed_once(data)
        self.place, self.beside = place, set[str]()  # other places that read once for each step, too
        self._made, self._passes, self.comes_to_end = list[weakref.ref[Any]](), 0, False
        self._loader: Callable[[], Any] = lambda: None  # what stands for the loader that is read here
        self.is_traced = False  # a gradient of JAX was taken in it, which a compiled step does once
        self.takes_any = self.is_another = False  # loader; than the one before, which did not train
        index = of_loader(data, "index_sampler")  # of batches, by a sampler
        sampler = getattr(index, "sampler", index)
        self._order = _SET_EPOCH if hasattr(sampler, "set_epoch") else ""
        self._in_order = [_IN_ORDER] * (type(sampler).__name__ == "SequentialSampler")
        if self._workers and of_loader(data, "persistent_workers"):
            self._order += _STAY * hasattr(of_loader(data, "dataset"), "set_epoch")
        self._order = f": {grain.ORDERS_ANEW}" if grain.is_grain(data) else self._order
        self._images: int | None = None  # of the step that goes on
        self._is_late = False  # a step is made on a batch that was read ahead, behind the end of the data
        self._shapes, self._is_new = set[Any](), False  # of all batches; of the step that goes on
        self._batch_size = 1
        self._ahead, self._held, self._larger = ahead_of(of), list[str](), list[str]()
        self._data: Any = None if epochs.made_by(of, "CacheDataset") else of  # until the first batch
        self._sampler = processes.Sampler()
        self.line_watch = LineWatch(whole=True)
        self.warnings = (*warnings, *(shared(data) if self._workers else ()), *listed(data), *shuffled_ahead(of))
        self.warnings += tuple(misordered(of))
        self.warnings += tuple(f"{capital(said)}." for said in (epochs.few_weights(data),) if said is not None)
        self.samples = Samples(drawn=epochs.draws_parts(of))

    def pass_began(self, data: Any = None) -> None:
        self.clock.spent_on("between")
        self.clock.epoch_began()
        index = of_loader(data, "index_sampler")  # one object for as long as a DataLoader lives
        self.samples.epoch_began(None if index is None else id(index))
        self._passes += 1
        if type(index).__weakrefoffset__ and all(each() is None for each in self._made):
            self._made.append(weakref.ref(index))

    def trained(self) -> None:
        self.trains += 1
        self._is_late |= self._images is None
        self.samples.epoch_trains()

    def is_of(self, data: Any) -> bool:
        """Return False for another loader than the one that is trained on here and may come again."""
        loader = of_loader(data, "index_sampler", of_loader(data, "dataset"))
        known = self._loader()
        if known is not loader and (known is None or not self.trains) and type(loader).__weakrefoffset__:
            self.is_another = bool(self.clock.steps)
            self._loader, self.comes_to_end = weakref.ref(loader), False
        return known is None or self._loader() is loader or self.takes_any or self.place in self.beside

    def asked(self) -> bool:
        """Note that a batch is asked for, which ends the step before; return True if enough was seen."""
        if self._images is not None:
            self.clock.step_ended(self._images, is_new=self._is_new)
        elif self._is_late:
            self.clock.spent_on("steps")
        self._images, self._is_late = None, False
        steps, seconds = self.clock.steps, self.clock.seconds
        if self.is_done:
            return False
        if len(steps) == 1 and self.line_watch.is_new:
            self._sampler.start()
            self.line_watch.start()
        elif self._look.is_enough(len(steps), seconds, timing.LINES_SHARE):
            self.line_watch.stop()
        return self._look.is_enough(len(steps), seconds)

    def came(self, batch: Any) -> None:
        asked_until = time.perf_counter()
        if not self.is_done:
            frameworks.wait_for_devices()
        hidden = time.perf_counter() - asked_until >= _BUSY_SECONDS
        self.clock.step_began(fetched=not hidden)
        self._images = timing.rows_of(batch)
        if not self.is_done:
            known = len(self._shapes)
            if not known:
                self._held, self._larger = [*held_ahead(self._ahead, batch)], [*larger(self._data, batch)]
                self._data = None
            self._shapes.add(timing.shape_of(batch))
            self._is_new = len(self._shapes) > known
            self.samples.trained(_x_and_y(batch))
        self._batch_size = max(self._batch_size, self._images)

    def leave(self) -> None:
        self.is_done = True
        self.line_watch.stop()
        self._sampler.stop()

    def ended(self, others: Iterable[Loop] = ()) -> Watched | None:
        """Stop looking. Return the figures of the steps, or None if there were too few. `others`: of this script."""
        from autopipe.extensions.diagnose import watched

        self.leave()
        lines, usage = self.line_watch.stop(), self._sampler.stop()
        steps = self.clock.steps
        if len(steps) <= timing.WARM_UP_STEPS:
            return None
        seen, resources = timing.steady(steps), outcome.Resources.of(usage)
        cores = machine.core_time()
        if (ranks := int(os.environ.get("LOCAL_WORLD_SIZE", "1"))) > 1:  # by torchrun: others are this training's, too
            resources = resources.model_copy(update={"others_cpu_percent": None})
            cores /= ranks if len(machine.allowed()) == os.cpu_count() else 1  # unless each has cores of its own
        figures = self.clock.figures(seen)
        compiled = timing.compiling(seen, "jax" if frameworks.running_framework() == "JAX" else None)
        own = figures["seconds"] - figures["waiting_seconds"]
        alone = None if compiled > _ALL * own else figures["images"] / max(1e-9, own - compiled)
        one_by_one = not self.comes_to_end and all(step.is_first for step in steps)
        self._anew = grain.workers_begin_anew() if self._kind.startswith("grain") else self._anew
        spent = [(sum(step.seconds for step in each.clock.steps), each.place) for each in others]
        took, place = max(spent, default=(0.0, ""))
        opening = figures["epochs"].first_batch_seconds if figures["epochs"] else 0.0
        ends = figures["epochs"] and figures["epochs"].between_seconds + opening
        at_loop = _AT_LOOP.format(place) if ends and took >= _MOST * ends else None
        opens = not ends or opening >= _MOST * ends or self._kind != "tf.data.Dataset"  # whose `iter` reads nothing
        waits = figures["waiting_seconds"] >= watched.NOTEWORTHY * figures["seconds"]
        running = frameworks.running_framework() if self._forks or (self._workers == 0 and waits) else None
        made = _LOADERS + _WITH_WORKERS * bool(self._workers) if 1 < len(self._made) > self._passes // 2 else None
        return watched.Watched(
            data=self._kind,
            loop=self.place,
            workers=self._workers if self._of_grain is None else self._of_grain,
            begins_anew=_ONE_BY_ONE if one_by_one else at_loop or made or (self._anew if opens else None),
            batch_size=self._batch_size,
            **{**figures, "between_seconds": 0.0},
            alone_images_per_second=alone,
            compiling_seconds=compiled,
            shapes=len(self._shapes),
            cores=cores,
            resources=resources,
            lines=lines,
            warnings=(
                *[f"{capital(_ONE_BY_ONE)}."] * one_by_one,
                *self.samples.values.no_numbers(),
                *self.samples.other_targets(),
                *self.samples.copies(self._workers if self._copied else 0, whole=self.comes_to_end),
                *self.samples.tested([(each.place, each.samples) for each in (self, *others)]),
                *([*self.samples.same_order(self._order)] or self._in_order if self.trains else ()),
                *(self.samples.hardly_mixed() if self.trains else ()),
                *resources.warnings,
                *timing.doubts(seen, has_queue=self._workers != 0),
                *timing.empty(steps),
                *timing.dropped(self._asked, steps),
                *[_EAGER] * (self.eager > len(steps) / 2),
                *[_TRACED.format(len(self.traced), len(steps))] * (len(self.traced) > len(steps) / 2),
                *[_FORKED.format(running)] * (running is not None and self._kind.startswith("torch")),
                *self._held,
                *(self._larger if waits else ()),
                *self.warnings,
            ),
        )


def _x_and_y(batch: Any) -> Any:
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        return batch
    one, other = (getattr(each, "shape", None) for each in batch[:2])
    return batch[: 1 if one == other else 2]  # of x's shape it may be another view, drawn; a third is Keras's weights


def _stacks_tensors(data: Any) -> bool:
    of = of_loader(data, "dataset")
    of = getattr(of, "dataset", of) if type(of).__name__ == "Subset" else of
    if getattr(of_loader(data, "collate_fn"), "__name__", "") != "default_collate":
        return False
    return type(of).__name__ == "TensorDataset" and sum(each[:1].nbytes for each in of.tensors) <= _SMALL


_SMALL = 2**16  # bytes of a sample, from which on copying takes most of the time
_SET_EPOCH = ", unless the loop calls `loader.sampler.set_epoch(epoch)` before each"
_EAGER = (
    "Steps run eagerly, op by op: @tf.function above a function that makes one step, model and gradients, compiles it, "
    "so that steps take less."
)
_TRACED = (
    "@tf.function traced and compiled the step anew in {} of {} steps. It does so for each other number of Python "
    "among its arguments (`tf.constant(number)` is one for all), for each other shape, and if it is made in the loop."
)
_FORKED = (
    "{} runs in this process: workers that a DataLoader forks from it may hang. Those of "
    'multiprocessing_context="forkserver" import the script instead, so put what trains under '
    "`if __name__ == '__main__':`; `ap.live` needs neither."
)
_IN_ORDER = (
    "The DataLoader asks for its samples one after another (shuffle=False), in each epoch the same way: shuffle=True "
    "mixes them, unless something else does."
)
_STAY = (
    ", as `set_epoch` of the dataset does not reach workers that stay (persistent_workers=True): they have it as it "
    "was when they began. `torch.zeros((), dtype=torch.int64).share_memory_()` for the epoch's number is seen by all"
)
_MAKE_ONCE = "`iter(dataset.repeat())`, made once, before all loops, goes on from pass to pass"
_MOST = 0.5
_AT_LOOP = "most of it in the loop that reads at {}, such as a validation"
_BY_ANOTHER = " (another loader)"  # such as a validation's, by the same function
_ONE_BY_ONE = (
    "each batch is the first of a new iterator, as by `next(iter(dataset))`, which opens the data and fills their "
    "buffers anew. Make the iterator once, before the loop"
)
_LOADERS = "each pass makes a DataLoader of its own. Unless each reads other data, make it once, before the loop"
_WITH_WORKERS = ", with persistent_workers=True, so that its workers stay"


class Watch(Generic[T]):
    """The batches of a dataset as they are, with the loop round them timed."""

    def __init__(self, dataset: Iterable[T], seconds: float) -> None:
        self._dataset: Any = dataset
        self._loop = Loop(Look(seconds=seconds), dataset, _place())
        self._told = weakref.finalize(self, _tell, self._loop, os.getpid())  # when it is dropped, or Python ends

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[T]:
        frameworks.require_running("ap.watch")
        dataset, loop = self._dataset, self._loop
        source = iter(dataset) if hasattr(dataset, "__iter__") else (dataset[at] for at in range(len(dataset)))
        loop.pass_began(dataset)
        try:
            while True:
                if loop.asked():
                    self._told()
                    loop.clock.pause_ended()
                try:
                    batch = next(source)
                except StopIteration:
                    loop.comes_to_end = True
                    return
                loop.came(batch)
                yield batch
                del batch  # its memory may go back to a loader before the next one is asked for
        finally:
            loop.asked()
            del self  # the thread that looks for lines may hold this frame, and what it drops would be told there


def watch(dataset: Iterable[T], *, seconds: float = 10.0) -> Watch[T]:
    """Return an iterable over the same batches that tells whether the loop over it waits for them.

    After some seconds of the loop, or at its end if that comes first, it prints the share of the time that the loop
    waits, its rate, the slow lines of making data, and a verdict. The loop goes on unchanged. Kept for all epochs, it
    is told once, with what passes between epochs. No framework is needed; the batches are the dataset's own objects in
    their own order.

    Args:
        dataset: any iterable of batches: a `tf.data.Dataset`, a torch `DataLoader`, a generator, a Grain dataset, a
            list; or an object with a length of which `dataset[i]` is a batch, such as a `keras.utils.PyDataset`.
        seconds: of the loop to watch.

    Raises:
        ConfigError: `dataset` cannot be looped over, or `seconds` is not above 0.

    Examples:
        >>> for x in ap.watch([np.zeros((4, 8, 8, 3))] * 3):
        ...     pass
    """
    if not seconds > 0:
        raise ConfigError(f"`seconds` must be above 0, but got {seconds!r}.")
    if not hasattr(dataset, "__iter__") and not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise ConfigError(
            f"`ap.watch` takes an iterable of batches, but got {type(dataset).__name__}.",
            hint="Pass what your loop reads: for batch in ap.watch(dataset).",
        )
    return Watch(dataset, seconds)


def _tell(loop: Loop, owner: int) -> None:
    if os.getpid() != owner or not loop.clock.steps:  # a forked process, or nothing was read
        return
    from autopipe.extensions.diagnose import watched
    from autopipe.reports import terminal

    if (found := loop.ended()) is not None:
        watched.show(found)
    else:
        terminal.Console().print(
            f"ap.watch: a loop of {count_text(len(loop.clock.steps), 'step')} is too short to be timed."
        )


def _place() -> str:
    frame = users_frame(sys._getframe(1))
    place = "not seen" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return place.removeprefix(f"{os.getcwd()}{os.sep}")  # noqa: PTH109  as lines are named


# -------------------- loops of a script that is diagnosed

_PASSES = 8  # that may go on at once
_LONG = 3  # looks, after which a loop trains of which that is not known
_UNREAD = 50  # steps without a read, from which on the loop has come to read no more


@dataclasses.dataclass(slots=True, eq=False)
class _Pass:
    """A pass over data that has not come to its end."""

    data: Callable[[], Any]  # an iterator or a dataset. A later one may get the `id` of one that is gone
    place: str
    index: Any = None  # of what was read last
    count: int = 0  # of all reads, by then
    is_beside: bool = False  # its reads are a part of another loop's steps


class Reads:
    """Times the loops without `fit` of the main thread, each by the line that reads."""

    def __init__(self, look: Look, told: Callable[[Watched], None], trains: Callable[[], bool]) -> None:
        """Call `told` once a loop was seen for long enough, if `trains()` is true by then. It may end the process."""
        self._look, self._told, self._trains = look, told, trains
        self._loops: dict[str, Loop] = {}
        self._now: Loop | None = None
        self.waiting_since: float | None = None  # of the monotonic clock; None while no batch is waited for
        self._passes, self._count = list[_Pass](), 0
        self._read, self._unread = time.monotonic(), 0  # the end of the last read, and the steps since
        self._off = self._reading = False
        self._owner = os.getpid()

    @property
    def line_watch(self) -> LineWatch | None:
        return None if self._now is None else self._now.line_watch

    def leave(self) -> None:
        self._off = True
        for loop in self._loops.values():
            loop.leave()
        self._loops.clear()

    def end(self) -> None:
        loops = sorted(self._loops.values(), key=lambda loop: (loop.trains > 0 or loop.is_traced, loop.clock.seconds))
        if not self._off and loops:
            self._tell(loops[-1])

    def trained(self, package: str) -> None:
        if self._off or self._now is None:
            return
        self._unread += 1
        if self._now.trains or not self._now.comes_to_end:  # else it has read all before the training
            self._now.trained()
            eagerly = frameworks.steps_eagerly(package)
            self._now.eager += eagerly is True
            self._now.traced |= {len(self._now.clock.steps)} if eagerly is False else set()
        if self._now.trains > timing.WARM_UP_STEPS and self._now.place.endswith(_BY_ANOTHER):  # no validation
            self._loops[self._now.place.removesuffix(_BY_ANOTHER)].takes_any = True
        is_late = time.monotonic() - self._read > self._look.seconds
        if is_late and self._unread >= _UNREAD and len(self._now.clock.steps) > timing.WARM_UP_STEPS:
            self._tell(self._now)

    def traced(self) -> None:
        if not self._off and self._now is not None:
            self._now.is_traced = True

    def _is_training(self, loop: Loop) -> bool:
        # A gradient of JAX is some loop's: of the one in which it was taken, or else, after long, of any.
        others = [each for each in self._loops.values() if each is not loop]
        is_others = any(each.trains or each.is_traced for each in others)
        is_long = loop.clock.seconds > _LONG * self._look.seconds and not any(each.trains for each in others)
        return loop.trains > 0 or (self._trains() and (loop.is_traced or not is_others or is_long))

    def read(self, function: Callable[..., Any], data: Any, *arguments: Any) -> Any:
        """Return `function(data, *arguments)`, with a step of the loop that asks for it."""
        here = threading.current_thread() is threading.main_thread() and os.getpid() == self._owner
        if self._off or self._reading or not here:
            return function(data, *arguments)
        loop, before = self._loop(data), self._now
        goes_on, now = self._pass(loop, data, arguments[0] if arguments else None)
        if now.is_beside and before is not None:
            with before.clock.wait():
                return self._taken(now, function, data, *arguments)
        if before is not None and before is not loop:
            before.asked()
            before.line_watch.paused, loop.line_watch.paused = True, False
        if loop.asked() and self._is_training(loop):
            self._tell(loop)
        if not goes_on:
            loop.pass_began(data)
        elif before is not loop:
            loop.clock.spent_on("between")
        self._now = loop
        loop.came(batch := self._taken(now, function, data, *arguments))
        return batch

    def _pass(self, loop: Loop, data: Any, index: Any) -> tuple[bool, _Pass]:
        """Return whether a pass goes on, and the pass; data read once each since, as by `zip`, belong to its steps."""
        self._count += 1
        known = [each for each in self._passes if each.data() is data and each.place == loop.place]
        begins = getattr(data, "_num_yielded", 1) == 0  # torch's, which `iter` gives again if its workers stay
        found = None if begins else next((each for each in known if index is None or index > each.index), None)
        if not (goes_on := found is not None):
            self._passes = [each for each in self._passes if each.data() is not None and each not in known]
            going_on = {each.place for each in self._passes if not each.is_beside}
            is_beside = self._now is not None and self._now.place in going_on and loop.place in self._now.beside
            found = _Pass(weakref.ref(data), loop.place, is_beside=is_beside)
            self._passes = [*self._passes[-_PASSES:], found]
        elif not found.is_beside:
            since = [each for each in self._passes if each.count > found.count]
            if len(since) == self._count - 1 - found.count:
                for each in since:
                    each.is_beside = True
                loop.beside.update(each.place for each in since)
        found.index, found.count = index, self._count
        return goes_on, found

    def _taken(self, now: _Pass, function: Callable[..., Any], data: Any, *arguments: Any) -> Any:
        self._reading, self.waiting_since = True, time.monotonic()
        try:
            return function(data, *arguments)
        except StopIteration:
            self._passes.remove(now)
            self._loops[now.place].comes_to_end = True
            raise
        finally:
            self._reading, self.waiting_since = False, None
            self._read, self._unread = time.monotonic(), 0

    def _loop(self, data: Any) -> Loop:
        place = _place()
        while (found := self._loops.get(place)) is not None and not found.is_of(data):
            place += _BY_ANOTHER
        if found is not None and found.is_another and not self._trains():  # Lightning's look at a validation, say
            found.leave()
            found = None
        if found is None:
            found = self._loops[place] = Loop(self._look, data, place, unused_workers(data))
            found.is_of(data)
        return found

    def _tell(self, loop: Loop) -> None:
        if self._unread >= _UNREAD:
            loop.warnings += (
                f"No batch was read for the last {self._unread:,} steps: the loop trains on batches that it holds, as "
                "by `itertools.cycle(loader)`, which gives those of the first pass again, in the same order and with "
                "the same random changes. `while True: yield from loader`, in a generator, reads anew."
                if loop.trains
                else f"The last {self._unread:,} steps of the training read nothing: their batches were read before, "
                "by this loop, and no step waits for it.",
            )
        others = [each for each in self._loops.values() if each is not loop]
        if (loop.is_traced or not others) and self._trains():  # by steps that are not seen, as of JAX
            loop.trains = max(1, loop.trains)
        found = loop.ended(others)
        self.leave()
        if found is not None:
            self._told(found)


def unused_workers(data: Any) -> list[str]:
    """Say that nobody uses the workers of a PyDataset that is read by its index, if it has any."""
    workers, by_processes = getattr(data, "workers", 1), getattr(data, "use_multiprocessing", False)
    said = f"Nobody reads workers={workers}, use_multiprocessing={by_processes} here: only `fit` does."
    return [] if (workers, by_processes) == (1, False) else [said]


_OF_TENSORS, _OF_STREAM = " of a TensorDataset", " of an IterableDataset"
_OF_TRAINERS = {"transformers": " of Hugging Face's Trainer", "ultralytics": " of Ultralytics"}  # which make it
_OF_GRAIN = ("DataLoader", "DataLoaderIterator", "DatasetIterator", "IterDataset", "MapDataset")


def _trainer() -> str:
    """Return " of ..." with the name of the package whose trainer runs this loop; an empty text for another loop."""
    frames = traceback.walk_stack(None)
    packages = [frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in frames]
    return next((_OF_TRAINERS[package] for package in packages if package in _OF_TRAINERS), "")


def kind_of_data(x: Any) -> str:
    """Return the name of the data's kind, in the words of its library."""
    if isinstance(x, types.GeneratorType):
        return "a generator"
    for kind in type(x).__mro__:
        match kind.__module__.partition(".")[0], kind.__name__:
            case "autopipe", _:  # a trainer's data for `fit`
                return "autopipe"
            case "tensorflow", _ if hasattr(x, "element_spec"):  # its iterators have one, too
                return "tf.data.Dataset"
            case "keras", "PyDataset":
                return "keras.utils.PyDataset"
            case "torch", "DataLoader" | "_BaseDataLoaderIter":
                return "torch DataLoader"
            case "grain", name if name in _OF_GRAIN:
                return f"grain {name}"
    return "arrays" if hasattr(x, "__array__") or isinstance(x, list | tuple | dict) else type(x).__name__
