"""The parts of a record; record.py runs `parts.py NAME FOLDER` for each. A row is printed as a line of JSON.

Rates are those of blocks that begin and end with a batch, behind some time of warming up, unless a row says otherwise.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import itertools
import json
import os
import runpy
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import autopipe as ap
from autopipe import native
from autopipe.hardware import machine as hardware
from autopipe.pipeline.assembly import make_loader
from autopipe.pipeline.loader import Loader, LoadJob
from autopipe.workload.program import programs

EXAMPLE = Path(__file__).parents[2] / "examples" / "photos"
_ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print is no row


def tell(row: Mapping[str, Any]) -> None:
    print(json.dumps(row), file=_ANSWERS, flush=True)


@contextlib.contextmanager
def _others_go_on(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # whatever it is, it is in the record
        traceback.print_exc()
        tell({"what": what, "failed": f"{type(error).__name__}: {error}".partition("\n")[0]})


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is done."""

    per_class: int = 192  # photographs, in eight classes
    links: int = 8  # to each of them, so that epochs are not short
    seconds: float = 1.6  # of a block
    warm_seconds: float = 0.8
    workers: tuple[int, ...] = (16, 8, 4, 2, 1)
    threads: tuple[int, ...] = (1, 2, 4, 8, 12, 16)  # of a C loop
    size: int = 224
    batch: int = 32
    resnet_batch: int = 256
    tune_seconds: float = 90.0
    live_seconds: float = 40.0


SMALL = Scale(8, 2, 0.3, 0.2, (2, 1), (1, 2), size=64, batch=8, resnet_batch=8, tune_seconds=20.0, live_seconds=10.0)


def photographs(folder: Path, scale: Scale) -> None:
    """Make the data: `few` for what trains, `many`, hard links to them, for loaders by themselves."""
    try:
        demo = runpy.run_path(str(EXAMPLE / "make_demo.py"))
        count, whence = demo["make"](folder / "few", scale.per_class), "cut from photographs of scikit-image"
    except (ImportError, OSError) as error:
        count, whence = _synthetic(folder / "few", scale.per_class), f"synthetic: {type(error).__name__}: {error}"
    files = sorted((folder / "few").glob("*/*.jpg"))
    for file, number in itertools.product(files, range(scale.links)):
        link = folder / "many" / file.parent.name / f"{number}-{file.name}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.hardlink_to(file)
    size = sum(file.stat().st_size for file in files) / count
    tell({"what": whence, "files": count, "bytes each": size, "links": count * scale.links})


def _synthetic(folder: Path, per_class: int) -> int:
    import cv2

    numbers = np.random.default_rng(0)
    for name, number in itertools.product("abcdefgh", range(per_class)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        coarse = numbers.integers(0, 256, (47, 63, 3), np.uint8)
        noise = numbers.integers(-12, 13, (375, 500, 3), np.int16)
        image = np.clip(cv2.resize(coarse, (500, 375), interpolation=cv2.INTER_CUBIC) + noise, 0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / name / f"{number}.jpg"), image)
    return 8 * per_class


# -------------------- what is loaded


def crops(folder: Path, scale: Scale) -> ap.Workload:
    return _workload(folder / "many", scale, ap.Decode(), ap.RandomResizedCrop(scale.size, scale.size), ap.RandomFlip())


def whole(folder: Path, scale: Scale) -> ap.Workload:
    return _workload(folder / "many", scale, ap.Decode(), ap.Resize(scale.size, scale.size), ap.RandomFlip())


def _workload(folder: Path, scale: Scale, *ops: Any) -> ap.Workload:
    rest = (ap.Rescale(1 / 255),)
    return ap.Workload(data=ap.ImageFolder(folder), ops=(*ops, *rest), batch_size=scale.batch, drop_remainder=True)


WORK: Mapping[str, Callable[[Path, Scale], ap.Workload]] = {"crops": crops, "whole": whole}
LOADERS = {"Threads": ap.Threads, "Processes": ap.Processes}


def _config(kind: str, workers: int, **more: Any) -> ap.PipelineConfig:
    return ap.PipelineConfig(loader=LOADERS[kind](workers=workers, queue_size=max(8, 2 * workers)), **more)


def _endless(loader: Loader) -> Iterator[int]:
    for epoch in itertools.count():
        for x, *_ in loader.batches(epoch):
            yield len(x)


def _rate(batches: Iterator[int], scale: Scale) -> float:
    next(batches)
    began = time.perf_counter()
    while time.perf_counter() - began < scale.warm_seconds:
        next(batches)
    images, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < scale.seconds:
        images += next(batches)
    return images / took


