"""A configuration: how a workload is fed, by values that a search may choose. Nothing here may change what is trained.

The knobs of a loader live with the loader (`autopipe.pipeline.loaders.workers.Threads`, ...); this module holds their
base, and the configuration that carries one of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

import pydantic

from autopipe import again
from autopipe.errors import ConfigError, near
from autopipe.registry import Registry
from autopipe.values import Strict

if TYPE_CHECKING:
    from autopipe.pipeline.loader import Loader, LoadJob
    from autopipe.workload.op import Plan
    from autopipe.workload.sample import Source


CACHE_SHARE = 0.9  # of the free memory, what a cache may take: a training that fills it needs room for batches as well
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
        keeps_on_device: whether it makes all samples as it opens, keeps them on the device and makes batches there.
        takes_any: whether it has knobs of any name besides its own: the parameters of a function of the user's.
        needs: the extra and the package that it needs.
        spaces: the values of its knobs in shipped search spaces, by the name of the space, as in the file of one.
    """

    kind: str
    work_factor: ClassVar[float] = 1.0
    skips_bad_samples: ClassVar[bool] = True
    rank: ClassVar[int] = 100
    is_foreign: ClassVar[bool] = False
    works_elsewhere: ClassVar[bool] = False
    keeps_on_device: ClassVar[bool] = False
    takes_any: ClassVar[bool] = False
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
        # Else a base of several loaders, or a variant of one.
        if not (kind := cls.model_fields["kind"]).is_required() and "kind" in cls.__annotations__:
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

    @classmethod
    def against(cls, data: Source) -> str | None:
        """Return the reason why its workers cannot make samples, or batches, of these data; None if they can."""
        return None

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

    @property
    def keeps_freed_memory(self) -> bool:
        """Whether the C library of the training's process keeps the memory of freed batches for the next ones."""
        return not self.is_foreign

    @property
    def fills_cache(self) -> bool:
        """Whether its first epoch fills a cache that is no part of `keep`."""
        return False

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
        """Return how many batches there are at most: ahead of the model, in the making and in use; None: unknown."""
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

    def in_evaluation(self, batches: int) -> Mapping[str, Any]:
        """Return the settings of a configuration that differ where so many batches are validated or predicted."""
        return {}

    def shares_lock(self) -> bool:
        return True

    def open(self, job: LoadJob) -> Loader:
        raise NotImplementedError


Channels: TypeAlias = Literal["last", "first"]
FinishPlace: TypeAlias = Literal["host", "device"]
Cut: TypeAlias = int | Literal["deepest"]


class ModelSetup(NamedTuple):
    """The settings of a configuration on which the model's own speed depends; the attributes are `PipelineConfig`'s. It
    is passed as a whole, from the configuration to the trainer, the loader, the ceilings and the search. A new setting
    is added here, in `OfSetup` and in `PipelineConfig`.
    """

    devices: int = 1
    channels: Channels = "last"
    finish: FinishPlace = "device"
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
    channels: Channels = "last"
    finish: FinishPlace = "device"
    steps_per_execution: int = pydantic.Field(default=1, ge=1)

    @property
    def setup(self) -> ModelSetup:
        return ModelSetup.of(self)


SettingValue: TypeAlias = str | int | float | bool  # of a setting
ARGUMENTS: Final = "arguments"  # the field for those of a wrapped dataset's function

