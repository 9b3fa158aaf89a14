"""The tuned pipeline: the configuration for this machine, and the loaders, trainers and datasets made from it.

Loading reads the artifact and looks at the machine; the user's own code is imported only when a loader or trainer is
made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from autopipe.artifact import artifact as files
from autopipe.artifact import converting, drift, pick, reference
from autopipe.artifact.schema import Artifact, Live, Profile, Reference
from autopipe.errors import ArtifactError, shortened
from autopipe.hardware.gpu import keras_backend
from autopipe.measure import fingerprint
from autopipe.measure.facts import Ceiling
from autopipe.measure.trial import workload_import
from autopipe.pipeline import assembly, wrap
from autopipe.pipeline.config import PipelineConfig
from autopipe.pipeline.loader import Loader
from autopipe.pipeline.switching import check_tune
from autopipe.search.result import BaselineResult, Learnt, Winner
from autopipe.values import figure_text, span_text
from autopipe.workload.mode import Mode
from autopipe.workload.sample import Source
from autopipe.workload.workload import Workload

if TYPE_CHECKING:
    from autopipe.pipeline.devices.trainer import Trainer


class NamelessWarning(UserWarning):
    """An artifact was written without the place of its workload."""


class ProfileWarning(UserWarning):
    """The configuration was not measured on this machine."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tuned:
    """The configuration that was measured to be the best for a workload, and the means to train with it.

    Attributes:
        artifact: everything that is known, of other machines too.
        choice: the profile for this machine, and the reason.
        source: returns the workload; called when it is first needed.
        path: the artifact's file, in whose folder its paths start; None if it has none and they are absolute.
        study: the Optuna study, if it was made in this process.
        shown: returns its display in a notebook; None for its text alone.
    """

    artifact: Artifact
    choice: pick.Choice
    source: Callable[[], Workload]
    path: Path | None = None
    study: Any = None
    shown: Callable[[Profile], str] | None = None

    @property
    def folder(self) -> Path | None:
        return None if self.path is None else self.path.parent

    @property
    def config(self) -> PipelineConfig:
        """The configuration for this machine."""
        return self.choice.config

    @property
    def profile(self) -> Profile:
        return self.choice.profile

    @property
    def measurement(self) -> Winner:
        """The configuration's own measurement."""
        return self.profile.winner

    @property
    def baselines(self) -> tuple[BaselineResult, ...]:
        """The configurations that it was compared with."""
        return self.profile.result.baselines

    @property
    def ceiling(self) -> Ceiling | None:
        """The limits of every configuration, if they were measured."""
        return self.profile.result.ceiling

    @functools.cached_property
    def workload(self) -> Workload:
        """The workload; the first use imports it. Converted samples are looked for beside the artifact first."""
        workload = self.source()
        if changed := fingerprint.changed_since(self.profile.workload, workload):
            said = f"The workload has changed since it was tuned: {', '.join(changed)}. What is fastest may have, too."
            warnings.warn(f"{said} {pick.retune(str(self.path or files.NAME))}", ProfileWarning, stacklevel=4)
        return converting.looked_up(workload, self.config, self.folder)

    def __repr__(self) -> str:
        live, ceiling, named = self.choice.live, self.ceiling, self.artifact.workload
        rates = [
            ("in training", None if live is None else live.images_per_second),
            ("measured", self.measurement.images_per_second),
            *((each.name, each.images_per_second) for each in self.baselines),
            ("the model alone", None if ceiling is None else ceiling.model_images_per_second),
        ]
        facts = [
            f"{name} {figure_text(each.value)} ({span_text(each.low, each.high)}) images/s"
            for name, each in rates
            if each is not None
        ]
        count, here = len(self.artifact.profiles), self.profile.hardware
        facts.append(f"machine {here.cpu_model}, {here.cores} cores" + f" (1 of {count})" * (count > 1))
        of = "a workload that no file holds" if named is None else reference.text(named)
        return f"<Tuned: config {self.config.short()}, {', '.join(facts)}, of {of}>"

    def _repr_html_(self) -> str | None:
        return None if self.shown is None else self.shown(self.profile)

    def make_loader(self, *, shard: tuple[int, int] = (0, 1), tune: Literal["live"] | None = None) -> Loader:
        """Return an open loader of the workload's batches. The workers do the ops that the trainer leaves to the
        device.

        Args:
            shard: `(i, n)` takes the i-th of n disjoint parts of every epoch.
            tune: "live" tries other configurations while the loader is read, if its reader waits, and keeps what is
                faster; the batches stay the same.

        Examples:
            >>> with ap.load("autopipe.json").make_loader() as loader:  # doctest: +SKIP
            ...     for x, y in loader.epoch(0):
            ...         ...
        """
        if tune is None:
            config = self.config.model_copy(update={"finish": "host"})
            return wrap.for_loop(assembly.make_loader(self.workload, config, shard=shard), self.workload)
        check_tune(tune)
        from autopipe.search import live

        return wrap.for_loop(live.open_loader(self.workload, self.config, shard, self._keep), self.workload)

    def make_trainer(self, *, shard: tuple[int, int] = (0, 1), tune: Literal["live"] | None = None) -> Trainer:
        """Return a trainer of the workload's model. It evaluates and predicts by what was tuned for that, if it was.

        Args:
            shard: `(i, n)` trains on the i-th of n disjoint parts of every epoch.
            tune: "live" has each `fit` try other configurations while it trains, if the model waits for data, and keep
                what is faster; the batches stay the same. None: only those that are told to.

        Examples:
            >>> ap.load("autopipe.json").make_trainer().fit(epochs=3)  # doctest: +SKIP
        """
        check_tune(tune)
        found = ((mode, pick.beside(self.artifact, self.profile, mode)) for mode in (Mode.EVALUATE, Mode.PREDICT))
        serving = {mode: pick.config_of(profile) for mode, profile in found if profile is not None}
        trainer = assembly.make_trainer(self.workload, self.config, shard=shard, serving=serving)
        from autopipe.search import live

        live.able(trainer, self.workload, self.config, self._keep)
        trainer.tune = tune
        measured_on, asked = self.profile.hardware.keras_backend, self.profile.request
        trains_on = wrap.backend_of(self.workload) or keras_backend()
        match = self.choice.match  # made when the artifact was loaded: Keras need not have been imported yet
        if measured_on not in (None, trains_on):
            if not any(found.field == fingerprint.BACKEND for found in match.differences):
                said = f"The profile was measured on Keras's {measured_on} backend, but this trains on {trains_on}."
                other = fingerprint.Difference(field=fingerprint.BACKEND, known=str(measured_on), here=str(trains_on))
                again = pick.retune(str(self.path or files.NAME), other)
                warnings.warn(f"{said} {again}", ProfileWarning, stacklevel=2)
        elif match.level is fingerprint.MatchLevel.SAME and (asked.simulate, asked.mode) == (None, Mode.TRAIN):
            # figures of another machine, of a simulated accelerator, or of prediction promise nothing here
            trainer.promise = drift.Promise(profile=self.profile, artifact=self.path or Path(files.NAME))
        return trainer

    def make_dataset(
        self, data: Source | None = None, *, shard: tuple[int, int] = (0, 1), initial_epoch: int = 0
    ) -> Any:
        """Return batches for a `fit` of your own: a `tf.data.Dataset` on TensorFlow, else a `keras.utils.PyDataset`.

        Each epoch of `fit` takes the next epoch of the data, exactly as the trainer does. The workers do the ops that
        the trainer leaves to the device, and image axes are as `keras.config.image_data_format()` says now.

        Args:
            data: other samples, for validation and prediction: in order and without chance. A cache of the
                configuration is left out, with a warning, if they do not fit in memory. None: the workload's.
            shard: `(i, n)` takes the i-th of n disjoint parts of every epoch of the workload's data.
            initial_epoch: the first epoch, if `fit` is given one.

        Examples:
            >>> model.fit(ap.load("autopipe.json").make_dataset(), epochs=3)  # doctest: +SKIP
        """
        from autopipe.pipeline.devices import feed  # imports Keras

        config = self.config.model_copy(update={"finish": "host", "channels": feed.channels()})
        if data is None:
            loader = assembly.make_loader(self.workload, config, shard=shard)
        else:
            loader = assembly.evaluation_loader(self.workload, config, data)
        return feed.dataset(loader, initial_epoch)

    def save(self, path: str | os.PathLike[str] = "autopipe.json") -> Path:
        """Write the artifact, with the profiles of all machines, make its folder if need be, and return its path.

        Profiles of other machines that are in the file already stay there. A file of another workload, or an unreadable
        one, is kept as `NAME.bak`, with a warning. A workload that no file holds gives a warning, too: `ap.load` needs
        it as an argument.

        Raises:
            ArtifactError: it cannot be written.
        """
        if not isinstance(path, str | os.PathLike):
            raise ArtifactError(
                f"`path` must be the path of a file, but got {shortened(path)}.", hint='Such as save("autopipe.json").'
            )
        if self.artifact.workload is None:
            warnings.warn(
                f"No file holds this workload, as in a notebook, so that `{os.fspath(path)}` cannot say where it is."
                f" Pass it again: ap.load({os.fspath(path)!r}, workload=workload). Or tune it from a file.",
                NamelessWarning,
                stacklevel=2,
            )
        with contextlib.suppress(OSError):  # to write the file raises it, with what to do
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        return files.write_joined(self.artifact_for(Path(path).parent), path)

    def _keep(self, learnt: Learnt) -> None:
        if self.path is not None and learnt.changes:
            files.renew_live(Live(hardware=fingerprint.detect(self.workload.data), **dict(learnt)), self.path)

    def artifact_for(self, folder: Path) -> Artifact:
        moved = reference.moved(self.artifact.workload, self.folder, folder)
        return self.artifact.model_copy(update={"workload": moved})