# -------------------- loops of C


def machine(folder: Path, scale: Scale) -> None:
    """Tell what the machine is, and what C makes on some threads at once, by itself and decoding."""
    tell({"what": hardware.detect().one_line(), "native library": native.facts(), "hyperthreads": _siblings()})
    data = bytes(1 << 20)

    def digest() -> int:
        hashlib.sha256(data).digest()
        return 1

    decode = _decoding(whole(folder, scale), scale)
    for count in scale.threads:
        row: dict[str, Any] = {"what": f"{count} threads"}
        row["SHA-256, MiB/s"] = _together(count, lambda: digest, scale.seconds / 4)
        if decode is not None:
            row["bare C loop, whole, images/s"] = _together(count, decode, scale.seconds / 4)
        tell(row)


def _siblings() -> str:
    with contextlib.suppress(OSError):
        return Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").read_text().strip()
    return "unknown"


def _together(count: int, make: Callable[[], Callable[[], int]], seconds: float) -> float:
    """Return what threads do a second that each call what `make` returns again and again."""
    done = [0] * count
    starts = threading.Barrier(count + 1, timeout=5.0)  # a thread that failed does not come

    def loop(number: int) -> None:
        call = make()
        call()
        starts.wait()
        while time.perf_counter() < ends:
            done[number] += call()

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    ends = float("inf")
    starts.wait()
    began = time.perf_counter()
    ends = began + seconds
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


class _CaughtError(Exception):
    """Carries what a loader would have opened."""


def _decoding(workload: ap.Workload, scale: Scale) -> Callable[[], Callable[[], int]] | None:
    """Return what makes the bare C loop of a thread: the native library's own call for a batch, on files in memory.

    The call gives up Python's lock; there is no loader, no order, no queue. None: there is no native library here.
    """

    class Catch(ap.Threads):
        def open(self, job: LoadJob) -> Loader:
            raise _CaughtError(job)

    try:
        make_loader(workload, ap.PipelineConfig(loader=Catch(workers=1)))
    except _CaughtError as caught:
        recipe = caught.args[0].recipe
    chosen = np.random.default_rng(0).permutation(len(recipe.source))[: 32 * scale.batch].tolist()
    files = [recipe.source.read(index)[0] for index in chosen]
    program = programs(recipe.steps[0].before, recipe.steps)
    if native.why_not() is not None or not program.is_native:
        return None
    draws = sum(step.op.draws for step in recipe.steps)

    def make() -> Callable[[], int]:
        numbers = np.random.default_rng()
        out = recipe.spec.empty(scale.batch)
        parts = [files[at : at + scale.batch] for at in range(0, len(files), scale.batch)]
        spans = itertools.cycle([native.bytes_at(part) for part in parts])

        def call() -> int:
            columns = (next(spans), *[None] * (len(program.parts) - 1))
            if program.fill(columns, numbers.random((scale.batch, draws)), out).any():
                raise RuntimeError("the native library left a photograph to Python")
            return scale.batch

        return call

    return make


# -------------------- loaders


def loaders(folder: Path, scale: Scale) -> None:
    """Compare loaders by themselves, each with some workers, beside the bare C loop and PyTorch's DataLoader."""
    torch = all(importlib.util.find_spec(each) for each in ("torch", "torchvision"))
    if not torch:
        tell({"what": "DataLoader: skipped", "why": "torch or torchvision is not installed"})
    for name, work in WORK.items():
        bare = _decoding(work(folder, scale), scale)
        if bare is None:
            tell({"what": f"{name}: bare C loop: skipped", "why": native.why_not()})
        else:
            what = f"{name}: bare C loop, {max(scale.workers)} threads"
            with _others_go_on(what):
                tell({"what": what, "images/s": _together(max(scale.workers), bare, scale.seconds)})
        for workers, kind in itertools.product(scale.workers, LOADERS):
            what = f"{name}: {kind}({workers})"
            with _others_go_on(what), make_loader(work(folder, scale), _config(kind, workers)) as loader:
                tell({"what": what, "images/s": _rate(_endless(loader), scale), "of": [name, kind, workers]})
        for workers in (0 if each == 1 else each for each in scale.workers if torch):
            what = f"{name}: DataLoader({workers})"
            with _others_go_on(what):
                tell({"what": what, "images/s": _torch_rate(name, folder, workers, scale)})


