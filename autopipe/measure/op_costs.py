"""The cost of one image, op by op: processor time, waiting, Python's lock; the spread of samples; and how reads
scale with the number at a time.

An op of the native library takes what the library takes longer with it, and holds no lock. Of another op the share of
processor time under Python's lock (GIL) is measured by running it in several threads: it is the part that does not
scale. Threads waiting for the lock take no processor time, threads that share a slow memory do. So the figure is the
waiting beyond that of one thread, and beyond that of a function known to release the lock, which shows the load of
other programs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from autopipe import native
from autopipe.errors import AutopipeError, BadSampleError
from autopipe.hardware import machine, processes
from autopipe.measure.costs import BATCHING, READ
from autopipe.measure.facts import FEWEST_OF_A_TAIL, STILL_GAINS, WAITS_SECONDS, OpCost, ReadCosts, ReadRung, SampleTail
from autopipe.pipeline.batching.kernel import Kernel
from autopipe.pipeline.loader import Recipe
from autopipe.workload import order
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Plan
from autopipe.workload.ops import planner
from autopipe.workload.program import Programs, links
from autopipe.workload.sample import Sample, Source
from autopipe.workload.workload import Workload

_TURN_SECONDS = 0.06  # of one thread, and of several, which switch every 5 ms
_FEW_THREADS, _MANY_THREADS = 4, 16  # that show a lock which is held for a quarter, and a sixteenth, of the time
_FREE_BYTES = 2**16  # for each thread that takes turns: zlib releases the lock for this many
_FREE = memoryview(bytes(_MANY_THREADS * _FREE_BYTES))


class Turn(NamedTuple):
    """Average wall and processor seconds of a call."""

    wall: float
    cpu: float

    @property
    def wait(self) -> float:
        return max(0.0, self.wall - self.cpu)


def held_share(call: Callable[[], object], seconds: float) -> float:
    """Return the share of a function's processor time for which it holds Python's lock, 0 to 1. On one core it is 0: it
    cannot be measured there, and does not matter; so it is for a call of less than 20 us, which holds it no longer than
    taking turns costs (`costs.TURN_SECONDS`). A call takes `seconds`. If these are more than 10 ms, or it waits by
    itself, a few threads run: many would queue up for long, or contend for a storage or a server.
    """
    cores = machine.usable_cores()
    if cores < 2 or seconds < 20e-6:
        return 0.0
    alone = _turn(call, 1, length := max(_TURN_SECONDS, 3 * seconds))
    threads = min(cores, _FEW_THREADS if seconds > 0.01 or alone.wait > alone.cpu else _MANY_THREADS)
    return share(alone, _turn(call, threads, length), _free(threads), threads)


def _free(threads: int) -> Turn:
    """Return a call that holds no lock, beside others of its kind: longer, the more threads take turns."""
    some = _FREE[: max(_FEW_THREADS, threads) * _FREE_BYTES]
    return _turn(lambda: zlib.crc32(some), threads, _TURN_SECONDS)


def share(alone: Turn, together: Turn, free: Turn, threads: int) -> float:
    """Return the share of the processor time under the lock, 0 to 1, by calls with no other thread (`alone`), beside
    others (`together`), and beside others without any lock (`free`). A lock held for less than one in `threads` cannot
    be seen.
    """
    if together.cpu <= 0:
        return 0.0
    taken = free.wait / free.wall * together.wall if free.wall > 0 else 0.0
    waits = together.wait - alone.wait - taken
    if waits < together.cpu / 4:  # is noise
        return 0.0
    return min(1.0, (together.cpu + waits) / (threads * together.cpu))


def taken() -> float:
    """Measure a busy thread's waiting for a core, in seconds for each second that it has one; about 0 when idle."""
    free = _free(1)
    return free.wait / free.cpu if free.cpu > 0 else 0.0


def _turn(call: Callable[[], object], threads: int, seconds: float) -> Turn:
    took = side_by_side(call, threads, seconds, fewest=2)
    calls = sum(each[0] for each in took)
    return Turn(sum(each[1] for each in took) / calls, sum(each[2] for each in took) / calls)


