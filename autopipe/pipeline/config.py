"""A configuration: how a workload is fed, by values that a search may choose. Nothing here may change what is trained.

The knobs of a loader live with the loader (`autopipe.pipeline.loaders.threads.Threads`, ...); this module holds their
base, the configuration that carries one of them, and the flat parameters of both.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import pydantic

from autopipe import again
from autopipe.errors import ConfigError, near, shortened
from autopipe.registry import Registry
from autopipe.values import Strict

if TYPE_CHECKING:
    from autopipe.pipeline.loader import Loader, LoadJob
    from autopipe.workload.op import Plan


CACHE_SHARE = 0.9
"""Of the free memory, what a cache may take: a training that fills it whole needs room for its batches as well."""

LOADERS: Registry[type[LoaderConfig]] = Registry("loader", "autopipe.pipeline.loaders")
STORAGES: Registry[Any] = Registry("storage", "autopipe.pipeline.storage")


class LoaderConfig(Strict):
    """The knobs of one loader. A subclass sets `kind` to a literal, which registers it.

    Class attributes and methods here describe the loader to the rest of autopipe.

    Class attributes:
        work_factor: the cost of ops in this loader, relative to a bare loop of them.
        skips_bad_samples: whether it can replace a bad sample by another one.
        rank: the place in an expert's order of loaders to try; the lowest first.
        is_foreign: whether it is foreign code for comparison: it runs in a process of its own and cannot win.
        works_elsewhere: whether its workers run on other cores than the training.
        needs: the extra and the package that it needs.
        spaces: the values of its knobs in shipped search spaces, by the name of the space, as in the file of one.
    """

    kind: str
    work_factor: ClassVar[float] = 1.0
    skips_bad_samples: ClassVar[bool] = True
    rank: ClassVar[int] = 100
    is_foreign: ClassVar[bool] = False
    works_elsewhere: ClassVar[bool] = False
    needs: ClassVar[tuple[str, str] | None] = None
    spaces: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init__(self, *values: Any, **named: Any) -> None:
        """Take the knobs in their order, or by name: `Threads(2)` is `Threads(workers=2)`."""
        knobs = [name for name in type(self).model_fields if name != "kind"]
        if len(values) > len(knobs):
            raise ConfigError(
                f"`{type(self).__name__}` takes at most {len(knobs)} values, {', '.join(knobs)}, but got {len(values)}."
            )
        twice = [name for name in knobs[: len(values)] if name in named]
        if twice:
            raise ConfigError(f"`{twice[0]}` of `{type(self).__name__}` is given twice, by its place and by its name.")
        super().__init__(**dict(zip(knobs, values, strict=False)), **named)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if not (kind := cls.model_fields["kind"]).is_required():  # else a base of several loaders
            LOADERS.register(kind.default, cls)

    @classmethod
    def missing(cls) -> str | None:
        """Return the reason why a package must be installed first; None if nothing is missing."""
        if cls.needs is None:
            return None
        extra, package = cls.needs
        with contextlib.suppress(ModuleNotFoundError):  # of a package around it
            if importlib.util.find_spec(package) is not None:
                return None
        return f"it is not installed: {again.installing_extra(extra)}"

    @classmethod
    def impossible(cls, plan: Plan) -> dict[tuple[str, str], str]:
        """List the settings, by name and value, that cannot be used for a workload of this plan, with reasons."""
        return {}

    def pixels_differ(self) -> str | None:
        """Return a sentence for the user on how its pixels differ from those of other loaders; None if they do not."""
        return None

    def normalised(self) -> Self:
        """Return the canonical form: configurations that run alike are equal in it. A configuration holds no other."""
        return self

    @property
    def whose(self) -> str:
        """The origin of the code that makes the batches."""
        return f"autopipe's loader {self.kind}"

    def worker_count(self) -> int | None:
        """The number of workers (threads or processes); None if the loader decides by itself."""
        return None

    def cores_elsewhere(self) -> float | None:
        """The cores of its workers on other machines; None if unknown. It may ask over a network."""
        return None

    def threads(self, cores: int) -> int:
        """The number of threads of this process that make samples."""
        return self.worker_count() or cores

    def buffered_batches(self) -> int | None:
        """The number of batches that may wait ahead of the model; None if the loader decides by itself."""
        return None

    def held_batches(self, batch_bytes: int, setup: ModelSetup) -> int | None:
        """Return the largest number of batches of this size: those ahead of the model, in the making and in use.

        None: the loader runs other code, so the number is unknown.
        """
        buffered = self.buffered_batches()
        return None if buffered is None else buffered + 1

    def reads_at_once(self) -> int | None:
        """The number of samples that are read at a time; None if the loader decides by itself."""
        return getattr(self, "read_ahead", 0) or self.worker_count()

    def reads_ahead(self) -> bool:
        """True if other threads than the workers read samples, so that workers never wait for a read."""
        return getattr(self, "read_ahead", 0) > 0

    def samples_ahead(self, batch_size: int) -> int:
        """Return the largest number of samples in memory as read, or being read, beside those that workers read."""
        return getattr(self, "read_ahead", 0)

    def shares_lock(self) -> bool:
        return True

    def works_alone(self) -> bool:
        """True if each worker is a process of its own, in which one thread needs Python's lock."""
        return False

    def open(self, job: LoadJob) -> Loader:
        raise NotImplementedError