def load(  # noqa: PLR0913  `ap.load`, with what it is given by others
    path: str | os.PathLike[str],
    *,
    workload: Workload | str | None = None,
    pinned: Mapping[str, Any] | None = None,
    strict: bool = False,
    allow_outside: bool = False,
    here: fingerprint.Hardware | None = None,
    shown: Callable[[Profile], str] | None = None,
) -> Tuned:
    """Load the tuned pipeline of an artifact; see `ap.load` for the arguments. `here` is this machine, if known."""
    file = Path(path).absolute()  # the working directory may be another one when the workload is imported
    artifact = files.read(file)
    choice = pick.pick(artifact, fingerprint.detect() if here is None else here, strict=strict, name=str(file))
    if choice.warning is not None:
        warnings.warn(f"`{file}`: {choice.warning}", ProfileWarning, stacklevel=3)
    pin = reference.parse_pin(pinned) if pinned is not None and workload is None else None

    def source() -> Workload:
        named = workload or reference.workload_of(artifact, file, pin=pin, allow_outside=allow_outside)
        return workload_import.load_workload(named)

    return Tuned(artifact=artifact, choice=choice, source=source, path=file, shown=shown)


def of_profile(
    profile: Profile,
    workload: Workload | Callable[[], Workload],
    *,
    named: Reference | None = None,
    study: Any = None,
    shown: Callable[[Profile], str] | None = None,
) -> Tuned:
    """Return the tuned pipeline of a profile that was measured here; `named` (absolute) is where its workload is."""
    match = fingerprint.compare_hardware(profile.hardware, profile.hardware)
    choice = pick.Choice(config=pick.config_of(profile), profile=profile, match=match)
    source = (lambda: workload) if isinstance(workload, Workload) else workload
    if isinstance(workload, Workload):
        named = named or reference.of_object(workload)
    artifact = Artifact(workload=named, profiles=(profile,))
    return Tuned(artifact=artifact, choice=choice, source=source, study=study, shown=shown)
