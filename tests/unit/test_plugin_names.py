"""What must be known of a plugin it says itself: nobody else knows it by its name, and few import it."""

import ast
import re
from pathlib import Path

import autopipe
from autopipe.pipeline.config import LOADERS, STORAGES

PACKAGE = Path(autopipe.__file__).parent
MODULES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__init__.py"
}
STRATEGIES = {  # which import frameworks when they are imported
    node.name: f"autopipe.{where.removesuffix('.py').replace('/', '.')}"
    for where, text in MODULES.items()
    if where.startswith("pipeline/devices/")
    for node in ast.parse(text).body
    if isinstance(node, ast.ClassDef) and {"DeviceStrategy", "SharingStrategy"} & {*map(ast.unparse, node.bases)}
    if node.name not in ("SharingStrategy", "SingleDevice")
}
PUBLIC = {kind: {n for n, home in autopipe._HOMES.items() if home.startswith(kind.replace("/", ".") + ".")}
          for kind in ("workload/ops", "workload/data")}  # fmt: skip
NAMES = {
    "extensions": {path.parent.name for path in (PACKAGE / "extensions").glob("*/__init__.py")},
    "pipeline/loaders": {*LOADERS},
    "pipeline/storage": {*STORAGES},
    "pipeline/devices": {*STRATEGIES},
    **PUBLIC,
}
OTHER_THINGS = {"grain", "remote", "scale", "keras", "wrapped"}  # of the same name: Grain and Keras themselves, say
ELSEWHERE = {  # literals that are another thing of the same name
    ("pipeline/devices/feed.py", "diagnose"): "a method of loaders",
    ("measure/bench.py", "resident"): "the identity of a loader that repeats one batch",
    ("workload/sample.py", "array"): "a field's kind",
    ("workload/data/arrays.py", "array"): "a key of what Arrays pickles",
    ("workload/data/paths.py", "tfrecord"): "the folder of the record index",
    ("frameworks/tfdata.py", "Map"): "a step of tf.data",
}
USERS = {  # modules that import a plugin because they use it, not to know something of it
    "search/measurer.py": "the baselines: what people have without autopipe",
    "api/measuring.py": "what is measured where nothing is set",
    "measure/description.py": "the loader that shows what an image costs",
    "measure/formats.py": "the op whose time is asked for each format",
    "measure/verify.py": "the reference that the others are compared with",
    "pipeline/eject/written.py": "the ops that plain tf.data does together or need not do",
    "pipeline/storage/form.py": "the read of a part of an array that lies in a file",
    "pipeline/storage/tfrecord.py": "the frames of the records that it writes, which a source of such files reads",
    "pipeline/eject/module.py": "one loader's settings as plain code, and which workloads Keras's own reader can feed",
    "reports/verdict.py": "the loader that is the nearest to what people write",
    "artifact/reference.py": "the workload of `--images`",
    "artifact/verifying.py": "the loader whose workers share a dataset, as Keras's own threads do",
}


def test_no_plugin_is_known_by_its_name() -> None:
    found = set()
    for kind, names in NAMES.items():
        for where, text in MODULES.items():
            if not where.startswith((f"{kind}/", "extensions/")):
                strings = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}
                found |= {(where, name) for name in (names - OTHER_THINGS) & strings}
    assert found == {
        each for each in ELSEWHERE if each[1] in set().union(*NAMES.values())
    }  # a copy may lack extensions


def test_a_plugin_is_imported_only_where_it_is_used() -> None:
    plugins = {f"autopipe.{autopipe._HOMES[name]}": kind for kind in PUBLIC for name in PUBLIC[kind]}
    plugins |= dict.fromkeys(STRATEGIES.values(), "pipeline/devices")
    for kind, registry in (("pipeline/loaders", LOADERS), ("pipeline/storage", STORAGES)):
        of = (registry[name] for name in registry)
        plugins |= {each.__module__ if isinstance(each, type) else type(each).__module__: kind for each in of}
    found = {
        where
        for where, text in MODULES.items()
        for imported in re.findall(r"^\s*from (\S+) import", text, re.MULTILINE)
        if imported in plugins and not where.startswith((f"{plugins[imported]}/", "extensions/"))
    }
    assert found == USERS.keys()
