"""What a search has to know of a workload, found where the workload and its framework are imported."""

from __future__ import annotations

from typing import Any

import keras

from autopipe import assembly
from autopipe.batching.wrapped_data import WrappedData
from autopipe.core.config import LOADERS
from autopipe.core.description import Description, Impossible, OpSettings, WrappedDataset
from autopipe.core.plan import Plan
from autopipe.core.workload import Workload
from autopipe.data import source as data_source
from autopipe.devices import choose
from autopipe.measure import kept
from autopipe.tuned import fingerprint, wrap


def describe(workload: Workload, plan: Plan, model: Any) -> Description:
    """Return the description of a workload with its plan and its built model."""
    count = len(workload.data)
    fixed = plan.cut(len(plan.prefix))
    digests = fingerprint.workload_digest(workload, fingerprint.model_digest(model))
    return Description(
        samples=count,
        batch_size=workload.batch_size,
        data_bytes=int(data_source.mean_bytes(workload.data) * count),
        fixed_bytes=fixed.bytes * count if fixed.is_fixed else None,
        compact_bytes=plan.compact.bytes,
        finished_bytes=plan.finished.bytes,
        cuts=() if isinstance(workload.data, WrappedData) else kept.sizes(workload, plan),
        backend=keras.backend.backend(),
        devices=choose.available(keras.backend.backend()),
        impossible=tuple(_impossible(workload, plan, model)),
        data_digest=data_source.first_digest(workload.data),
        mean_bytes=digests.mean_bytes,
        sizes=digests.sizes,
        storage_kind=fingerprint.storage_of(workload.data),
        ops_digest=digests.ops,
        ops=tuple(OpSettings(name=op.name, settings=op.settings) for op in digests.op_list or ()),
        model_digest=digests.model or "",
        epochs=workload.epochs,
        wrapped=_wrapped(workload),
    )


def _wrapped(workload: Workload) -> WrappedDataset | None:
    config = wrap.as_it_is(workload)
    if config is None:
        return None
    return WrappedDataset(as_it_is=config.model_dump(mode="json"), choices=wrap.choices(workload))


def _impossible(workload: Workload, plan: Plan, model: Any) -> list[Impossible]:
    found = []
    if not plan.cut(len(plan.prefix)).is_fixed:
        reason = "samples differ in size after the deterministic first ops"
        found += [Impossible(parameter="cache", value="memory", reason=reason)]
    if plan.finished.x.shape is not None and len(plan.finished.x.shape) != 3:
        found.append(Impossible(parameter="channels", value="first", reason="x is no image with channels"))
    elif _has_fixed_input(workload, model, plan):
        found.append(
            Impossible(parameter="channels", value="first", reason="the model's input is fixed to channels last")
        )
    if not plan.suffix:
        found.append(Impossible(parameter="finish", value="device", reason="no op is left that a device could do"))
    if workload.on_bad_sample == "skip":
        reason = 'it cannot replace bad samples (on_bad_sample="skip")'
        cannot = [kind for kind in LOADERS if not LOADERS[kind].skips_bad_samples]
        found += [Impossible(parameter="loader", value=kind, reason=reason) for kind in cannot]
    order = assembly.batch_order(workload)
    if order.has_short_batch:
        last = order.batch_samples(order.batches - 1)
        reason = f"they cannot share the {last} samples of an epoch's last batch; drop_remainder=True leaves it out"
        shared = range(2, choose.available(keras.backend.backend()) + 1)
        found += [Impossible(parameter="devices", value=each, reason=reason) for each in shared if last % each]
    return found


def _has_fixed_input(workload: Workload, model: Any, plan: Plan) -> bool:
    """Tell whether the model keeps its input shape whatever Keras's image data format is."""
    if isinstance(workload.model, keras.Model):
        return True
    shape = getattr(model, "input_shape", None)
    image = plan.finished.x.shape
    if not isinstance(shape, tuple) or image is None or shape[1:] != image:
        return False
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        other = workload.model()
    except Exception:  # noqa: BLE001  # a model that cannot be built so has a fixed input, whatever it raised
        return True
    finally:
        keras.config.set_image_data_format(before)
    return bool(getattr(other, "input_shape", None) == shape)
