"""The description of a workload for a search. Runs in the process that imports the workload and its framework."""

from __future__ import annotations

from typing import Any

import keras

from autopipe.hardware import disk
from autopipe.measure import fingerprint, kept_sets, model_structure
from autopipe.measure.facts import CODE, Description, Impossible, WrappedDataset
from autopipe.measure.reads import Subset, existing
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.config import LOADERS, STORAGES
from autopipe.pipeline.devices import choose
from autopipe.pipeline.eject import module
from autopipe.pipeline.storage.convert import estimate_bytes
from autopipe.pipeline.storage.form import Conversion
from autopipe.pipeline.wrap import WrappedData
from autopipe.workload.data import source as data_source
from autopipe.workload.op import Plan
from autopipe.workload.workload import Workload

_LOOKED_AT = 64  # samples whose files may be in memory


def describe(workload: Workload, plan: Plan, model: Any) -> Description:
    """Describe a workload with its plan and its built model."""
    resident = _resident_share(workload)  # before other steps read samples
    count = len(workload.data)
    fixed = plan.cut(len(plan.prefix))
    digests = fingerprint.workload_digest(workload, model_structure.model_digest(model))
    return Description(
        samples=count,
        batch_size=workload.batch_size,
        fixed_bytes=fixed.bytes * count if fixed.is_fixed else None,
        compact_bytes=plan.compact.bytes,
        finished_bytes=plan.finished.bytes,
        cuts={} if isinstance(workload.data, WrappedData) else cut_sizes(workload, plan),
        first_ops=kept_sets.first_ops(plan),
        backend=keras.backend.backend(),
        accelerators=choose.accelerators(),
        virtual_devices=choose.virtual_devices(),
        impossible=(*_impossible(workload, plan, model), *_not_plain(workload, plan)),
        data_digest=data_source.first_digest(workload.data),
        mean_bytes=digests.mean_bytes,
        resident_share=resident,
        sizes=digests.sizes,
        storage_kind=fingerprint.storage_of(workload.data),
        ops_digest=digests.ops,
        ops=digests.op_list,
        model_digest=digests.model or "",
        epochs=workload.epochs,
        wrapped=_wrapped(workload),
    )


def _resident_share(workload: Workload) -> float | None:
    part = Subset(workload.data, _LOOKED_AT)
    return disk.share_in_memory(existing(dict.fromkeys(data_source.files(part))))


def _wrapped(workload: Workload) -> WrappedDataset | None:
    config = wrap.as_it_is(workload)
    return None if config is None else WrappedDataset(as_it_is=config, choices=wrap.choices(workload))


def _not_plain(workload: Workload, plan: Plan) -> list[Impossible]:
    """List the forms of plain code that cannot express the workload; none for a wrapped dataset."""
    if isinstance(workload.data, WrappedData):
        return []
    reasons = {form: module.reasons_against(workload, form, plan, own=False) for form in module.FORMS}
    return [Impossible(parameter=CODE, value=form, reason=why) for form, why in reasons.items() if why is not None]


def _impossible(workload: Workload, plan: Plan, model: Any) -> list[Impossible]:
    found: list[tuple[str, str | int, str | None]] = []  # setting, value and reason
    if not plan.cut(len(plan.prefix)).is_fixed:
        found.append(("cache", "memory", "samples differ in size after the deterministic first ops"))
    found.append(("channels", "first", _no_channels_first(workload, model, plan)))
    if not plan.suffix:
        found.append(("finish", "device", "no op is left that a device could do"))
    for kind in LOADERS:
        found.append(("loader", kind, LOADERS[kind].missing()))
        for (name, value), reason in LOADERS[kind].impossible(plan).items():
            found.append((name, value, reason))
        if workload.on_bad_sample == "skip" and not LOADERS[kind].skips_bad_samples:
            found.append(("loader", kind, 'it cannot replace bad samples (on_bad_sample="skip")'))
    alone, order = _one_device_only(workload, model), assembly.batch_order(workload)
    last = order.batch_samples(order.batches - 1)
    uneven = f"they cannot share the {last} samples of an epoch's last batch; drop_remainder=True leaves it out"
    for count in range(2, max(choose.accelerators(), choose.virtual_devices()) + 1):
        found.append(("devices", count, alone))
        found.append(("devices", count, uneven if order.has_short_batch and last % count else None))
    return [Impossible(parameter=name, value=value, reason=why) for name, value, why in found if why is not None]


def _one_device_only(workload: Workload, model: Any) -> str | None:
    several = choose.sharing()
    if several is None:
        return f"on Keras's {keras.backend.backend()} backend autopipe trains on one device"
    if isinstance(workload.model, keras.Model):
        return "the model is built already; pass the function that builds it"
    return several.unfit(model)


def _no_channels_first(workload: Workload, model: Any, plan: Plan) -> str | None:
    """Return the reason why the model takes no images with channels first; None if it may."""
    if plan.source.structure is not None:
        return "samples of several parts are fed with channels last"
    if plan.finished.x.shape is not None and len(plan.finished.x.shape) != 3:
        return "x is no image with channels"
    if isinstance(workload.model, keras.Model):
        return "the model is built already, for channels last"
    shape, image = getattr(model, "input_shape", None), plan.finished.x.shape
    if not isinstance(shape, tuple) or len(shape) != 4 or image is None:
        return None
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        other = getattr(workload.model(), "input_shape", None)
    except Exception as error:  # noqa: BLE001  # whatever it raised, it cannot be built so
        return f"the model cannot be built so ({type(error).__name__})"
    finally:
        keras.config.set_image_data_format(before)
    height, width, channels = image
    fits = isinstance(other, tuple) and all(
        takes in (None, has) for takes, has in zip(other[1:], (channels, height, width), strict=True)
    )
    return None if fits else "the model's input is fixed to channels last"


def cut_sizes(workload: Workload, plan: Plan) -> dict[str, dict[int, int]]:
    """Return the bytes of the whole set in each storage form, by its cuts; raises DataError for unreadable samples."""
    found = {
        name: {
            cut: int(estimate_bytes(Conversion.of(workload, plan, cut), STORAGES[name]))
            for cut in STORAGES[name].cuts(plan)
        }
        for name in STORAGES
        if STORAGES[name].converts
    }
    return {name: sizes for name, sizes in found.items() if sizes}
