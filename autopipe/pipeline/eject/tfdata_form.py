"""A pipeline as plain tf.data code, as experts of tf.data write it.

Ops write one line after another without knowing of each other; lines that a person would omit are removed here.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from autopipe.hardware import machine
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.eject.written import MOST_OF_MEMORY, Written, function, indented
from autopipe.pipeline.loaders.tfdata import TfData
from autopipe.workload.op import Plan
from autopipe.workload.ops.planner import looked_at, normalise
from autopipe.workload.plain_code import Lines
from autopipe.workload.sample import FieldKind
from autopipe.workload.workload import Workload

_ROUNDED: Final = re.compile(r"(?P<part>\w+) = tf\.(?P<how>\w*cast)\(tf\.round\((?P=part)\), tf\.uint(?P<bits>\d+)\)")
_MOVED: Final = r"{0} = (tf\.image\.\w*random_flip_\w+\({0}(, seed=seed)?\)|{0}\[top : .*\])|{0}\.set_shape\(.*\)"
"""Lines that put the values of a part elsewhere, whatever their dtype."""
_TAKEN: Final = (
    r"{0} = (\(?tf\.cast\({0}, tf\.float32\)|tf\.\w+\.\w+\(tf\.cast\({0}, tf\.float32\)|tf\.image\.resize\({0},)"
)
"""How lines begin that take them as floating point."""
_DECODED: Final = re.compile(r"(?P<part>\w+) = tf\.io\.decode_jpeg\((?P=part), channels=(?P<channels>\d)\).*")
_CUT: Final = r"{0} = {0}\[top : top \+ (\w+), left : left \+ (\w+)\]"

TEMPLATE: Final = '''\
$load$augment$mix$finish
def make_dataset($given) -> tf.data.Dataset:
    """Return the batches of an epoch: `model.fit(make_dataset($passed), epochs=3)`."""
$dataset
    return dataset
'''


def texts(workload: Workload, config: PipelineConfig, parts: Written) -> dict[str, object]:
    """Return the texts of the template."""
    loader = config.loader
    assert isinstance(loader, TfData)
    calls = "tf.data.AUTOTUNE" if loader.num_parallel_calls == "auto" else str(loader.num_parallel_calls)
    prefetch = "tf.data.AUTOTUNE" if loader.prefetch == "auto" else str(loader.prefetch)
    source, kept = parts.source, config.cache == "memory"
    done = parts.packed if parts.is_joined else parts.finished
    loading = [
        *source.reading,
        *_decoded_in_part(parts.prefix if kept else _cut_first([*parts.prefix, *parts.body]), parts.jpegs),
    ]
    load = function("load", "Read a sample.", _kept_in_float(loading), ", ".join(source.arguments),
                    parts.finished if kept else done)  # fmt: skip
    augment = function("augment", "Do to a sample what differs from epoch to epoch.",
                       _kept_in_float(parts.body) if kept else [], parts.finished, done)  # fmt: skip
    mix = function("mix", "Mix the samples of a batch.", parts.mixing, parts.finished, parts.finished)
    shuffle = f"shuffle({source.count}, seed=SEED)" if workload.shuffle else ""
    steps = [
        "" if kept else shuffle,  # behind a cache, or every epoch had the first one's order
        f"map({source.taken}, num_parallel_calls={calls})" if load else "",
        "cache()" if kept else "",
        shuffle if kept else "",
        f"map(augment, num_parallel_calls={calls})" if augment else "",
        f"batch(BATCH_SIZE, drop_remainder={workload.drop_remainder})",
        f"map(mix, num_parallel_calls={calls})" if mix else "",
        f"map(finish, num_parallel_calls={calls})" if parts.finish else "",
        f"prefetch({prefetch})" if prefetch != "0" else "",
    ]
    made = [f"dataset = {source.opened}", *(f"dataset = dataset.{step}" for step in steps if step)]
    return {"load": load, "augment": augment, "mix": mix, "finish": parts.finish, "dataset": indented(made)}


def against_cache(workload: Workload, plan: Plan) -> str | None:
    """Return why tf.data cannot keep loaded samples in memory, or None if it can."""
    if workload.on_bad_sample == "skip" or not any(field.kind is FieldKind.ENCODED for field in plan.source.fields):
        return "the samples are in memory already, or nothing is decoded"
    needed, free = cached_bytes(workload, plan), machine.detect_memory().available_bytes
    if needed > MOST_OF_MEMORY * free:
        return f"a cache of decoded samples takes {machine.size_text(needed)}, of {machine.size_text(free)} free"
    return None


def cached_bytes(workload: Workload, plan: Plan) -> int:
    """Return the bytes of all samples after the deterministic ops, estimated from a few."""
    numbers, found = looked_at(len(workload.data)), 0
    for number in numbers:
        sample = normalise(workload.data.read(number), plan.source.structure)
        for step in plan.prefix:
            sample = step.op.apply(sample, step.before, np.empty(0))
        found += sum(np.asarray(part).nbytes for part in sample if part is not None)
    return found * len(workload.data) // len(numbers)


def _kept_in_float(lines: Lines) -> Lines:
    """Leave out the roundings of parts that are cast to floating point again; they are kept in their range."""
    found: Lines = []
    floats: set[str] = set()
    for number, line in enumerate(lines):
        rounded = _ROUNDED.fullmatch(line)
        if rounded is None:
            for part in floats:
                line = line.replace(f"tf.cast({part}, tf.float32)", part)
            part = line.partition(" = ")[0]
            found += [] if line == f"{part} = {part}" else [line]
            continue
        part = rounded["part"]
        floats.discard(part)
        if _is_taken_as_float(part, lines[number + 1 :]):
            floats.add(part)
            if rounded["how"] == "saturate_cast":
                found.append(f"{part} = tf.clip_by_value({part}, 0.0, {float(2 ** int(rounded['bits']) - 1)})")
        else:
            found.append(line)
    return found


def _is_taken_as_float(part: str, lines: Lines) -> bool:
    named, moved, taken = (re.compile(text.format(part)) for text in (r"\b{0}\b", _MOVED, _TAKEN))
    used = (line for line in lines if named.search(line) and not moved.fullmatch(line))
    return bool(taken.match(next(used, "")))


def _cut_first(lines: Lines) -> Lines:
    """Look up classes of the cropped pixels of a mask only."""
    for number, line in enumerate(lines):
        if (looked_up := re.match(r"(\w+) = tf\.gather\(CLASSES_", line)) is None:
            continue
        named = re.compile(rf"\b{looked_up[1]}\b")
        later = next((at for at in range(number + 1, len(lines)) if named.search(lines[at])), None)
        if later is not None and re.fullmatch(_CUT.format(looked_up[1]), lines[later]):
            return [*lines[:number], *lines[number + 1 : later + 1], line, *_cut_first(lines[later + 1 :])]
    return lines


def _decoded_in_part(lines: Lines, jpegs: frozenset[str]) -> Lines:
    """Decode only the cropped part of a JPEG; `jpegs` are the parts that hold nothing else."""
    for number, line in enumerate(lines):
        decoded = _DECODED.fullmatch(line)
        if decoded is None or (part := decoded["part"]) not in jpegs:
            continue
        named = re.compile(rf"\b{part}\b")
        for later in range(number + 1, len(lines)):
            if cut := re.fullmatch(_CUT.format(part), lines[later]):
                size = f"tf.stack((top, left, {cut[1]}, {cut[2]}))"
                cropped = f"{part} = tf.io.decode_and_crop_jpeg({part}, {size}, channels={decoded['channels']})"
                between = [
                    each.replace(f"tf.shape({part})", f"tf.io.extract_jpeg_shape({part})")
                    for each in lines[number + 1 : later]
                ]
                return [*lines[:number], *between, cropped, *_decoded_in_part(lines[later + 1 :], jpegs)]
            if named.search(lines[later].replace(f"tf.shape({part})", "")):
                break
    return lines