def _torch_rate(name: str, folder: Path, workers: int, scale: Scale) -> float:
    """Return the rate of torchvision's own dataset and transforms, as its examples write them."""
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    sized = transforms.RandomResizedCrop(scale.size) if name == "crops" else transforms.Resize((scale.size, scale.size))
    chain = transforms.Compose([sized, transforms.RandomHorizontalFlip(), transforms.PILToTensor()])
    data = datasets.ImageFolder(str(folder / "many"), chain)
    more: dict[str, Any] = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    batches = DataLoader(data, scale.batch, shuffle=True, drop_last=True, num_workers=workers, **more)
    return _rate((len(x) for _ in itertools.count() for x, _ in batches), scale)


def lock(folder: Path, scale: Scale) -> None:
    """Tell how long a loader holds Python's lock (GIL) for an image: what a thread of pure Python beside it loses.

    So few workers run that this thread has a core to itself.
    """
    sys.setswitchinterval(0.0005)
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            for _ in range(200):
                pass
            counted[0] += 1

    def counts(batches: Iterator[int] | None) -> tuple[float, float]:
        before, images, began = counted[0], 0, time.perf_counter()
        while (took := time.perf_counter() - began) < scale.seconds / 2:
            if batches is None:
                time.sleep(scale.seconds / 2)
            else:
                images += next(batches)
        return (counted[0] - before) / took, images / took

    threading.Thread(target=count, daemon=True).start()
    alone, _ = counts(None)
    for name, kind, workers in itertools.product(WORK, LOADERS, dict.fromkeys((scale.workers[1], 1))):
        what = f"{name}: {kind}({workers})"
        with _others_go_on(what), make_loader(WORK[name](folder, scale), _config(kind, workers)) as loader:
            batches = _endless(loader)
            next(batches)
            beside, rate = counts(batches)
            held = max(0.0, 1 - beside / alone) / rate * 1e6
            tell({"what": what, "microseconds an image": held, "images/s beside the thread": rate})
    stop.set()


# -------------------- with the accelerator


def transfer(folder: Path, scale: Scale) -> None:
    """Tell at what rate batches of bytes go to the device, with so many under way."""
    import jax

    tell({"what": str(jax.devices()[0].device_kind), "backend": jax.default_backend(), "JAX": jax.__version__})
    image = scale.size**2 * 3
    for images, under_way in itertools.product((8, 32, 128, 512), (1, 2, 4, 8)):
        arrays = itertools.cycle([np.full((images, image), value, np.uint8) for value in range(4)])
        sent: collections.deque[Any] = collections.deque()
        done, began = -under_way, time.perf_counter()
        while (took := time.perf_counter() - began) < scale.seconds / 5 or done < 1:
            sent.append(jax.device_put(next(arrays)))
            if len(sent) > under_way - 1:
                sent.popleft().block_until_ready()
            done += 1
            if done == 0:
                began = time.perf_counter()
        rate = done * images / took
        what = f"{images * image / 1e6:.1f} MB, {under_way} under way"
        tell({"what": what, "GB/s": rate * image / 1e9, "images/s": rate})


def _network(classes: int, size: int) -> Any:
    import keras

    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = keras.applications.ResNet50(weights=None, classes=classes, input_shape=(size, size, 3))
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    return model


class _Silent:
    """Takes the news of a measurement."""

    def phase(self, phase: Any) -> None:
        print(f"{time.perf_counter():.1f} {phase}", file=sys.stderr)

    def progress(self, images: int, images_per_second: float) -> None: ...
    def log(self, text: str, **_: Any) -> None:
        print(text, file=sys.stderr)


def resnet(folder: Path, scale: Scale) -> None:
    """Tell what ResNet-50 takes by itself, and what it gets from the best loader of crops from files; all by `fit`."""
    import jax

    from autopipe.measure.session import TrialSession

    if jax.default_backend() == "cpu" and scale != SMALL:
        tell({"what": "ResNet-50: skipped", "why": f"there is no card, and batches of {scale.resnet_batch} need 32 GB"})
        return
    rows = json.loads((folder / "results.json").read_text())["parts"].get("loaders", {}).get("rows", [])
    found = {tuple(row["of"][1:]): row["images/s"] for row in rows if row.get("of", [""])[0] == "crops"}
    best = max(found, key=found.__getitem__, default=("Threads", max(scale.workers)))
    model = functools.partial(_network, 8, scale.size)
    work = dataclasses.replace(crops(folder, scale), batch_size=scale.resnet_batch, model=model)
    session, report = TrialSession(work), _Silent()
    options: dict[str, Any] = {"page_cache": "warm", "max_seconds": 6.0}
    first = _config(*best)
    alone = session.ceiling({"model_only": True, "page_cache": "warm"}, report).model_images_per_second
    tell({"what": "ResNet-50 in bfloat16 by itself", "images/s": alone.value, "batch": scale.resnet_batch})
    for config in (first, _config(*best, keep="memory"), _config("Threads", max(scale.workers), keep="memory")):
        with _others_go_on(config.short()):
            rate = session.measure(config, options, report).images_per_second.value
            tell({"what": config.short(), "images/s": rate, "of its own, %": 100 * rate / alone.value})