class ModelSetup(NamedTuple):
    """The settings of a configuration on which the model's own speed depends; the attributes are `PipelineConfig`'s.

    It is passed as a whole, from the configuration to the trainer, the loader, the ceilings and the search. A new
    setting is added here, in `OfSetup` and in `PipelineConfig`.
    """

    devices: int = 1
    channels: Literal["last", "first"] = "last"
    finish: Literal["host", "device"] = "device"
    steps_per_execution: int = 1

    @classmethod
    def of(cls, value: Any) -> ModelSetup:
        return cls(*(getattr(value, name) for name in cls._fields))

    def queue_size(self, wanted: int) -> int:
        """Return how many finished batches may wait: two calls' worth at least, else each call waits for its last."""
        return max(wanted, 2 * self.steps_per_execution if self.steps_per_execution > 1 else 0)


class OfSetup(pydantic.BaseModel):
    """The same settings as fields of a measurement or request in one setup."""

    devices: int = pydantic.Field(default=1, ge=1)
    channels: Literal["last", "first"] = "last"
    finish: Literal["host", "device"] = "device"
    steps_per_execution: int = pydantic.Field(default=1, ge=1)

    @property
    def setup(self) -> ModelSetup:
        return ModelSetup.of(self)


class PipelineConfig(Strict):
    """One way to feed a workload, in its canonical form: two that run alike are equal.

    Attributes:
        loader: which loader, with its knobs.
        cache: "memory" keeps each sample, after the deterministic first ops, in memory once it has been read;
            "encoded" keeps it there as it was read.
        cache_fraction: the part of the samples that the cache keeps, always the same ones; the rest is read each time.
        storage: the form in which samples are read ("files" as they are; others are written once beforehand).
        cut: how many of the deterministic first ops are done before a sample is kept in that form; "deepest" is as many
            as the form can hold.
        finish: where the cheap last ops (cast, rescale, one-hot, transpose) run. "device" sends the compact dtype.
        channels: the order of image axes that the model gets: "last" (N, H, W, C) or "first" (N, C, H, W).
        device_prefetch: batches put on the device ahead of the one in use.
        devices: how many devices train; the global batch stays that of the workload.
        steps_per_execution: batches that are trained by one call of the model's function, as in Keras's `compile`; 1
            leaves it as the model was compiled. Weights come out the same; callbacks are called once a call.
    """

    loader: pydantic.SerializeAsAny[LoaderConfig]
    cache: Literal["none", "memory", "encoded"] = "none"
    cache_fraction: float = pydantic.Field(default=1.0, gt=0, le=1)
    storage: str = "files"
    cut: Annotated[int, pydantic.Field(ge=0)] | Literal["deepest"] = pydantic.Field("deepest")
    finish: Literal["host", "device"] = "device"
    channels: Literal["last", "first"] = "last"
    device_prefetch: int = pydantic.Field(default=2, ge=0, le=64)
    devices: int = pydantic.Field(default=1, ge=1)
    steps_per_execution: int = pydantic.Field(default=1, ge=1, le=1024)

    @pydantic.field_validator("loader", mode="before")
    @classmethod
    def _loader_by_kind(cls, value: Any) -> Any:
        if isinstance(value, dict):
            knobs = dict(value)
            return LOADERS[str(knobs.get("kind", ""))].model_validate(knobs)
        return value

    @pydantic.field_validator("storage")
    @classmethod
    def _known_storage(cls, value: str) -> str:
        STORAGES[value]
        return value

    @pydantic.model_validator(mode="after")
    def _canonical(self) -> Self:
        loader = self.loader.normalised()
        if STORAGES[self.storage].converts and loader.reads_ahead():  # such a set lies on this machine
            loader = loader.model_copy(update={"read_ahead": 0})
        usual = {name: type(self).model_fields[name].default for name in self.idle()}
        self.__dict__.update(usual, loader=loader)  # frozen for all others
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return it with some settings changed and validated."""
        return type(self).model_validate(dict(super().model_copy(update=update, deep=deep)))

    @property
    def model_setup(self) -> ModelSetup:
        return ModelSetup.of(self)

    def idle(self) -> set[str]:
        """Return the settings that have no effect beside the others, and are at their defaults."""
        idle = set()
        if self.cache == "none":
            idle.add("cache_fraction")
        if not STORAGES[self.storage].converts:
            idle.add("cut")
        return idle

    def short(self) -> str:
        """Return a name of its workers and of all settings that are not at their defaults."""
        loader = self.loader
        fields = type(loader).model_fields
        knobs = loader.model_dump(exclude={"kind"})
        special = {
            name: value
            for name, value in knobs.items()
            if name not in fields or name == next(iter(knobs)) or value != fields[name].default
        }
        inner = ", ".join(f"{name}={value}" for name, value in special.items())
        rest = [
            f"{name}={getattr(self, name)}"
            for name, field in PipelineConfig.model_fields.items()
            if name != "loader" and getattr(self, name) != field.default
        ]
        return " ".join([f"{loader.kind}({inner})", *rest])

    def key(self) -> str:
        """Return a short name of it, the same on every machine."""
        settings = {"kind": self.loader.kind, **self.model_dump(mode="json", exclude_defaults=True)}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


# -------------------- params: flat parameters (`threads.workers=4`), as in search spaces, studies and on the command
# line


Value: TypeAlias = str | int | float | bool
Params: TypeAlias = dict[str, Value]


def parameter_types() -> dict[str, pydantic.TypeAdapter[Any]]:
    """Return every parameter, with the type that checks its values."""
    fields = {name: field for name, field in PipelineConfig.model_fields.items() if name != "loader"}
    for kind in LOADERS:
        knobs = LOADERS[kind].model_fields.items()
        fields |= {f"{kind}.{knob}": field for knob, field in knobs if knob != "kind"}
    # mypy wants types that are written down; these are put together from the plugins that are there.
    types: dict[str, Any] = {name: Annotated[field.annotation, field] for name, field in fields.items()}
    types = {"loader": Literal[tuple(LOADERS)], **types, "storage": Literal[tuple(STORAGES)]}
    return {name: pydantic.TypeAdapter(annotation) for name, annotation in types.items()}


def near_parameter(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean `x`?", or an empty text; a knob without its loader is `loader.knob`, that of any."""
    if "." in name:
        return near(name, known)
    knobs = {each.rpartition(".")[2]: "loader." * ("." in each) for each in known}
    return re.sub(r"`(.+)`", lambda match: f"`{knobs[match[1]]}{match[1]}`", near(name, knobs))


def to_config(params: Mapping[str, Value]) -> PipelineConfig:
    """Return the configuration of flat parameters. Raise ConfigError if there is none; the message gives the reason."""
    if "loader" not in params:
        raise ConfigError(f"`loader` is missing among {shortened(dict(params))}.")
    kind = params["loader"]
    loader: dict[str, Value] = {"kind": kind}
    rest: dict[str, Any] = {}
    for name, value in params.items():
        owner, dot, knob = name.partition(".")
        if dot and owner == kind:
            loader[knob] = value
        elif name != "loader":
            rest[name] = value
    return PipelineConfig.model_validate({**rest, "loader": loader})


def from_config(config: PipelineConfig) -> Params:
    """Return the flat parameters that count for a configuration, the inverse of `to_config`."""
    plain: dict[str, Any] = config.model_dump(mode="json", exclude=config.idle())
    loader = plain.pop("loader")
    kind = loader.pop("kind")
    knobs = {f"{kind}.{knob}": value for knob, value in loader.items() if value is not None}  # None: not set
    return {"loader": kind, **knobs, **plain}
