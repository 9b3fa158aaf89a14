"""tf.train.Example without TensorFlow: the message, and how features are taken from one or put into one.

The definition is TensorFlow's own (tensorflow/core/example/example.proto), in a descriptor pool of its own, because the
default pool refuses a second one of the same name once TensorFlow is imported. The framing of records in a file is in
`records`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto


class ExampleError(ValueError):
    """A record is no tf.train.Example, or lacks a feature; the caller knows the file and offset and says them."""


def features(record: bytes) -> Mapping[str, Any]:
    """Return the features of a serialised tf.train.Example by key.

    Raises:
        ExampleError: it is none.
    """
    try:
        parsed: Mapping[str, Any] = _example_class().FromString(record).features.feature
    except message.DecodeError as error:
        raise ExampleError("is no tf.train.Example") from error
    return parsed


def bytes_feature(parsed: Mapping[str, Any], key: str) -> bytes:
    """Return the one value of a bytes feature."""
    value: bytes = _single(parsed, key, "bytes_list")
    return value


def int_feature(parsed: Mapping[str, Any], key: str) -> int:
    """Return the one value of an int64 feature."""
    value: int = _single(parsed, key, "int64_list")
    return value


def serialise(values: Mapping[str, bytes | int]) -> bytes:
    """Return a serialised tf.train.Example; equal values give equal bytes."""
    example = _example_class()()
    for key, value in values.items():
        feature = example.features.feature[key]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        else:
            feature.int64_list.value.append(value)
    serialised: bytes = example.SerializeToString(deterministic=True)
    return serialised


def _single(parsed: Mapping[str, Any], key: str, kind: str) -> Any:
    if key not in parsed:  # asked first, because looking a key up would add it
        raise ExampleError(f"has no feature `{key}`; it has {', '.join(f'`{name}`' for name in sorted(parsed))}")
    values = getattr(parsed[key], kind).value
    if len(values) != 1:
        held = parsed[key].WhichOneof("kind")
        raise ExampleError(f"must have one value in the {kind} of `{key}`, but has {len(values)} (it holds {held})")
    return values[0]


@functools.cache
def _example_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="autopipe/example.proto", package="tensorflow", syntax="proto3")
    lists = (("BytesList", _FIELD.TYPE_BYTES), ("FloatList", _FIELD.TYPE_FLOAT), ("Int64List", _FIELD.TYPE_INT64))
    for name, kind in lists:
        file.message_type.add(name=name).field.add(name="value", number=1, type=kind, label=_FIELD.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(("bytes_list", "float_list", "int64_list"), start=1):
        _add_message_field(feature, name, number, lists[number - 1][0])
        feature.field[-1].oneof_index = 0
    container = file.message_type.add(name="Features")
    entry = container.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    _add_message_field(entry, "value", 2, "Feature")
    _add_message_field(container, "feature", 1, "Features.FeatureEntry", repeated=True)
    _add_message_field(file.message_type.add(name="Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def _add_message_field(owner: Any, name: str, number: int, kind: str, *, repeated: bool = False) -> None:
    owner.field.add(
        name=name,
        number=number,
        type=_FIELD.TYPE_MESSAGE,
        label=_FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL,
        type_name=f".tensorflow.{kind}",
    )
