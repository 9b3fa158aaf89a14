"""Whole tunes on machines that are played: does the search find the best there, prove it, and keep to its time?

    python benchmarks/machines.py --seeds 20 --budget 120
    python benchmarks/machines.py --only 32/8 --show 3

The search is the real one; the measurer is arithmetic, and its clock runs on by what a real one takes: the import of a
framework, compilation, another process for another number of devices, the start of workers, the filling of a cache,
baselines in processes of their own. What a configuration is worth here does not come from the cost model that a search
predicts with (`autopipe.measure.costs`):

- native work scales with the cores; a hyperthread adds 0 to 0.3 of a core, and the memory's bandwidth ends it;
- a Python op in threads follows the Universal Scalability Law, with the serial share and the crosstalk that were
  published for such loaders (Gunther: X(N) = N g / (1 + a (N - 1) + b N (N - 1)); b is 0.002 to 0.008 for Python
  threads, 0.0002 to 0.0033 for processes);
- reads wait, and the storage has a limit of its own;
- each kind of loader, and each number of workers, differs from that by some percent, as machines do.

`public` are machines after published tables of FFCV, SPDL, PyTorch's DataLoader and WebDataset: their rate of one
worker, and the fitted law, stand for the user's op.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import zlib
from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from autopipe.errors import AutopipeError
from autopipe.measure.costs import Kind
from autopipe.measure.facts import Ceiling, Facts, Limits, OpCost, ReadCosts, ReadRung
from autopipe.measure.outcome import FailureKind, Measurement, Phase, TrialFailure
from autopipe.pipeline.config import ModelSetup, PipelineConfig
from autopipe.pipeline.eject import module
from autopipe.pipeline.loaders.wrapped import Foreign
from autopipe.search import feasible, study
from autopipe.search import space as spaces
from autopipe.search.conclusion import Searched
from autopipe.search.measurer import BASELINES, Baseline
from autopipe.search.searching import STARTING_SHARE
from autopipe.search.settings import Settings
from autopipe.search.space import to_config
from autopipe.values import Estimate
from tests.fakes.facts import facts, measurement

BATCH = 64
_SAMPLES = 200_000
_DISTURBED, _UNEVEN = 0.015, 0.02  # spread of a whole trial's rate, and of its windows
_TRIAL, _PROOF = (0.8, 2.0), 1.5  # seconds that a trial measures, at least and at most; a block
_SHARP = 12.0  # closeness of a training to the slower of loader and model: a queue hides the other
_NATIVE_CROSSTALK = 0.00002  # b of the law, for calls that make a whole batch
_CACHED = 25e-6  # core-seconds to copy a kept sample
_FORKED = 0.25  # of the first start: a process that is forked has the framework, and imports the workload
_NOT_DONE = 1200.0  # seconds after which a trial that hangs is ended, whatever it was allowed


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine with one workload. Times are seconds; those of work are core-seconds an image."""

    name: str
    cores: int  # as the system counts them
    physical: int  # of them
    hyperthread: float = 0.2  # of a core, that a second thread on one adds
    devices: int = 1
    model: float  # images/s of the model alone on one device
    spread: float = 0.95  # of the ideal, for each doubling of the devices
    native: float  # the ops that are made for a whole batch by one call
    fresh: float = 30e-6  # of them, those that each epoch does anew
    python: float = 0.0  # an op of the user's
    serial: float = 1.0  # of it, the share for which it holds Python's lock
    crosstalk: float = 0.004  # b of the law, of threads that run Python
    crosstalk_processes: float = 0.0003
    wait: float = 0.0  # of a read
    storage: float = math.inf  # images/s that it reads at most
    bandwidth: float = 200_000.0  # images/s that the memory moves
    fits: bool = False  # the samples fit into memory when they are decoded
    first: float = 0.9  # times the model's rate, with channels first
    call: float = 0.0  # seconds a step that `steps_per_execution` saves
    cast: float = 60e-6  # the last ops, on the host
    theirs: float = 0.75  # images/s of tf.data over ours, per core
    importing: float = 8.0
    compiling: float = 5.0
    hangs: str = ""  # the baseline that never comes to an end
    # another program: seconds until which it runs, and the share of every rate that it leaves
    neighbour: tuple[float, float] = (0.0, 1.0)
    seed: int = 0

    # ------------------------------------------------------------ the truth

    def quirk(self, what: object, spread: float = 0.02) -> float:
        number = zlib.crc32(repr((self.name, self.seed, what)).encode())
        return math.exp(np.random.default_rng(number).normal(0.0, spread))

    def busy(self, workers: float) -> float:
        """The cores' worth of work that so many workers get done."""
        return min(workers, self.physical) + self.hyperthread * max(0.0, min(workers, self.cores) - self.physical)

    def loader(self, config: PipelineConfig) -> float:
        """The true images/s of a loader alone."""
        if config.loader.is_foreign:
            return self._foreign(config)
        kept, kind = config.kept, config.loader.kind
        cached = kept.part if kept.in_memory and not kept.encoded else 0.0
        if kept.form in ("array", "tfrecord"):
            cached = 1.0 if kept.form == "array" else cached
        work = self.native * (1 - cached) + (self.fresh + _CACHED) * cached
        work += self.cast if config.finish == "host" else 0.0
        work *= {"threads": 1.0, "processes": 1.04, "tfdata": 1.12}[kind]
        read = 1.0 - kept.part if kept.in_memory else float(not kept.converts)
        count = config.loader.worker_count() or self.cores
        ahead, threads = getattr(config.loader, "read_ahead", 0), min(count, self.cores)
        serial = self.python * self.serial / (work + self.python)
        serial, crosstalk = (serial, self.crosstalk) if self.python else (0.0, _NATIVE_CROSSTALK)
        if kind == "processes":
            serial, crosstalk = 0.0, self.crosstalk_processes
        one = work + self.python + (0.0 if ahead else self.wait * read)  # of one worker
        rate = min(count / one, self.busy(count) / (work + self.python))
        rate /= 1 + serial * (threads - 1) + crosstalk * threads * (threads - 1)
        if count > self.cores and not self.wait:
            rate *= 1 - 0.03 * min(1.0, count / self.cores - 1)
        if read and self.wait:
            rate = min(rate, self.storage / read, (ahead / self.wait / read) if ahead else math.inf)
        queue = getattr(config.loader, "queue_size", 4)
        return min(rate, self.bandwidth) * (0.97 if queue < 4 else 1.0) * self.quirk((kind, count, kept.memory))

    def _foreign(self, config: PipelineConfig) -> float:
        code = str(config.loader.model_dump()["code"])
        work = self.native / self.theirs + self.cast
        cores = self.busy(self.cores)
        waiting = self.storage if self.wait else math.inf
        if code == module.CACHED:
            return min(cores / (self.fresh / self.theirs + self.python + self.cast), self.bandwidth / 4)
        python = min(1 / self.python, math.inf) if self.python else math.inf
        if code == "tf.data":
            rate = min(cores / (work + self.python), python, self.cores / (work + self.wait), waiting)
        elif code == "directory":
            rate = min(cores / (1.3 * work + self.python), python, self.cores / (work + self.wait), waiting)
        else:
            workers = int(code.rpartition("=")[2]) if code[-1].isdigit() else 1
            workers = 8 if code == "keras-workers" else workers
            rate = min(
                self.busy(workers) / (1.4 * work + self.python), workers / (work + self.python + self.wait), waiting
            )
        return rate * self.quirk(code)

    def alone(self, setup: ModelSetup) -> float:
        """The true images/s of the model alone."""
        count = setup.devices
        rate = self.model * count * self.spread ** math.log2(count)
        rate *= self.first if setup.channels == "first" else 1.0
        step = BATCH / rate + self.call / setup.steps_per_execution
        return BATCH / step

    def training(self, config: PipelineConfig) -> float:
        """The true images/s of a training."""
        loader, model = self.loader(config), self.alone(config.model_setup)
        if config.device_prefetch == 0:
            model *= 0.93
        return (loader**-_SHARP + model**-_SHARP) ** (-1 / _SHARP)

    def limit(self, config: PipelineConfig) -> set[Kind]:
        """What a result may call the bottleneck of a configuration."""
        loader, model = self.loader(config), self.alone(config.model_setup)
        if loader > 1.15 * model:
            return {Kind.MODEL}
        found = {Kind.MODEL} if loader > 0.87 * model else set()
        if self.wait and not config.kept.in_memory:
            found |= {Kind.STORAGE_LATENCY, Kind.STORAGE_BANDWIDTH}
        if self.python and config.loader.shares_lock():
            found.add(Kind.PYTHON_LOCK)
        if loader >= 0.9 * self.bandwidth:
            found |= {Kind.MEMORY, Kind.HAND_OVER}
        return found | {Kind.OP, Kind.HAND_OVER}

    def facts(self) -> Facts:
        size, memory = 150_528, 256 * 2**30
        whole = memory // 4 if self.fits else 8 * memory
        return facts(
            cores=self.cores,
            gpus=self.devices,
            memory_bytes=memory,
            samples=_SAMPLES,
            batch_size=BATCH,
            fixed_bytes=whole,
            mean_bytes=100_000.0,
            compact_bytes=size,
            finished_bytes=4 * size,
            accelerators=self.devices,
            limits=Limits(convert=False),
        )

    def space(self) -> list[PipelineConfig]:
        """Configurations among which the best one is, but for settings that bring a percent."""
        keeps = ["none", *(["memory"] if self.fits else ["memory:50%"])]
        counts = sorted(
            {1, 2, 4, self.cores // 4, self.cores // 2, self.cores - 1, self.cores, 2 * self.cores, 64} - {0}
        )
        devices = [2**each for each in range(6) if 2**each <= self.devices]
        found = []
        for kind, count, keep in itertools.product(("threads", "processes"), counts, keeps):
            for ahead in (0, 32, 128, 512) if self.wait else (0,):
                for number, calls in itertools.product(devices, (1, 32) if self.call else (1,)):
                    knobs = {f"{kind}.workers": count, f"{kind}.queue_size": 8, f"{kind}.read_ahead": ahead}
                    model = {"devices": number, "steps_per_execution": calls, "device_prefetch": 2}
                    config = to_config({"loader": kind, "keep": keep, **knobs, **model})
                    if feasible.why_not(config, self.facts()) is None:
                        found.append(config)
        return found


class Played:
    """The measurer of a machine, with a clock of its own."""

    def __init__(self, machine: Machine, budget: float = math.inf) -> None:
        self.machine = machine
        self.now = machine.importing + machine.compiling  # until the workload is described
        self._rng = np.random.default_rng(machine.seed)
        self._process: tuple[int, str] = (1, "last")
        self._compiled = {ModelSetup()}
        self._side_by_side = self.now <= STARTING_SHARE * budget  # processes of plain code start
        self._theirs: set[str] = set()
        self._allowed = math.inf
        self._building = 0.0  # the start of a process and compilation, of the last trial
        self.tried: list[PipelineConfig] = []

    def clock(self) -> float:
        return self.now

    def _read(self, rate: float, disturbed: float = _DISTURBED) -> float:
        """What a measurement that ends now makes of a true rate."""
        until, left = self.machine.neighbour
        return rate * (left if self.now < until else 1.0) * math.exp(self._rng.normal(0.0, disturbed))

    def loader_alone(self, config: PipelineConfig) -> float | None:
        self.now += (
            0.5 + 0.3 + (1.2 + 0.02 * (config.loader.worker_count() or 1) if config.loader.kind == "processes" else 0.0)
        )
        self.now += 0.7 if config.kept.in_memory else 0.0
        self.tried.append(config)
        return self._read(self.machine.loader(config))

    def allow(self, seconds: float | None) -> None:
        self._allowed = math.inf if seconds is None else self.now + seconds

    def baselines(self) -> Sequence[Baseline]:
        codes = {
            name: code
            for name, code in BASELINES
            if code not in (module.FIT, *([] if self.machine.fits else [module.CACHED]))
        }
        return [Baseline(name=name, config=_foreign(code), with_workers=None) for name, code in codes.items()]

    def ceiling(self, setup: ModelSetup) -> Ceiling:
        self.now += 7.0  # the loader's ops and reads
        found = self.model_alone(setup)
        assert found is not None  # a minute is allowed for it
        return found

    def model_alone(self, setup: ModelSetup, *, again: bool = True) -> Ceiling | None:
        if not self._ready(setup, 1.5):
            return None
        machine = self.machine
        rate = self._read(machine.alone(setup), _DISTURBED / 2)
        slowed = machine.cores / machine.busy(machine.cores)  # ops are timed with all cores busy
        native = OpCost(
            name="Decode", part="fixed", seconds_per_image=(machine.native - machine.fresh) * slowed, native=True
        )
        ops = [
            OpCost(
                name="read", part="fixed", seconds_per_image=20e-6, wait_seconds_per_image=machine.wait, native=True
            ),
            native,
            OpCost(name="RandomFlip", part="fresh", seconds_per_image=machine.fresh * slowed, native=True),
        ]
        if machine.python:
            held = machine.python * machine.serial
            ops.append(
                OpCost(name="Map", part="fresh", seconds_per_image=machine.python * slowed, lock_seconds_per_image=held)
            )
        ops.append(OpCost(name="Rescale", part="finish", seconds_per_image=machine.cast, native=True))
        usual = to_config({"loader": "threads", "threads.workers": machine.cores, "threads.queue_size": 4})
        made = machine.loader(usual if not machine.wait else usual.keeping(in_memory=False))
        return Ceiling(
            model_images_per_second=Estimate(value=rate, low=0.99 * rate, high=1.01 * rate),
            model_core_seconds_per_image=1e-5,
            op_costs=tuple(ops),
            loader_images_per_second=Estimate(value=made, low=0.97 * made, high=1.03 * made),
            reads=self._reads() if machine.wait else None,
            cores=float(machine.cores),
            bytes_per_image=100_000.0,
            transfer_seconds_per_image=1e-5,
            compact_bytes=150_528,
            finished_bytes=4 * 150_528,
            **setup._asdict(),
        )

    def _reads(self) -> ReadCosts:
        wait = self.machine.wait + 20e-6
        rungs = [
            ReadRung(at_once=count, images_per_second=min(count / wait, self.machine.storage))
            for count in (1, 4, 16, 64)
        ]
        return ReadCosts(latency_seconds=wait, cpu_seconds=20e-6, rungs=tuple(rungs), bytes_per_image=100_000.0)

    def measure(
        self, config: PipelineConfig, *, proof: bool = False, must_reach: float | None = None
    ) -> Measurement | TrialFailure:
        machine = self.machine
        code = str(config.loader.model_dump()["code"]) if config.loader.is_foreign else None
        if code is None:
            workers = config.loader.worker_count() or machine.cores
            starts = 0.4 + (1.2 + 0.02 * workers if config.loader.kind == "processes" else 0.0)
            starts += 1.5 if config.kept.in_memory or config.kept.converts else 0.0
            ready = self._ready(config.model_setup, starts)
        elif machine.hangs == code:
            self.now = min(self._allowed, self.now + _NOT_DONE)
            return _failed(config, FailureKind.HUNG if self._allowed == math.inf else FailureKind.INTERRUPTED)
        else:
            starts = 0.0 if self._theirs and self._side_by_side else _FORKED * machine.importing
            self._building = 0.0 if code in self._theirs else starts + machine.compiling
            ready = self._spend(self._building + 1.0)
            self._theirs.add(code)
        if not ready:
            return _failed(config, FailureKind.INTERRUPTED)
        self.tried.append(config)
        rate = self._read(machine.training(config))
        hopeless = must_reach is not None and rate < 0.9 * must_reach
        seconds = _PROOF if proof else _TRIAL[0] if hopeless else min(_TRIAL[1], max(_TRIAL[0], 8 * BATCH / rate))
        self.now += min(seconds, max(0.2, self._allowed - self.now))
        rates = rate * np.exp(self._rng.normal(0.0, _UNEVEN, 10))
        found = measurement(config, rates.tolist(), batch_size=BATCH)
        return found.model_copy(update={"phase_seconds": {Phase.BUILD: self._building}})

    def _ready(self, setup: ModelSetup, seconds: float) -> bool:
        """Start another process if the setup needs one, and compile; False if there is no time for it."""
        machine, process = self.machine, (setup.devices, setup.channels)
        self._building = 0.0
        if process != self._process:
            self._process, self._compiled = process, set()
            self._building = _FORKED * machine.importing + machine.compiling * (1 + 0.1 * (setup.devices - 1))
        elif setup not in self._compiled:
            self._building = machine.compiling / 2
        self._compiled.add(setup)
        return self._spend(seconds + self._building)

    def _spend(self, seconds: float) -> bool:
        in_time = self.now + seconds <= self._allowed
        self.now = self.now + seconds if in_time else max(self.now, self._allowed)
        return in_time


def _foreign(code: str) -> PipelineConfig:
    return PipelineConfig(
        loader=Foreign(code=code), keep="memory" if code == module.CACHED else "none", finish="host", device_prefetch=0
    )


def _failed(config: PipelineConfig, kind: FailureKind) -> TrialFailure:
    return TrialFailure(
        kind=kind,
        phase=Phase.OPEN,
        message=f"{kind} here",
        config=config.model_dump(mode="json"),
        config_key=config.key(),
    )


# -------------------- the machines

_CLASSES = {"16/1": (16, 1), "32/4": (32, 4), "32/8": (32, 8), "128/8": (128, 8)}


def drawn(kind: str, seed: int) -> Machine:
    """Draw a machine of a class; every fifth waits for reads, every fourth has a Python op."""
    rng = np.random.default_rng([zlib.crc32(kind.encode()), seed])
    cores, devices = _CLASSES[kind]
    threads = rng.random() < 0.8
    native = rng.uniform(0.3e-3, 2.0e-3)
    made = (cores / 2 if threads else cores) / native
    wait = rng.choice([2e-3, 20e-3, 60e-3]) if seed % 5 == 4 else 0.0
    python = rng.uniform(0.1e-3, 1e-3) if seed % 4 == 1 else 0.0
    return Machine(
        name=kind,
        cores=cores,
        physical=cores // 2 if threads else cores,
        hyperthread=float(rng.uniform(0.0, 0.3)),
        devices=devices,
        model=float(made * math.exp(rng.uniform(math.log(0.15), math.log(3.0))) / (devices if seed % 2 else 1)),
        spread=float(rng.uniform(0.85, 0.98)),
        native=float(native),
        fresh=float(rng.uniform(0.02, 0.3) * native),
        python=float(python),
        serial=float(rng.uniform(0.5, 1.0)),
        crosstalk=float(rng.uniform(0.002, 0.008)),
        wait=float(wait),
        storage=float(made * rng.uniform(0.3, 3.0)) if wait else math.inf,
        fits=bool(seed % 3 == 0),
        first=float(rng.uniform(0.75, 1.02)),
        call=float(rng.choice([0.0, 0.5e-3])),
        theirs=float(rng.uniform(0.5, 0.95)),
        importing=float(rng.uniform(5.0, 10.0)),
        compiling=float(rng.uniform(2.0, 10.0)),
        hangs=module.CACHED if seed == 9 else "keras" if seed == 19 else "",
        seed=seed,
    )


def beside(machine: Machine) -> Machine:
    """Return a machine on which another program runs at the beginning of the tune."""
    rng = np.random.default_rng([zlib.crc32(machine.name.encode()), machine.seed, 1])
    return dataclasses.replace(machine, neighbour=(float(rng.uniform(20.0, 70.0)), float(rng.uniform(0.4, 0.85))))


def public() -> Iterator[Machine]:
    """Yield machines after published tables."""
    usual = {"devices": 8, "native": 0.05e-3, "fresh": 0.02e-3, "theirs": 0.6}
    yield Machine(
        name="FFCV, p3dn", cores=96, physical=48, hyperthread=0.014, model=1200.0, **{**usual, "native": 1 / 905}
    )
    threads = {"serial": 0.0, "crosstalk_processes": 0.0033}
    yield Machine(
        name="SPDL threads", cores=32, physical=32, model=700.0, python=1 / 342, crosstalk=0.00227, **threads, **usual
    )
    pillow = {"serial": 0.23, "crosstalk_processes": 0.0033}
    yield Machine(
        name="Pillow in threads",
        cores=32,
        physical=32,
        model=700.0,
        python=1 / 320,
        crosstalk=0.0036,
        **pillow,
        **usual,
    )
    host = {"serial": 0.021, "crosstalk": 0.0078, "crosstalk_processes": 0.0003}
    yield Machine(name="PyTorch, p3dn", cores=96, physical=48, model=1200.0, python=1 / 244, **host, **usual)
    data = {"serial": 0.0005, "crosstalk": 0.0023, "crosstalk_processes": 0.0001}
    yield Machine(name="WebDataset, p3dn", cores=96, physical=48, model=1200.0, python=1 / 157, **data, **usual)


# -------------------- one tune, and what came of it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tune:
    machine: Machine
    proved: bool
    share: float  # of the best rate
    limit: bool  # the bottleneck is right
    seconds: float
    own: int  # configurations of autopipe's that ran
    devices: tuple[int, int]  # of the winner, and the fewest that reach its rate
    text: str


def tuned(machine: Machine, budget: float) -> Tune:
    played = Played(machine, budget)
    settings = Settings(
        budget_seconds=budget,
        trials=200,
        seed=machine.seed,
        clock=played.clock,
        began=0.0,
        limits=Limits(convert=False),
    )
    space = spaces.load("default", {"cores": machine.cores, "gpus": machine.devices})
    best = max(map(machine.training, machine.space()))
    try:
        found: Searched | None = study.run(space, played, machine.facts(), settings)
    except AutopipeError as error:
        print(f"  {machine.name} {machine.seed}: {error.message}")
        found = None
    config = None if found is None else found.best_config
    own = {each.key() for each in played.tried if not each.loader.is_foreign}
    if found is None or config is None or found.result.winner is None:
        return Tune(
            machine=machine,
            proved=False,
            share=0.0,
            limit=False,
            seconds=played.now,
            own=len(own),
            devices=(0, 0),
            text="-",
        )
    rate = machine.training(config)
    counts = [count for count in (1, 2, 4, 8) if count <= config.devices]
    enough = [each for each in counts if machine.training(config.model_copy(update={"devices": each})) >= 0.98 * rate]
    return Tune(
        machine=machine,
        proved=found.result.proved,
        share=rate / max(best, rate),
        limit=found.result.winner.limit_kind in machine.limit(config),
        seconds=played.now,
        own=len(own),
        devices=(config.devices, min(enough)),
        text=f"{config.loader!r} keep={config.keep} devices={config.devices} {found.result.winner.limit_kind}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="one kind: 16/1, 32/4, 32/8, 128/8 or public")
    parser.add_argument("--seeds", type=int, default=20, help="machines of a kind")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds")
    parser.add_argument("--busy", action="store_true", help="another program runs for the first 20 to 70 seconds")
    parser.add_argument("--show", type=int, help="one machine of the kind, trial by trial")
    chosen = parser.parse_args()
    kinds = [chosen.only] if chosen.only else [*_CLASSES, "public"]
    row = "{:8} {:>9} {:>8} {:>8} {:>8} {:>10} {:>9} {:>6}"
    print(row.format("cores/GPU", "proved", "median", "worst", "limit", "longest s", "devices", "own"))
    for kind in kinds:
        machines = [*public()] if kind == "public" else [drawn(kind, seed) for seed in range(chosen.seeds)]
        machines = [beside(each) for each in machines] if chosen.busy else machines
        ran = []
        for number, machine in enumerate(machines):
            if chosen.show is None or chosen.show == number:
                ran.append(tuned(machine, chosen.budget))
                if chosen.show is not None or kind == "public":
                    print(
                        f"  {machine}\n  {ran[-1]}"
                        if chosen.show is not None
                        else f"  {machine.name}: {ran[-1].share:.3f} {ran[-1].text}"
                    )
        fewest = sum(each.devices[0] == each.devices[1] for each in ran)
        print(
            row.format(
                kind,
                f"{sum(each.proved for each in ran)}/{len(ran)}",
                f"{median(each.share for each in ran):.3f}",
                f"{min(each.share for each in ran):.3f}",
                f"{sum(each.limit for each in ran)}/{len(ran)}",
                f"{max(each.seconds for each in ran):.0f}",
                f"{fewest}/{len(ran)}",
                f"{median(each.own for each in ran):.0f}",
            )
        )


if __name__ == "__main__":
    main()
