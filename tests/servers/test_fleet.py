"""Many jobs of a fleet at once. What one job does is tested in tests/unit/artifact."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import autopipe as ap
from autopipe.artifact import artifact
from tests.fakes.commands import TRAIN
from tests.fakes.fleet import Fleet, imaginary
from tests.fakes.surface import Surface

JOBS = 50
SPACE = """
schema_version: 1
parameters:
  loader: [threads]
  threads.workers: {choices: [1, cores, cores*2], when: {loader: threads}}
  threads.queue_size: {choices: [8], when: {loader: threads}}
  keep: [none]
  finish: [device, host]
  device_prefetch: [2]
  devices: [1, 2, 4]
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An artifact that another machine has tuned, of a workload that is never imported."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "space.yaml").write_text(SPACE)
    monkeypatch.chdir(tmp_path)
    surface = Surface(cores=16, model_rate=1500.0, noise=0.01, scaling=lambda devices: 0.95 * devices + 0.05)
    Fleet(monkeypatch).at(imaginary(cores=16, gpus=4), surface)
    ap.tune("train.py:workload", space="space.yaml", budget=None).save("autopipe.json")
    return tmp_path / "autopipe.json"


MANY = textwrap.dedent(
    """
    import json, os, signal, sys, warnings
    from pathlib import Path

    import pytest

    import autopipe as ap
    from tests.fakes.fleet import Fleet, Trials, imaginary
    from tests.fakes.surface import Surface
    from tests.servers.test_fleet import JOBS

    path = Path(sys.argv[1])
    fleet = Fleet(pytest.MonkeyPatch())
    fleet.at(imaginary(cores=4), Surface(cores=4, model_rate=60_000.0, noise=0.01, quirks=2))

    def append(name):
        with (path.parent / name).open("a") as file:
            file.write(f"{os.getpid()}\\n")

    def trial():
        if not (path.parent / "died").exists():
            append("died")
            os.kill(os.getpid(), signal.SIGKILL)

    fleet.trials.on_describe = lambda: append("retunes")
    fleet.trials.on_measure = trial
    closed, opened = os.pipe()

    def job():
        os.close(opened)
        os.read(closed, 1)  # until all are there
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            tuned = ap.load(path, on_new_hardware="retune")
        imported = sorted({"tensorflow", "keras", "jax", "torch"} & sys.modules.keys())
        warned = [str(each.message) for each in seen]
        said = json.dumps([tuned.profile.winner.key, tuned.profile.hardware.cores, warned, imported])
        os.write(1, f"{said}\\n".encode())  # one write: lines of several jobs do not mix

    jobs = []
    for _ in range(JOBS):
        jobs.append(os.fork())
        if jobs[-1] == 0:
            try:
                job()
                os._exit(0)
            finally:
                os._exit(1)
    os.close(opened)  # now they go
    sys.exit(sum(os.waitpid(each, 0)[1] != 0 for each in jobs))
    """
)


def test_of_fifty_jobs_at_once_one_retunes_or_the_next_if_it_is_killed_and_all_have_its_profile(path: Path) -> None:
    """On one kind of machine. The first that retunes is killed as it does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MANY, str(path)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.stderr, ended.returncode) == ("", 1)
    (profile,) = (each for each in artifact.read(path).profiles if each.hardware.cores == 4)
    said = [json.loads(line) for line in ended.stdout.splitlines()]
    assert said == [[profile.winner.key, 4, [], []]] * (JOBS - 1)
    retuned, died = ((path.parent / name).read_text().split() for name in ("retunes", "died"))
    assert (len(retuned), died) == (2, retuned[:1])