def side_by_side(
    call: Callable[[], object], threads: int, seconds: float, *, fewest: int
) -> list[tuple[int, float, float]]:
    """Run calls in threads for at least `seconds`; returns calls, wall and processor seconds of each thread."""
    start = threading.Barrier(threads)

    def work() -> tuple[int, float, float]:
        start.wait()
        wall, busy, calls = time.perf_counter(), time.thread_time(), 0
        while calls < fewest or time.perf_counter() - wall < seconds:
            call()
            calls += 1
        return calls, time.perf_counter() - wall, time.thread_time() - busy

    with ThreadPoolExecutor(threads) as pool:
        return [run.result() for run in [pool.submit(work) for _ in range(threads)]]


Clock: TypeAlias = Callable[[], tuple[float, float]]  # returns wall and processor seconds of this thread

_CERTAIN = 4.0  # times a thread's waiting for its core: above it, an op or a read waits by itself


def thread_clock() -> tuple[float, float]:
    """Return wall and processor seconds of this thread."""
    return time.perf_counter(), time.thread_time()


@processes.library_threads()
def op_costs(
    workload: Workload,
    plan: Plan,
    indices: Sequence[int],
    *,
    seconds: float = 1.0,
    clock: Clock = thread_clock,
    taken: Callable[[], float] = taken,
) -> tuple[tuple[OpCost, ...], SampleTail]:
    """Time reading and every op on some samples, one after the other, in this thread, for about `seconds`, eight at
    least; return their costs, and the spread of the samples. Processor costs are the median over five blocks of samples
    of the block's mean, and waits the mean over all samples. A wait in less than half of the samples, or hardly longer
    than that of any thread meanwhile (`taken`), counts as the machine's and not the op's. Files should be in the page
    cache. Bad samples are skipped; raises BadSampleError if no sample could be used.
    """
    processes.keep_freed_memory()
    busy = taken()
    rows, began = list[tuple[int, list[tuple[float, float]]]](), clock()[0]
    for index in indices:
        with contextlib.suppress(BadSampleError):
            rows.append((index, _one(workload, plan, index, clock)))
        if len(rows) >= 8 and clock()[0] - began > seconds:
            break
    if not rows:
        raise BadSampleError(f"none of {len(indices)} samples could be used to measure what ops cost.")
    times = np.array([row for _, row in rows])  # (samples, ops, wall and processor)
    waits = _waits(times, max(busy, taken()))
    whole = (times[:, :, 1] + waits).sum(axis=1)
    slowest = planner.sample_name(workload.data, rows[int(whole.argmax())][0])
    return _costs(workload, plan, times[:, :, 1], waits), tail_of(whole, slowest)


def _waits(times: NDArray[np.float64], taken: float) -> NDArray[np.float64]:
    busy = times[:, :, 1]
    waits = np.maximum(0.0, times[:, :, 0] - busy)
    most = np.median(waits, axis=0) > WAITS_SECONDS + _CERTAIN * taken * np.median(busy, axis=0)
    # On a machine that is not busy, a thread is seldom kept from its core for longer than 20 ms.
    seldom = (waits > 0.02) & (taken < 0.1)
    return np.where(most | seldom, waits, 0.0)


def _costs(workload: Workload, plan: Plan, cpu: NDArray[np.float64], waits: NDArray[np.float64]) -> tuple[OpCost, ...]:
    busy = np.median([block.mean(axis=0) for block in np.array_split(cpu, min(5, len(cpu)))], axis=0)
    names = [(READ, "fixed")]
    spared = 0 if data_source.pieces(workload.data) is None else 1  # by what is kept: the first op cuts samples
    fixed, fresh = (*plan.prefix, *plan.body[:spared]), plan.body[spared:]
    for part, steps in (("fixed", fixed), ("fresh", fresh), ("finish", plan.suffix)):
        for op in (step.op for step in steps):
            function = getattr(getattr(op.acting, "function", None), "__name__", "")  # the user's
            names.append((f"{op.name}({function})" if function.isidentifier() else op.name, part))
    keys = ("name", "part", "seconds_per_image", "wait_seconds_per_image", "native")
    costs = zip(
        *zip(*names, strict=True), busy.tolist(), waits.mean(axis=0).tolist(), _native(workload, plan), strict=True
    )
    return tuple(OpCost.model_validate(dict(zip(keys, values, strict=True))) for values in costs)


