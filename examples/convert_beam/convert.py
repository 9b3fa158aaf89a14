"""Convert the samples of a workload in parts, wherever parts can run: with Apache Beam, or with a pool of processes.

    pip install '.[beam]'
    cd examples/photos
    python ../convert_beam/convert.py train.py:workload --out converted/array --parts 4
    python ../convert_beam/convert.py train.py:workload --out converted/array --parts 4 --pool

Part i of n writes every n-th shard, so parts never write the same file. Each may run on a machine of its own, as long
as all see the data and the folder; the last step joins them. A part that is run again keeps what is finished and sound,
so a runner may retry it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from autopipe.artifact import converting


def convert_part(number: int, parts: int, workload: str, to: str, out: str) -> int:
    """Write one part; return how many samples this run wrote."""
    job = converting.job(workload, to, Path(out))
    return job.run(workers=1, part=(number, parts)).samples


def with_beam(parts: int, workload: str, to: str, out: str, options: Sequence[str] = ()) -> None:
    """Write all parts with Apache Beam; `options` are Beam's own, such as --runner=DataflowRunner."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
        (
            pipeline
            | beam.Create(range(parts))
            | beam.Reshuffle()  # lets every part run on another worker
            | beam.Map(convert_part, parts, workload, to, out)
        )


def with_pool(parts: int, workload: str, to: str, out: str) -> None:
    """Write all parts in processes of this machine."""
    part = partial(convert_part, parts=parts, workload=workload, to=to, out=out)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(part, range(parts)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", help="train.py:workload")
    parser.add_argument("--to", default="array", help="the storage form")
    parser.add_argument("--out", default="converted/array", help="the folder of the set")
    parser.add_argument(
        "--parts", type=int, default=8, help="how many parts: at least one a worker, at most one a shard"
    )
    parser.add_argument("--pool", action="store_true", help="processes of this machine instead of Beam")
    arguments, options = parser.parse_known_args()
    out = str(Path(arguments.out).absolute())  # a worker may run elsewhere
    if arguments.pool:
        with_pool(arguments.parts, arguments.workload, arguments.to, out)
    else:
        with_beam(arguments.parts, arguments.workload, arguments.to, out, options)
    print(f"joined {converting.finish(Path(out)).samples:,} samples in {out}")


if __name__ == "__main__":
    main()
