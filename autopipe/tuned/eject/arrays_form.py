"""Data that are arrays as arrays, for `model.fit(x, y)`: every op is done to all of them beforehand."""

from __future__ import annotations

from string import Template
from typing import Final

from autopipe.core.workload import Workload
from autopipe.tuned.eject.written import Written, function

TEMPLATE: Final = Template('''"""$title

$notes
"""

from __future__ import annotations
@imports

$constants

$functions
$load$finish
def arrays($given) -> Any:
    """Return all samples: `model.fit(*arrays($passed), batch_size=BATCH_SIZE, shuffle=$shuffle, epochs=3)`."""
$made
    return $finished
''')


def texts(workload: Workload, parts: Written) -> dict[str, object]:
    """Return what the template is filled with."""
    made, source = parts.finished, parts.source
    load = function("load", "Do to a sample what needs more than its values.", parts.prefix, made, made)
    finish = function("finish", "Do to all samples what is done to each value.", parts.suffix, made, made)
    rows = [name if name in source.given else name.upper() for name in source.arguments]
    lines = [f"{made} = {', '.join(rows)}"] if rows != list(source.arguments) else []
    if load:
        lines.append(
            f"made = [load({made}) for {made} in zip({made})]" if made == "x, y" else "made = [load(x) for x in x]"
        )
        lines.append(
            "x, y = np.stack([x for x, _ in made]), np.stack([y for _, y in made])"
            if made == "x, y"
            else "x = np.stack(made)"
        )
    one = "" if made == "x, y" else ","  # `fit(*arrays())`
    finished = f"finish({made})" if finish else made
    return {
        "load": load,
        "finish": finish,
        "shuffle": workload.shuffle,
        "made": "".join(f"    {line}\n" for line in lines).rstrip("\n"),
        "finished": f"({finished},)" if one else finished,
    }
