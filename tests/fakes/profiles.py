"""Profiles of machines that nobody here has, for tests of what is made of them."""

import datetime
import os
from pathlib import Path
from typing import Any

import autopipe as ap
from autopipe.artifact import artifact as files
from autopipe.artifact import codegen
from autopipe.artifact.schema import Artifact, FileReference, Profile
from autopipe.measure import fingerprint
from autopipe.measure.facts import Ceiling, OpRecord, WorkloadDigest
from autopipe.measure.fingerprint import Gpu, Hardware
from autopipe.measure.trial.workload_import import load_workload
from autopipe.search.result import Asker, BaselineResult, Contest, Reason, Result, Stop, Trial, Winner
from autopipe.search.settings import Request
from autopipe.values import Estimate, JsonObject
from autopipe.workload import digests
from tests.fakes.commands import TRAIN

GIB = 2**30
H200 = Gpu(name="NVIDIA H200", memory_bytes=141 * GIB)
HALVED = (OpRecord(name="Rescale", settings=digests.op_settings(ap.Rescale(0.5))),)  # the ops of `TRAIN`
NOON = datetime.datetime(2025, 6, 1, 12, tzinfo=datetime.UTC)


def hardware(**changes: Any) -> Hardware:
    """Return a machine of two cores, or one that differs from it."""
    plain: dict[str, Any] = {"cpu_model": "Imaginary 9000", "cores": 2, "memory_bytes": 8 * GIB, "system": "Linux 6.8"}
    plain |= {"python": "3.11.7", "packages": {"tensorflow": "2.21.0", "keras": "3.15.0"}}
    return Hardware(**{**plain, **changes})


def config(**changes: Any) -> JsonObject:
    return ap.PipelineConfig(**{"loader": ap.Threads(workers=2, queue_size=8), **changes}).model_dump(mode="json")


def digest(**changes: Any) -> WorkloadDigest:
    plain = {"samples": 2000, "mean_bytes": 38000.0, "ops": "0123456789abcdef", "op_list": (), "batch_size": 32}
    return WorkloadDigest.model_validate(plain | changes)


def profile(**changes: Any) -> Profile:
    """Return a profile of 1000 images a second, of at most 1250; `changes` of it, of its result, or of its winner."""
    winner: dict[str, Any] = {"config": config(), "key": "0123456789ab", "images_per_second": about(1000.0)}
    winner["data_wait_share"], stop = 0.05, Stop(reason=Reason.NO_GAIN, message="No gain.")
    found: dict[str, Any] = {"baselines": (baseline("keras", 400.0),), "ceiling": ceiling(1250.0)}
    found |= {"proved": True, "stop": stop, "ended_at": NOON}
    plain: dict[str, Any] = {"hardware": hardware(), "workload": digest(), "measured_at": NOON, "request": Request()}
    for name, value in changes.items():
        (plain if name in Profile.model_fields else found if name in Result.model_fields else winner)[name] = value
    if (alone := found["ceiling"]) is not None:
        share = winner["images_per_second"].value / alone.model_images_per_second.value
        winner.setdefault("share_of_model", share if share <= 1 else None)
    return Profile(**{"result": Result(winner=Winner(**winner), **found), **plain})


def about(rate: float) -> Estimate:
    """Return a rate, give or take 2 %."""
    return Estimate(value=rate, low=0.98 * rate, high=1.02 * rate)


def baseline(name: str, rate: float, **changes: Any) -> BaselineResult:
    ran = ap.PipelineConfig(**{"loader": ap.Threads(workers=1), "finish": "host", **changes})
    return BaselineResult(name=name, key=ran.key(), config=ran.model_dump(mode="json"), images_per_second=about(rate))


def contest(of: BaselineResult, ratio: float, low: float, pairs: int = 3, high: float | None = None) -> Contest:
    """Return the comparison of a winner with a baseline; without `high` the interval is as wide on both sides."""
    plain: dict[str, Any] = {"key": of.key, "config": of.config, "baseline": of.name, "blocks": (ratio,) * pairs}
    return Contest(**plain, ratio=ratio, low=low, high=2 * ratio - low if high is None else high, pairs=pairs)


def trial(ran: JsonObject, rate: float) -> Trial:
    return Trial(origin=Asker.SAMPLER, key=digests.digest(str(ran)), config=ran, images_per_second=about(rate))


def ceiling(rate: float) -> Ceiling:
    """Return a model that takes so many images a second, and costs nothing."""
    return Ceiling(model_images_per_second=about(rate), model_core_seconds_per_image=0.0)


def artifact(*profiles: Profile, **changes: Any) -> Artifact:
    return Artifact(**{"profiles": profiles or (profile(),), **changes})


def of_this_machine(folder: Path, *, below: str = ".", **changes: Any) -> Path:
    """Write `train.py` into a folder, and beside or below it what a tune here, just now, on JAX would have written."""
    (folder / "train.py").write_text(TRAIN)
    workload = load_workload(f"{folder / 'train.py'}:workload")
    here = {
        "hardware": fingerprint.detect(workload.data).model_copy(update={"keras_backend": "jax"}),
        "workload": fingerprint.workload_digest(workload),
        "images_per_second": about(1.0),
        "measured_at": datetime.datetime.now(datetime.UTC),
    }
    named = FileReference(path=os.path.relpath("train.py", below), origin=str(folder / "train.py"))
    (folder / below).mkdir(exist_ok=True)
    (folder / below / "tuned_pipeline.py").write_text(codegen.text_for(named, "autopipe.json"))
    return files.write(artifact(profile(**here | changes), workload=named), folder / below / "autopipe.json")