FILES = "files"  # the storage form of samples that are read as they are
DEEPEST: Final = "deepest"
_PLACE = re.compile(r"(?P<place>[^:+]+?)(?::(?P<cut>\d+))?(?::(?P<percent>\d+(?:\.\d+)?)%)?")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What `PipelineConfig.keep` says: which samples are kept, after how many of the first ops, and where."""

    form: str = FILES  # the storage form on disk that samples are read from, written once beforehand
    cut: Cut = DEEPEST  # first ops done before a sample is kept in that form, or as many as it can
    in_memory: bool = False  # whether each sample is kept in memory once it has been read
    encoded: bool = False  # whether it is kept there as it is read, and not after the deterministic first ops
    part: float = 1.0  # the share of the samples kept in memory, more than 0 to 1, always the same ones

    @staticmethod
    @functools.lru_cache(maxsize=4096)
    def of(text: str) -> Kept:
        """Parse a value of `keep`. Raise ConfigError if it is none."""
        found: dict[str, Any] = {}
        for each in text.split("+") if text not in ("none", FILES) else ():
            match = _PLACE.fullmatch(each.strip())
            place, cut, percent = match.groups() if match else (each, None, None)
            memory = place in ("memory", "encoded")
            if not match or not (memory or place in STORAGES) or (percent and not memory) or (cut and memory):
                words = ["none", "memory", "encoded", *STORAGES]
                raise ConfigError(
                    f"`keep` cannot be {text!r}.{near(place, words)}",
                    hint=f"It takes {', '.join(words)}, or a form and memory: `array+memory`. `memory:50%` keeps a "
                    "part, and `array:1` keeps samples after one of the first ops.",
                )
            if ("in_memory" if memory else "form") in found:
                raise ConfigError(f"`keep` names one storage form at most, and memory once, but got {text!r}.")
            if memory:
                part = 1.0 if percent is None else float(percent) / 100
                found |= {"in_memory": True, "encoded": place == "encoded", "part": part}
            else:
                found |= {"form": place, "cut": DEEPEST if cut is None else int(cut)}
        kept = Kept(**found)
        if not 0 < kept.part <= 1:
            raise ConfigError(f"`keep` holds more than 0% and at most 100% of the samples in memory, but got {text!r}.")
        return kept

    @property
    def converts(self) -> bool:
        """True if samples are read from a converted set."""
        return self.form != FILES

    @property
    def disk(self) -> str:
        """The value of `keep` for its storage form alone."""
        return str(dataclasses.replace(self, in_memory=False))

    @property
    def memory(self) -> str:
        """The value of `keep` for memory alone."""
        return str(dataclasses.replace(self, form=FILES))

    def __str__(self) -> str:
        places = [self.form if self.cut == DEEPEST else f"{self.form}:{self.cut}"] if self.converts else []
        if self.in_memory:
            place = "encoded" if self.encoded else "memory"
            places.append(place if self.part == 1 else f"{place}:{100 * self.part:.6g}%")
        return "+".join(places) or "none"

    def stands_for(self, other: Kept) -> bool:
        """True if `other` keeps samples in the same places: a part, and after any number of ops, if none is given."""
        return (
            (self.form, self.in_memory, self.encoded) == (other.form, other.in_memory, other.encoded)
            and self.cut in (DEEPEST, other.cut)
            and self.part in (1.0, other.part)
        )

    def holds(self, value: str) -> bool:
        """True if samples are kept in the places of `value`, among others."""
        asked = Kept.of(value)
        disk = not asked.converts or asked.form == self.form
        return disk and (not asked.in_memory or (self.in_memory and self.encoded == asked.encoded))


class PipelineConfig(Strict):
    """One way to feed a workload, in its canonical form: two that run alike are equal.

    Attributes:
        loader: which loader, with its knobs.
        keep: where samples are kept: "none" reads and makes each one anew; "memory" keeps it, after the deterministic
            first ops, once it has been read, and "encoded" keeps it in memory as it was read; "array" or "tfrecord"
            reads it from a set in that form, written once beforehand; "array+memory" does both. "memory:50%" keeps a
            part, always the same samples; "array:1" keeps them after one of the first ops.
        finish: where the cheap last ops (cast, rescale, one-hot, transpose) run. "device" sends the compact dtype.
        channels: the order of image axes that the model gets: "last" (N, H, W, C) or "first" (N, C, H, W).
        device_prefetch: batches put on the device ahead of the one in use.
        devices: how many devices train; the global batch stays that of the workload.
        steps_per_execution: batches that are trained by one call of the model's function, as in Keras's `compile`; 1
            leaves it as the model was compiled. Weights come out the same; callbacks are called once a call.
        arguments: those of a wrapped dataset's function, for a loader whose workers make its batches.
    """

    loader: pydantic.SerializeAsAny[LoaderConfig]
    keep: Annotated[str, pydantic.AfterValidator(lambda text: str(Kept.of(text)))] = "none"
    finish: FinishPlace = "device"
    channels: Channels = "last"
    device_prefetch: int = pydantic.Field(default=2, ge=0, le=64)
    devices: int = pydantic.Field(default=1, ge=1)
    steps_per_execution: int = pydantic.Field(default=1, ge=1, le=1024)
    arguments: dict[str, bool | int | float | str] = pydantic.Field(default={})

    @pydantic.field_validator("loader", mode="before")
    @classmethod
    def _loader_by_kind(cls, value: Any) -> Any:
        return LOADERS[str(value.get("kind", ""))].model_validate(value) if isinstance(value, dict) else value

    @pydantic.model_validator(mode="after")
    def _canonical(self) -> Self:
        loader = self.loader.normalised()
        if self.kept.converts and loader.reads_ahead():  # such a set lies on this machine
            loader = loader.model_copy(update={"read_ahead": 0})
        if loader.keeps_on_device:  # it holds all samples, and the last ops are done where they are
            self.__dict__.update(keep=self.kept.disk, finish="device")
        self.__dict__["loader"] = loader  # frozen for all others
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return it with some settings changed and validated."""
        return type(self).model_validate(dict(super().model_copy(update=update, deep=deep)))

    @property
    def model_setup(self) -> ModelSetup:
        return ModelSetup.of(self)

    @property
    def kept(self) -> Kept:
        return Kept.of(self.keep)

    def keeping(self, **changes: Any) -> PipelineConfig:
        """Return it with changes to `kept`."""
        return self.model_copy(update={"keep": str(dataclasses.replace(self.kept, **changes))})

    def in_evaluation(self, batches: int) -> PipelineConfig:
        """Return it as it validates or predicts so many batches of other samples, which are read from their files."""
        config = self.model_copy(update=self.loader.in_evaluation(batches))
        return config.model_copy(update={"keep": config.kept.memory})

    def short(self) -> str:
        """Return a name of its workers and of all settings that are not at their defaults."""
        loader, fields = self.loader, type(self.loader).model_fields
        knobs = loader.model_dump(exclude={"kind"})
        first = None if loader.takes_any else next(iter(knobs), None)
        inner = ", ".join(
            f"{name}={value}"
            for name, value in knobs.items()
            if name not in fields or name == first or value != fields[name].default
        )
        rest = [
            f"{name}={getattr(self, name)}"
            for name, field in PipelineConfig.model_fields.items()
            if name != "loader" and getattr(self, name) != field.get_default(call_default_factory=True)
        ]
        return " ".join([f"{loader.kind}({inner})", *rest])

    def __hash__(self) -> int:
        return hash(tuple({**self.__dict__, ARGUMENTS: tuple(sorted(self.arguments.items()))}.values()))

    def key(self) -> str:
        """Return a short name of it, the same on every machine."""
        settings = {"kind": self.loader.kind, **self.model_dump(mode="json", exclude_defaults=True)}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
