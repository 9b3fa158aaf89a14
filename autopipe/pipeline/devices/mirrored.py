"""Several devices on the TensorFlow backend, by `tf.distribute.MirroredStrategy`: GPUs, or virtual CPU devices."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from autopipe.errors import ModelError
from autopipe.hardware import gpu
from autopipe.pipeline.devices.strategy import SharingStrategy, require_devices, tensor


class Mirrored(SharingStrategy):
    """Every device holds all variables and takes an equal part of each batch; gradients are averaged.

    Batch normalisation uses the statistics of each device's part, as is usual with TensorFlow.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        gpus = len(tf.config.list_physical_devices("GPU"))
        self._kind = "GPU" if gpus else "CPU"
        self.looks_ahead = self._kind == "GPU"
        if self._kind == "CPU" and gpu.asked() >= devices:
            _split_cpu(devices)
        require_devices(devices, gpus or len(tf.config.list_logical_devices("CPU")), self._kind)
        self._names = [f"{self._kind}:{number}" for number in range(devices)]
        # One for the process: a second one would number its collectives as the first did, and TensorFlow would confuse
        # the two.
        if any(known != devices for known in _strategies):
            raise ModelError(
                "One process can train on one number of devices only with TensorFlow, "
                f"but got devices={devices} after devices={next(iter(_strategies))}.",
                hint="Build this trainer in a fresh process.",
            )
        if devices not in _strategies:
            _strategies[devices] = tf.distribute.MirroredStrategy(self._names)
        self._strategy = _strategies[devices]

    @classmethod
    def cluster(cls) -> tuple[int, int]:
        named = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
        workers = sum(len(named.get(job, ())) for job in ("chief", "worker"))
        inside = isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy)
        if workers > 1 or inside:
            scope = "this is MultiWorkerMirroredStrategy's scope"
            asked = f"TF_CONFIG names {workers} of them" if workers > 1 else scope
            raise ModelError(
                f"Keras 3 does not train in several processes on the TensorFlow backend, but {asked}: "
                "MultiWorkerMirroredStrategy fails under it (keras issue 20585).",
                hint="Use the jax backend: call jax.distributed.initialize() in each process, then make_trainer(). "
                "Or unset TF_CONFIG, and train on the GPUs of one host.",
            )
        return 0, 1

    @classmethod
    def prepare(cls) -> None:
        if gpu.asked() > 1 and not tf.config.list_physical_devices("GPU"):
            _split_cpu(gpu.asked())

    @classmethod
    def split(cls) -> int:
        return len(tf.config.list_logical_devices("CPU"))

    def scope(self) -> AbstractContextManager[Any]:
        return self._strategy.scope()  # type: ignore[no-any-return]  # TensorFlow has no types

    @classmethod
    def unfit(cls, model: Any) -> str | None:
        if (model.get_compile_config() or {}).get("jit_compile") is True:  # "auto" leaves XLA out on several devices
            return "TensorFlow compiles no step over several devices by XLA, but the model has jit_compile=True"
        if steps := getattr(model.optimizer, "gradient_accumulation_steps", None):
            return f"TensorFlow accumulates gradients on one device only, but gradient_accumulation_steps={steps}"
        return None

    def exchange(self, numbers: int) -> Callable[[], object]:
        def each(part: Any) -> Any:
            return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, part)

        parts = self._strategy.experimental_distribute_values_from_function(lambda _: tf.ones([numbers]))
        summed = tf.function(lambda: self._strategy.run(each, args=(parts,)))
        return lambda: [part[:1].numpy() for part in self._strategy.experimental_local_results(summed())]

    def place(self, array: Any) -> Any:
        if isinstance(array, tf.distribute.DistributedValues):
            return array
        rows = array.shape[0]
        self.check_evaluation_rows(rows)

        def part(context: Any) -> Any:
            number = context.replica_id_in_sync_group
            piece = tensor(array[rows * number // self.devices : rows * (number + 1) // self.devices])
            with tf.device(self._names[number]):
                return piece if self._kind == "CPU" else tf.identity(piece)

        return self._strategy.experimental_distribute_values_from_function(part)

    def check_evaluation_rows(self, rows: int) -> None:
        if rows < self.devices:
            raise ModelError(
                "The last batch of an evaluation must hold a sample for each device, "
                f"but it has {rows} samples for devices={self.devices}.",
                hint=f"Leave {rows} of these samples out, or add {self.devices - rows}.",
            )

    def check_array_rows(self, rows: int) -> None:
        """TensorFlow shares out any number of them."""


_strategies: dict[int, Any] = {}  # the process's one, by the number of its devices


def _split_cpu(devices: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    except RuntimeError as error:
        if len(tf.config.list_logical_devices("CPU")) < devices:
            raise ModelError(
                f"`devices={devices}` on a machine without GPU needs that many virtual CPU devices, "
                "which TensorFlow can only make before it has run anything.",
                hint="Build the trainer in a fresh process, before any other use of TensorFlow.",
            ) from error