def tune(folder: Path, scale: Scale) -> None:
    """Run a whole `autopipe tune -v` of the example, and tell when each trial began and how long processes took."""
    from autopipe.api import tuning
    from autopipe.cli.progress import Progress
    from autopipe.measure.outcome import Measurement
    from autopipe.measure.trial.child import Event, PhaseBegan
    from autopipe.search.result import TrialFinished, TrialStarted
    from autopipe.search.settings import Settings

    began, heard = time.monotonic(), [0.0, 0.0]  # the last that was heard, and that before a new process
    fresh = [False]

    def now() -> float:
        return time.monotonic() - began

    def on_trial(event: Event) -> None:
        progress.watcher.on_trial(event)
        if isinstance(event, PhaseBegan):
            if event.phase == "import":
                heard[1], fresh[0] = heard[0], True
            elif fresh[0]:
                fresh[0] = False
                tell({"what": f"a process at {heard[1]:.1f} s", "seconds until it was ready": now() - heard[1]})
        heard[0] = now()

    def on_search(event: Any) -> None:
        progress.watcher.on_search(event)
        if isinstance(event, TrialStarted):
            tell({"what": f"trial {event.number} at {now():.1f} s", event.origin.asker: event.config.short()})
        elif isinstance(event, TrialFinished):
            outcome = event.outcome
            said: dict[str, Any] = (
                {"images/s": outcome.images_per_second.value}
                if isinstance(outcome, Measurement)
                else {"failed": outcome.message.partition("\n")[0]}
            )
            tell({"what": f"trial {event.number} ended at {now():.1f} s", **said})
        heard[0] = now()

    settings = Settings(budget_seconds=scale.tune_seconds, command="benchmarks/device/run")
    with Progress(verbose=True, budget_seconds=scale.tune_seconds) as progress:
        watcher = dataclasses.replace(progress.watcher, on_search=on_search, on_trial=on_trial)
        result, tuned = tuning.run(f"{EXAMPLE / 'train.py'}:workload", settings, watcher, folder=folder)
    config = None if tuned is None else tuned.config.short()
    tell({"what": "the winner", "config": config, "stopped": result.stop.message, "seconds": now()})


def live(folder: Path, scale: Scale) -> None:
    """Train from nothing with `tune="live"`, and tell the rate of each ten epochs."""
    import keras

    ends, began = [], time.perf_counter()
    workload = runpy.run_path(str(EXAMPLE / "train.py"))["workload"]

    class Clock(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            ends.append(time.perf_counter())

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            ends.append(time.perf_counter())
            self.model.stop_training = ends[-1] - began > scale.live_seconds

    with ap.make_trainer(workload, tune="live") as trainer:
        trainer.fit(epochs=10**6, callbacks=[Clock()], verbose=0)
        watch = getattr(trainer.loader, "watch", None)
        images = trainer.loader.batch_size * len(trainer.loader)
    for first in range(0, len(ends) - 1, 10):
        some = ends[first : first + 11]
        what = f"epochs {first + 1} to {first + len(some) - 1}, from second {some[0] - began:.1f}"
        tell({"what": what, "images/s": (len(some) - 1) * images / (some[-1] - some[0])})
    for change in () if watch is None else watch.changes:
        took = "kept" if change.kept else change.failure or "taken back"
        tell({"what": f"{change.before} > {change.after}", "ratio": change.ratio, "so it was": took})


PARTS: Mapping[str, Callable[[Path, Scale], None]] = {
    each.__name__: each for each in (photographs, machine, loaders, lock, transfer, resnet, tune, live)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true")
    wanted = parser.parse_args()
    os.environ["PHOTOS"] = str(wanted.folder / "few")  # of the example
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(wanted.folder / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    PARTS[wanted.part](wanted.folder, SMALL if wanted.small else Scale())


if __name__ == "__main__":
    main()
