"""Data that are arrays as arrays, for `model.fit(x, y)`: every op is done to all of them beforehand."""

from __future__ import annotations

from typing import Final

from autopipe.pipeline.eject.written import Written, function
from autopipe.workload.workload import Workload

TEMPLATE: Final = '''\
$load$finish
def arrays($given) -> Any:
    """Return all samples: `$fit`."""
$made
    return $finished
'''


def texts(workload: Workload, parts: Written) -> dict[str, object]:
    """Return the texts of the template."""
    made, source = parts.finished, parts.source
    load = function("load", "Do to a sample what needs more than its values.", parts.prefix, made, made)
    rows = [name if name in source.given else name.upper() for name in source.arguments]
    lines = [f"{made} = {', '.join(rows)}"] if rows != list(source.arguments) else []
    if load:
        each = f"zip({made})" if parts.starred else made
        lines += [f"made = [load({made}) for {made} in {each}]", f"{made} = {parts.stacked}"]
    finished = f"finish({made})" if parts.finish else made
    fit, how = f"arrays({parts.passed})", f"batch_size=BATCH_SIZE, shuffle={workload.shuffle}, epochs=3"
    is_weighted = any(name.startswith("sample_weight") for name in made.split(", "))  # not the third argument of `fit`
    return {
        "load": load,
        "finish": parts.finish,
        "fit": f"x, y, weight = {fit}; model.fit(x, y, sample_weight=weight, {how})"
        if is_weighted
        else f"model.fit(*{fit}, {how})",
        "made": "".join(f"    {line}\n" for line in lines).rstrip("\n"),
        "finished": finished if "," in parts.packed else f"({finished},)",  # `fit(*arrays())`
    }