def _native(workload: Workload, plan: Plan) -> Iterator[bool]:
    """Yield True for the read, and for each op, that one call does for a whole batch, without Python's lock."""
    chain = _chain(plan)
    steps = [is_native for link in chain for is_native in (*[False] * len(link.alone), *[True] * link.count)]
    yield (not plan.steps or steps[:1] == [True]) and data_source.spans_half(workload.data) is not None
    for number, step in enumerate(plan.steps):
        if step.op.mixes:
            steps += [True] * (len(plan.steps) - number)
        yield bool(chain) and steps[number]


def _chain(plan: Plan) -> tuple[Programs, ...]:
    """Return how samples are made before they are mixed; nothing without the library."""
    singles = tuple(itertools.takewhile(lambda step: not step.op.mixes, plan.steps))
    return links(plan.source, singles) if native.why_not() is None else ()


def as_made(
    found: Sequence[OpCost], workload: Workload, plan: Plan, indices: Sequence[int], *, seconds: float = 0.5
) -> tuple[OpCost, ...]:
    """Return the costs with those of the native library's ops as its own processor time: of those before the first op
    that Python does sample by sample, in batches of at most 16, for about `seconds`. The library runs without the ops
    behind each one, and what one more takes longer is that op's. Ops without a batch of their own, as images of all
    sizes make none, share that of the next one in the ratio of Python's reference.
    """
    chain = _chain(plan)
    count = chain[0].count if chain and not chain[0].alone else 0
    count = len(plan.steps) if count and len(chain) == 1 else count  # samples are mixed by the library, too
    python = 0.0 if found[0].native else found[0].seconds_per_image
    reference = sum(cost.seconds_per_image for cost in found[: 1 + count]) - python
    ends = [number for number in range(1, count + 1) if plan.steps[number - 1].after.is_fixed]
    if reference == 0 or not ends:
        return tuple(found)
    size = max(1, min(_AT_ONCE, int(_AT_ONCE_SECONDS / reference)))
    took = _seconds_until(workload, plan, ends, np.array_split(np.array(indices), -(-len(indices) // size)), seconds)
    if not took.size:
        return tuple(found)
    costs, began, done = list(found), 0 if found[0].native else 1, python
    for end, until in zip(ends, np.maximum.accumulate(took).tolist(), strict=True):
        group = found[began : end + 1]
        of_python = sum(cost.seconds_per_image for cost in group)
        for number, cost in enumerate(group, start=began):
            share = cost.seconds_per_image / of_python if of_python else 1 / len(group)
            costs[number] = cost.model_copy(update={"seconds_per_image": share * max(0.0, until - done)})
        began, done = end + 1, max(done, until)
    factor = max(0.01, (done - python) / reference)  # whatever the clock says
    for number in range(began, 1 + sum(len(link.alone) + link.count for link in chain)):
        if (cost := found[number]).native:
            costs[number] = cost.model_copy(update={"seconds_per_image": factor * cost.seconds_per_image})
    return tuple(costs)


_AT_ONCE, _AT_ONCE_SECONDS = 16, 0.1  # images of a batch at most, and what Python takes for them
_BATCHES = 5  # that are timed at most; the first one, which meets new memory, is not


def _seconds_until(
    workload: Workload, plan: Plan, ends: Sequence[int], batches: Sequence[NDArray[np.int64]], seconds: float
) -> NDArray[np.float64]:
    """Return the processor seconds of an image up to the end of each of so many steps; empty without a batch."""
    recipe, took = Recipe.of(workload, plan), list[list[float]]()
    made = [(plan.steps[:end], plan.steps[end - 1].after) for end in ends]
    kernels = [
        Kernel(dataclasses.replace(recipe, steps=steps, fixed_steps=0, fixed_spec=plan.source, spec=after))
        for steps, after in made
    ]
    began = time.perf_counter()
    for part in (batches[0], *batches):
        times = [time.thread_time()]
        try:
            for kernel, (_, after) in zip(kernels, made, strict=True):
                kernel.fill(0, part, after.empty(len(part)))
                times.append(time.thread_time())
        except AutopipeError:
            continue  # told where the samples are measured
        took.append([(end - begin) / len(part) for begin, end in itertools.pairwise(times)])
        if len(took) > _BATCHES or (len(took) > 1 and time.perf_counter() - began > seconds):
            break
    return np.median(took[1:] or took, axis=0) if took else np.array([])


def tail_of(whole: NDArray[np.float64], slowest: str) -> SampleTail:
    """Compute the spread of samples, from the seconds of each and the name of the slowest."""
    p50, p95, p99 = np.quantile(whole, [0.5, 0.95, 0.99])
    most = np.sort(whole)[-max(1, len(whole) // 100) :]
    total = float(whole.sum())
    return SampleTail(
        samples=len(whole),
        p50_seconds=float(p50),
        p95_seconds=float(p95),
        p99_seconds=float(p99),
        slowest_share=min(1.0, float(most.sum()) / total) if total > 0 else 0.0,
        slowest=slowest,
    )


def with_lock(
    found: Sequence[OpCost],
    workload: Workload,
    plan: Plan,
    indices: Sequence[int],
    alive: Callable[[], object] = lambda: None,
) -> tuple[OpCost, ...]:
    """Return the costs with the share under Python's lock, by running each on four samples in several threads."""
    steps = plan.steps
    if all(cost.native for cost in found):
        return tuple(found)
    samples = dict[int, Sample]()
    for index in indices[:4]:
        with contextlib.suppress(BadSampleError):
            samples[index] = planner.normalise(planner.read(workload.data, index), plan.source.structure)
    if not samples:
        return tuple(found)

    def share_of(cost: OpCost, function: Callable[..., object], arguments: Sequence[tuple[object, ...]]) -> float:
        turns = itertools.cycle(arguments)
        return 0.0 if cost.native else held_share(lambda: function(*next(turns)), cost.wall_seconds_per_image)

    held = [share_of(found[0], workload.data.read, [(next(iter(samples)),)])]
    largest = max([1, *(step.after.bytes for step in steps)])
    kept = [*samples.values()][: max(1, int(2**28 // largest))]  # 256 MiB between two ops
    for step, cost in zip(steps, found[1:], strict=True):
        alive()
        numbers = [np.full(step.op.draws, 0.5) for _ in kept]
        try:
            after = [step.op.apply(sample, step.before, random) for sample, random in zip(kept, numbers, strict=True)]
        except BadSampleError:
            return tuple(found)
        held.append(share_of(cost, step.op.apply, [(sample, step.before, numbers[0]) for sample in kept]))
        kept = after
    return tuple(
        cost.model_copy(update={"lock_seconds_per_image": share * cost.seconds_per_image})
        for cost, share in zip(found, held, strict=True)
    )


def fitted(single: Sequence[OpCost], whole: float, cached: float | None) -> tuple[OpCost, ...]:
    """Return the costs with all cores busy, scaled so that they add up to the measured costs of loaders. Ops slow each
    other down if cores share caches and memory, and a loader does more than its ops: it draws numbers, copies and hands
    over batches. Waiting is not scaled. `single` are the costs with other cores idle; `whole` and `cached` the measured
    core-seconds of an image in a loader, finish on the device, without and with a cache (None: no cache).
    """
    fresh, fixed = (sum(op.seconds_per_image for op in single if op.part == part) for part in ("fresh", "fixed"))
    batching = max(0.0, (min(cached, whole) if cached is not None else 0.0) - fresh)
    left = whole - batching
    factor = {"finish": 1.0, "fresh": 1.0, "fixed": (left - fresh) / fixed if fixed > 0 else 1.0}
    if cached is None or cached < fresh or factor["fixed"] <= 0:
        factor["fresh"] = factor["fixed"] = left / (fresh + fixed) if fresh + fixed > 0 else 1.0
    busy = ("seconds_per_image", "lock_seconds_per_image")
    costs = [
        cost.model_copy(update={name: value * factor[cost.part] for name in busy if (value := getattr(cost, name))})
        for cost in single
    ]
    return (*costs, OpCost(name=BATCHING, part="fresh", seconds_per_image=batching))


def _one(workload: Workload, plan: Plan, index: int, clock: Clock) -> list[tuple[float, float]]:
    """Return the seconds of the read and of each op on one sample."""
    place = np.array([index])
    numbers = [order.uniforms(workload.seed, 0, place, step.stream, step.op.draws)[0] for step in plan.steps]
    times = [clock()]
    sample = planner.normalise(planner.read(workload.data, index), plan.source.structure)
    times.append(clock())
    for step, random in zip(plan.steps, numbers, strict=True):
        sample = step.op.apply(sample, step.before, random)
        times.append(clock())
    return [(float(wall), float(cpu)) for wall, cpu in np.diff(np.array(times), axis=0)]


# -------------------- reads
# A ladder of 1, 4, 16, 64, 256 threads reads samples until four times as many bring little more, or time is up; if
# reads are slow, each thread makes one or two a rung, so that the ladder does not end sooner for them. If reads wait,
# the time of each is noted, and more are read if these are too few to show the slowest 1 %.


_LADDER = (4, 16, 64, 256)
_LADDER_SECONDS = 2.0  # after which no other rung begins
_RUNG_SECONDS = 0.25  # of a rung at least
_ALONE_SECONDS = 0.4  # of reads one after the other
_OF_THE_TAIL = 2 * FEWEST_OF_A_TAIL  # reads: of 200, hardly ever none is one of those that are slow once in fifty
MOST_READERS = 64  # reads at a time, where their number is not looked for


def read_costs(
    source: Source,
    indices: Sequence[int],
    bytes_per_image: float,
    *,
    prepare: Callable[[], object] = lambda: None,
    clock: Clock = thread_clock,
    taken: Callable[[], float] = taken,
) -> ReadCosts | None:
    """Measure the scaling of reads; None if no sample could be read. Samples are read from many threads at once, as by
    loaders, in the order of `indices`, and again from the start if they run out. `prepare` brings them into the
    page-cache state of trials before each rung; `taken` returns a busy thread's waiting for a core, for each second
    that it has one.
    """
    turns_of, waits, busy = itertools.cycle(indices), list[float](), list[float]()
    took = list[tuple[float, int]]()  # seconds of a read, and the number of its sample

    def one(clock: Clock = thread_clock) -> tuple[float, float, float] | None:
        """Return the wall clock after a read, and its waiting and processor seconds; None if the sample is bad."""
        index, (began, busy_before) = next(turns_of), clock()
        try:
            planner.read(source, index)
        except BadSampleError:
            return None
        ended, busy_after = clock()
        took.append((ended - began, index))
        busy = max(0.0, busy_after - busy_before)
        return ended, max(0.0, ended - began - busy), busy

    prepare()
    began = clock()[0]
    for _ in range(400):  # one after the other
        if (read := one(clock)) is not None:
            waits.append(read[1])
            busy.append(read[2])
            if len(busy) >= 3 and read[0] - began > _ALONE_SECONDS:
                break
    if not busy:
        return None
    cpu = float(np.mean(busy))
    certain = WAITS_SECONDS + _CERTAIN * taken() * float(np.median(busy))
    wait = float(np.mean(waits)) if np.median(waits) > certain else 0.0
    latency = max(cpu + wait, 1e-7)
    rungs = [ReadRung(at_once=1, images_per_second=1 / latency)]
    tail: SampleTail | None = None
    if wait > cpu:
        rungs += _ladder(one, prepare, latency, rungs[0].images_per_second)
        turns = -(-(_OF_THE_TAIL - len(took)) // MOST_READERS)
        if turns > 0 and turns * latency <= _LADDER_SECONDS:  # there were too few, and more do not last too long
            side_by_side(one, MOST_READERS, 0.0, fewest=turns)
        tail = tail_of(np.array([seconds for seconds, _ in took]), planner.sample_name(source, max(took)[1]))
    return ReadCosts(
        latency_seconds=latency,
        cpu_seconds=cpu,
        rungs=tuple(rungs),
        bytes_per_image=max(0.0, bytes_per_image),
        tail=tail,
    )


def _ladder(read: Callable[[], object], prepare: Callable[[], object], latency: float, rate: float) -> list[ReadRung]:
    rungs: list[ReadRung] = []
    began = time.monotonic()
    for at_once in _LADDER:
        if rungs and time.monotonic() - began > _LADDER_SECONDS:
            break
        prepare()
        took = side_by_side(read, at_once, max(_RUNG_SECONDS, latency), fewest=1)
        before, rate = rate, max(sum(count / wall for count, wall, _ in took), 1e-3)
        rungs.append(ReadRung(at_once=at_once, images_per_second=rate))
        if rate < STILL_GAINS * before:
            break
    return rungs
