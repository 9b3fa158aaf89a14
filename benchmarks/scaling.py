"""What several devices and processes come to: predicted beside measured, work per process, a search over both counts.

Usage: python benchmarks/model.py [--only devices,processes,search,ray]

On a machine without accelerators: two virtual devices (halves of the CPU), two JAX processes on loopback, a Ray cluster
of this machine. Ratios only: they share its cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import autopipe as ap
from autopipe.extensions.scale import model
from autopipe.search.settings import Settings

ROOT = Path(__file__).parents[1]
SIDE, BATCH, SAMPLES = 64, 64, 1024
BUDGET_SECONDS = 120
PHOTOS, PHOTO_BATCH, ROUNDS = 640, 32, 7


class Images:
    """Made-up images, each of which takes a while to make; readings are noted."""

    def __init__(self, count: int = SAMPLES) -> None:
        self.count, self.read_indices = count, list[int]()

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> tuple[Any, Any]:
        self.read_indices.append(index)
        image = np.random.default_rng(index).integers(0, 255, (SIDE, SIDE, 3)).astype(np.uint8)
        return image, np.int64(index % 7)

    def name(self, index: int) -> str:
        return str(index)

    def files(self, indices: Any = None) -> list[str]:
        return []

    def digest(self) -> str:
        return f"images-{self.count}"

    def mean_bytes(self) -> float:
        return float(SIDE * SIDE * 3)


def build() -> Any:
    """Return a small CNN."""
    import keras

    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            keras.layers.Conv2D(64, 3, strides=2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(7),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def make_workload(data: Images | None = None) -> ap.Workload:
    """Return the workload of all rows."""
    return ap.Workload(data=data or Images(), ops=[ap.RandomFlip(), ap.Rescale(1 / 255)], batch_size=BATCH, model=build)


def devices() -> None:
    """Predict two virtual devices from one, and measure them."""
    found = model.scale(make_workload(), [1, 2], settings=Settings(virtual_devices=2))
    for weak in (False, True):
        measured = model.row(found.measured, 2, weak=weak)
        predicted = model.row(found.measured, 2, weak=weak, predict=True)
        off = measured.step_seconds / predicted.step_seconds - 1
        kind, steps = "weak" if weak else "strong", (predicted.step_seconds * 1e3, measured.step_seconds * 1e3)
        print(
            f"two virtual devices, {kind}: step predicted {steps[0]:.1f} ms, measured {steps[1]:.1f} ms: {off:+.0%} "
            "(target: within 15 %)"
        )


def processes() -> None:
    """Train in one JAX process and in two, and compare what each reads and does."""
    results = {ranks: _train(ranks) for ranks in (1, 2)}
    (one,), two = results[1], results[2]
    each_once = sorted(index for rank in two for index in rank["read"]) == sorted(one["read"])
    print(f"two JAX processes: each sample once an epoch over both: {each_once}; steps {[r['steps'] for r in two]}")
    for name in ("samples", "core_seconds"):
        shares = ", ".join(f"{rank[name] / one[name]:.2f}" for rank in two)
        print(f"  {name} of each, over those of one process: {shares} (target for samples: 0.50)")
    print(f"  images/s of both over one, on the same cores: {two[0]['rate'] / one['rate']:.2f}")


def _train(ranks: int) -> list[dict[str, Any]]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, __file__, "--rank"]
        started = [
            subprocess.Popen([*command, f"{rank}/{ranks}/{port}/{folder}"], env=environment) for rank in range(ranks)
        ]
        if any(process.wait(300) for process in started):
            raise SystemExit("a process failed")
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(ranks)]


def rank(text: str) -> None:
    """Train as one of several processes, and write what was done."""
    number, ranks, port, folder = text.split("/", 3)
    import jax

    if int(ranks) > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", int(ranks), int(number))
    data = Images()
    config = ap.PipelineConfig(loader=ap.Threads(workers=1))
    with ap.build_trainer(make_workload(data), config) as trainer:
        trainer.fit(epochs=1, verbose=0)  # compiles
        data.read_indices.clear()
        began, busy = time.perf_counter(), time.process_time()
        trainer.fit(epochs=1, verbose=0)
        seconds, core_seconds = time.perf_counter() - began, time.process_time() - busy
    result = {
        "read": data.read_indices,
        "samples": len(data.read_indices),
        "steps": len(trainer.loader),
        "rate": SAMPLES / seconds,
        "core_seconds": core_seconds,
    }
    Path(folder, f"{number}.json").write_text(json.dumps(result))


def search() -> None:
    """Let a default search on two virtual devices look at both counts."""
    from autopipe.api import tuning
    from autopipe.search.searching import Watcher

    began = time.perf_counter()
    settings = Settings(virtual_devices=2, budget_seconds=BUDGET_SECONDS)
    found, _ = tuning.run(make_workload(), settings, Watcher())
    took = time.perf_counter() - began
    print(f"default search on two virtual devices: {took:.0f} s of {BUDGET_SECONDS} (target: at most 10 % more)")
    for count in found.devices:
        print(f"  {count.model_dump()}")
    for reason in found.left_out:
        if reason.startswith("devices"):
            print(f"  left out: {reason}")


def ray() -> None:
    """Load photographs by two processes and by two workers of a Ray cluster of this machine, by turns."""
    with tempfile.TemporaryDirectory() as folder:
        workload = _photos(Path(folder))
        loaders = {"Processes": ap.Processes(workers=2), "Ray": ap.Ray(workers=2, address="local")}
        with contextlib.ExitStack() as stack:
            opened = {
                name: stack.enter_context(ap.build_loader(workload, ap.PipelineConfig(loader=loader)))
                for name, loader in loaders.items()
            }
            rates = [{name: _epoch_rate(loader, turn) for name, loader in opened.items()} for turn in range(ROUNDS + 1)]
            handed = opened["Ray"].hand_over_seconds or 0.0
    ratios = sorted(round["Ray"] / round["Processes"] for round in rates[1:])
    print(
        f"Ray with 2 workers here over Processes(2): {np.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f} in "
        f"{ROUNDS} rounds by turns; target: 0.9); a batch of {PHOTO_BATCH} takes {handed * 1e3:.1f} ms to come over"
    )


def _photos(folder: Path) -> ap.Workload:
    """Return a workload of JPEG files of 500x375 to 224x224."""
    generator = np.random.default_rng(0)
    (folder / "all").mkdir()
    for number in range(PHOTOS):
        coarse = generator.integers(0, 256, (12, 16, 3)).astype(np.uint8)
        cv2.imwrite(
            str(folder / "all" / f"{number:03}.jpg"), cv2.resize(coarse, (500, 375), interpolation=cv2.INTER_CUBIC)
        )
    ops = [ap.Decode(), ap.Resize(224, 224), ap.RandomFlip(), ap.Rescale(1 / 255)]
    return ap.Workload(data=ap.ImageFolder(folder), ops=ops, batch_size=PHOTO_BATCH, drop_remainder=True)


def _epoch_rate(loader: ap.Loader, turn: int) -> float:
    """Return the images/s of two epochs, of which no batch was made beforehand."""
    began, images = time.perf_counter(), 0
    for epoch in (2 * turn, 2 * turn + 1):
        for x, _ in loader.batches(epoch, last=epoch % 2 == 1):
            images += len(x)
    return images / (time.perf_counter() - began)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="devices,processes,search,ray")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments.rank)
        return
    for name in arguments.only.split(","):
        {"devices": devices, "processes": processes, "search": search, "ray": ray}[name]()


if __name__ == "__main__":
    main()
