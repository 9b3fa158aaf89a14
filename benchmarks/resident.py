"""Compare samples that lie on the device with a cache of them in memory, alone and in `fit`, by turns in one process.

    KERAS_BACKEND=jax python benchmarks/resident.py --photos DIR [--rounds N] [--epochs N] [--batch N]

DIR holds folders of classes (2000 JPEG of 500x375 were used). Photographs are resized to 224x224 and flipped. Without
an accelerator the CPU is the device, and the cores that gather there are those that train: then the figures tell what
the gather costs, not what an accelerator gains. A block is so many epochs; the medians of all rounds are printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras

import autopipe as ap
from autopipe.hardware import machine
from autopipe.measure.bench import arrived
from autopipe.measure.stats import median
from autopipe.pipeline.devices.strategy import SingleDevice


def build() -> keras.Model:
    layers = [keras.layers.Conv2D(8, 7, strides=8, activation="relu"), keras.layers.GlobalAveragePooling2D()]
    model = keras.Sequential([keras.Input((224, 224, 3)), *layers, keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def placed(loader: ap.Loader, epoch: int) -> Iterator[Any]:
    """Yield the batches of an epoch on the device."""
    if loader.on_device:
        for parts in loader.native_dataset(epoch, 1):
            yield tuple(map(loader.finish.gathered, parts))
        return
    place = SingleDevice().place
    for batch in loader.batches(epoch):
        yield tuple(place(part) for part in batch if part is not None)


def alone(trainer: ap.Trainer, first: int, epochs: int) -> None:
    waiting: list[Any] = []
    for epoch in range(first, first + epochs):
        for parts in placed(trainer.loader, epoch):
            waiting.append(parts[0])
            if len(waiting) > 2:  # as far ahead as a training places batches
                arrived(waiting.pop(0))


def in_fit(trainer: ap.Trainer, first: int, epochs: int) -> None:
    trainer.fit(epochs=first + epochs, initial_epoch=first, verbose=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    arguments = parser.parse_args()
    cores = machine.usable_cores()
    ops = [ap.Decode(), ap.Resize(224, 224), ap.RandomFlip(), ap.Rescale(1 / 255)]
    data = ap.ImageFolder(arguments.photos.resolve())
    workload = ap.Workload(data=data, ops=ops, batch_size=arguments.batch, model=build, drop_remainder=True)
    configs = {
        "Threads, cache in memory": ap.PipelineConfig(loader=ap.Threads(workers=cores), keep="memory"),
        "Resident": ap.PipelineConfig(loader=ap.Resident(workers=cores)),
    }
    trainers = {}
    for name, config in configs.items():
        began = time.perf_counter()
        trainers[name] = ap.build_trainer(workload, config)
        print(f"{name}: opened in {time.perf_counter() - began:.2f} s")
    ways: dict[str, Callable[[ap.Trainer, int, int], None]] = {"loader alone": alone, "in fit": in_fit}
    rates: dict[tuple[str, str], list[float]] = {}
    for number in range(arguments.rounds + 1):  # the first fills the cache, compiles, and is left out
        for way, run in ways.items():
            for name in list(trainers)[:: 1 if number % 2 else -1]:
                images = arguments.epochs * len(trainers[name].loader) * arguments.batch
                began = time.perf_counter()
                run(trainers[name], number * arguments.epochs, arguments.epochs)
                rates.setdefault((way, name), []).append(images / (time.perf_counter() - began))
    print(f"Keras on {keras.backend.backend()}, {cores} cores, {len(data)} photographs, images/s:")
    for way in ways:
        found = {name: median(rates[way, name][1:]) for name in trainers}
        one, other = found.values()
        print(
            f"{way}: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in found.items()) + f"; {other / one:.2f} times"
        )
    for trainer in trainers.values():
        trainer.close()


if __name__ == "__main__":
    main()
