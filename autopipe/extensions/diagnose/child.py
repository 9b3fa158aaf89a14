"""Runs a user's training script unchanged, and watches its calls of `keras.Model.fit`, or else its loops.

It is started with what is asked as JSON, the script and its arguments: findings go to the descriptor `fd`, one JSON
object a line. The script imports Keras, and nothing here does before, so that the script chooses its backend. Once
enough was seen the process ends at once, before the script can save a model that was hardly trained.
"""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import json
import math
import os
import re
import runpy
import sys
import threading
import time
import traceback
import types
import weakref
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from autopipe.extensions.diagnose import fit_call
from autopipe.frameworks import hooks
from autopipe.hardware import processes

if TYPE_CHECKING:  # nothing is imported that the script has not asked for
    from autopipe.extensions.diagnose.loop import Reads
    from autopipe.extensions.diagnose.run import Onlooker
    from autopipe.extensions.diagnose.steps import Look
    from autopipe.extensions.diagnose.watched import Watched
    from autopipe.measure.lines import LineWatch

# Keras's own callbacks that compute only. What a subclass of one does, or a function that one is given, is not known.
_COMPUTE = ("EarlyStopping", "History", "ProgbarLogger", "ReduceLROnPlateau", "SwapEMAWeights", "TerminateOnNaN")


class _Enough(BaseException):
    """Ends the script after enough steps. No `Exception`, so that no handler of the script catches it."""


_PATIENCE_SECONDS = 20.0  # without a batch, while nothing computes one
_IDLE, _QUEUED, _IDLE_SECONDS = 0.1, 0.5, 2.0  # of a core, and waits for one, on average over this time
_SOON, _ENDED = 2.0, 2  # seconds without a batch from which workers are counted; so many have to end
_NO_BATCH = f"No batch came for {_PATIENCE_SECONDS:g} s"
_FORKED = (
    "Keras and torch fork them from this process. If one of its threads holds a lock by then, nobody gives it back in "
    "the forked process. Take no such lock where a batch is made, or use threads (use_multiprocessing=False)."
)
_NO_LINE = (
    "No line of Python was seen to wait, as in tf.data's own operations, or in processes that were not forked. If they "
    "read files or a server, keep a copy nearby."
)
_THREADED = "If that line waits for a lock, look for what holds it; if for a file or a server, keep a copy nearby."
_SHOWN = 4  # lines in a message
_NOTED = 0.1  # of the time of a call of `fit`, below which what passes before it is nothing to speak of
_DECODERS = ("cv2", "PIL.Image")
_PEEKED = 2  # batches that Keras takes of a generator before anything else
_SHORT = 0.25  # of the look, which no longer call of `fit` falls short of
_IN_LOOP = (
    "`fit` is called in a loop, and this is one call. Each opens its data anew; what passes between the calls{} is in "
    "none of these figures. If they are parts of one training, one call with epochs=, of data that go on, has no such "
    "pauses."
)


def _spawned() -> set[int]:
    """Return the processes that this one's multiprocessing has started, and that import the script anew."""
    found = set[int]()
    for name in {"multiprocessing", "multiprocess"} & sys.modules.keys():  # the second one is that of `datasets`
        usual = sys.modules[name].get_start_method(allow_none=True)
        each = sys.modules[name].active_children()
        found |= {one.pid for one in each if (getattr(one, "_start_method", None) or usual) in ("spawn", "forkserver")}
    return found


def _is_idle() -> bool:
    """Return True if this process and all that it started hardly compute, or wait for a core, for some seconds."""
    tree = processes.ProcessTree(os.getpid())
    before, queued = tree.read().cpu_seconds, tree.queued_seconds()
    time.sleep(_IDLE_SECONDS)
    computed = tree.read().cpu_seconds - before
    return max(computed / _IDLE, (tree.queued_seconds() - queued) / _QUEUED) <= _IDLE_SECONDS


class _Watch:
    def __init__(self, asked: types.SimpleNamespace) -> None:
        self.asked = asked
        self._binding = processes.Binding()
        self._decoded: Any = None  # a count of images; None while nothing can decode one
        self._filtered: Any = None
        self._inside = False
        self.trained = False  # a step of a training was made, perhaps in a loop without `fit`
        self._lines: LineWatch | None = None  # of a training of which no data were seen to be read
        self._steps, self._began = 0, 0.0
        self._predictions, self._patched = list[float](), 0.0  # seconds of each, and since when
        self._unread: Any = None  # the data of which a read raised
        self._given = list[Any]()  # data that `fit` reads, while it does
        # The model of the `fit` before, some of its weights, the samples that it was trained on, and when that ended.
        self._before: tuple[Any, bytes, Set[bytes], float] = (lambda: None, b"", frozenset(), math.nan)
        self._pause = math.nan  # not known
        self._spent = dict[str, list[list[float]]]()  # seconds of each call, by kinds of callbacks
        self._first = list[dict[str, Any]]()  # what was seen of the first short `fit` in a loop, until another is seen
        self._raised = False  # a read for a framework did, or gave nothing

    @functools.cached_property
    def reads(self) -> Reads:
        """The loops of the script. Not made before there is one, as NumPy is imported with it."""
        from autopipe.extensions.diagnose.loop import Reads

        if self._lines is not None:  # of what came before the first loop
            self._lines.stop()
        reads = Reads(self._look(), self._looped, lambda: self.trained)
        self.watch_for_hang(reads)
        return reads

    def watch_for_hang(self, looked_at: Onlooker | Reads) -> None:
        threading.Thread(target=self._wait_for_hang, args=(looked_at,), name="autopipe-hang", daemon=True).start()

    def _wait_for_hang(self, looked_at: Onlooker | Reads) -> None:
        begun = set[int]()  # workers, while no batch comes
        while True:
            time.sleep(0.5)
            since = looked_at.waiting_since
            if since is None or time.monotonic() - since < _SOON:
                begun.clear()
                continue
            workers = _spawned()
            begun |= workers
            if time.monotonic() - since < _PATIENCE_SECONDS:
                continue
            if len(begun - workers) >= _ENDED:
                guard = "Put what trains under `if __name__ == '__main__':`, which a worker does not run. "
                guarded = re.search(r"^if\b.*__name__", self._text(), re.MULTILINE)
                self._end(
                    f"{_NO_BATCH}: worker processes end before they have made one. By their start "
                    "method, each imports the script first, and so runs all that stands at its top level",
                    f"{'' if guarded else guard}What they raised stands above.",
                )
            if (watch := looked_at.line_watch) is not None and watch.is_new:
                watch.start()
                time.sleep(1.0)
            lines = None if watch is None else watch.stop()  # it computes as well
            if _is_idle() and looked_at.waiting_since == since:
                break
        message, hint = f"{_NO_BATCH}, and nothing computes", _NO_LINE
        if lines is not None and lines.lines:
            line, hint = lines.lines[0], _FORKED if lines.forked else _THREADED
            who = "worker processes wait" if lines.forked else "its threads wait"
            message += f": {who} at {line.file}:{line.line} `{line.code}`"
        self._end(message, hint)

    def _end(self, message: str, hint: str) -> NoReturn:
        from autopipe.measure.trial.child import kill_others

        self._failed(f"{message}.", hint)
        kill_others()
        os._exit(0)

    def _text(self) -> str:
        return Path(self.asked.script).read_text(encoding="utf-8", errors="replace")

    def _failed(self, message: str, hint: str | None) -> None:
        self._write({"status": "failed", "message": message, "hint": hint})

    def _fail(self, message: str, hint: str) -> NoReturn:
        self._failed(message, hint)
        _end_here()

    def _look(self) -> Look:
        from autopipe.extensions.diagnose.steps import Look

        return Look(seconds=self.asked.seconds, steps=self.asked.steps)

    def read(self, function: Callable[..., Any], data: Any, *arguments: Any) -> Any:
        # Beside `fit`: not a dataset of its own, nor one that reads itself.
        if (
            self._given
            and sys._getframe(2).f_locals.get("self") is not data
            and all(data is not x for x in self._given)
        ):
            from autopipe.extensions.diagnose.loop import unused_workers

            for said in unused_workers(data):
                self._given = []  # once
                self._note(f"`{type(data).__name__}` is read by its index, and not by `fit`. {said}", said)
        try:
            if threading.current_thread() is not threading.main_thread():  # which no loop is seen to wait for
                return function(data, *arguments)
            return self.reads.read(function, data, *arguments)
        except StopIteration:
            raise
        except Exception:
            self._unread = data
            raise

    def read_by_framework(self, function: Callable[..., Any], data: Any, *arguments: Any) -> Any:
        """Read a batch for a framework, perhaps in a process where only an error's text is left of it."""
        from autopipe.errors import raised

        name = f"{type(data).__name__}[{arguments[0]!r}]" if arguments else ""
        try:
            batch = function(data, *arguments)
        except Exception as error:
            if name and not self._raised:  # what raises next, may be a dataset that reads this one
                self._raised = True
                said = raised(name, error, (str(error).splitlines() or [""])[0])
                self._write({"status": "raised", "message": f"{said}."})
            raise
        x = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if name and not self._raised and getattr(x, "shape", None) == (0,):  # `np.array([])`, as of no files
            self._raised = True
            said = f"`{name}` has no samples: `__len__`, which is to count batches, counts too many."
            self._write({"status": "hint", "message": said})
        return batch

    def stepped(self, package: str) -> None:
        if "reads" in vars(self):
            self.reads.trained(package)
        self._note_training()

    def trains(self) -> None:
        if "reads" in vars(self):
            self.reads.traced()
        self._note_training()

    def _note_training(self) -> None:
        """Look at all lines of a training of which no data are seen to be read, and tell of them after enough steps."""
        self.trained = True
        if "reads" in vars(self) or threading.current_thread() is not threading.main_thread():
            return
        if self._lines is None:
            from autopipe.measure.lines import LineWatch

            if not self.asked.keep_running:
                threading.Thread(target=self._end_unseen, name="autopipe-end", daemon=True).start()
            self._lines, self._began = LineWatch(whole=True), time.monotonic()
            self._lines.start()
        self._steps += 1
        if not self.asked.keep_running and self._look().is_enough(self._steps, time.monotonic() - self._began):
            self.end()
            _end_here()

    def _end_unseen(self) -> None:
        time.sleep(self.asked.seconds + _PATIENCE_SECONDS)  # the steps of JAX cannot be counted
        if "reads" not in vars(self):
            self.end()
            _end_here()

    def end(self) -> None:
        if self._first:
            self._write(self._first[0])
        elif "reads" in vars(self):
            self.reads.end()
        elif self._lines is not None and (lines := self._lines.stop()) is not None:
            slow = [line for line in (*lines.own, *lines.lines) if not line.beside]
            whole = sum(line.seconds for line in slow)
            slow.sort(key=lambda line: -line.seconds)
            shown = [f"{each.seconds / whole:.0%} {each.file}:{each.line} `{each.code}`" for each in slow[:_SHOWN]]
            if "tf_keras" in sys.modules and any(".fit" in line.code for line in slow):
                self._failed(
                    "`fit` is that of tf_keras, the legacy Keras 2, which reads data and trains in one graph: how long "
                    "it waits cannot be seen.",
                    "Without TF_USE_LEGACY_KERAS, tf.keras is Keras 3, whose `fit` is watched.",
                )
                return
            self._failed(
                "The script trains, but no `fit` and no loop over a dataset that is watched feeds it. Its thread spent "
                f"the time at: {'; '.join(shown)}.",
                "Of these, lines that make batches can go to workers. Where there is a loop over batches, outside of "
                "@tf.function, `for batch in ap.watch(batches)` tells how long it waits for them, and ap.live makes "
                "them meanwhile.",
            )
        elif not self.trained and (said := fit_call.predictions(self._predictions, time.monotonic() - self._patched)):
            self._failed(*said)

    def explain(self, error: Exception) -> None:
        from autopipe.errors import hint_of_workers

        self._lines, self._first = None, []  # what it came to is said by the error
        if not self.trained and "reads" in vars(self):  # a loop before the training, such as one that shows images
            vars(self).pop("reads").leave()
        text = str(error)
        hints = [hint_of_workers(error), *(said for each, said in fit_call.HINTS.items() if re.search(each, text))]
        if self._unread is not None and "Too many open files" not in text:  # none can be opened here
            from autopipe.extensions.diagnose.data import missing_files, modes, refused_files, shared

            hints += [missing_files(self._unread), refused_files(self._unread), modes(self._unread, text)]
            hints += shared(self._unread)
        for message in filter(None, hints):
            self._write({"status": "hint", "message": message})

    def patch(self, keras: types.ModuleType) -> None:
        from autopipe.extensions.diagnose.data import look_at_labels

        look_at_labels(keras, self._note)
        self._predictions, self._patched = fit_call.timed(keras.Model, "predict"), time.monotonic()
        signature = inspect.signature(keras.Model.fit)

        @hooks.around(keras.Model, "fit")
        def fit(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            if self._inside:
                return original(*arguments, **named)
            try:
                bound = signature.bind(*arguments, **named)
            except TypeError:
                if (said := fit_call.refused(named)) is not None:
                    self._failed(*said)
                return original(*arguments, **named)  # which raises it as it does unwatched
            return self._watched(keras, original, bound)

        # Also here, because a trainer tells its list that a training begins before it calls `fit`.
        @hooks.around(keras.callbacks.CallbackList, "__init__")
        def make(begin: Callable[..., Any], callbacks: Any, given: Any = None, *arguments: Any, **named: Any) -> None:
            kept, callbacks.autopipe_left_out = self._kept(keras, named.pop("callbacks", given))
            begin(callbacks, kept, *arguments, **named)

    def _watched(self, keras: Any, original: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
        from autopipe.errors import AutopipeError
        from autopipe.extensions.diagnose.loop import kind_of_data
        from autopipe.extensions.diagnose.run import Onlooker

        self.reads.leave()
        self._notes = self._checked(bound.arguments)
        model, given, x = bound.args[0], bound.arguments.get("callbacks"), bound.arguments.get("x")
        users, left_out = self._kept(keras, getattr(given, "callbacks", given))
        onlooker = Onlooker(
            self._told,
            self._look(),
            data=kind_of_data(x),
            source=x,
            left_out=(*getattr(given, "autopipe_left_out", ()), *left_out),
            before=self._trained_on(model),
        )
        if isinstance(given, keras.callbacks.CallbackList):
            onlooker.set_model(model)
            if (trainer := getattr(given, "trainer", None)) is not None:
                onlooker.set_trainer(trainer)
            given.callbacks = [onlooker, *users]
        else:
            bound.arguments["callbacks"] = [onlooker, *users]
        self._inside, self._onlooker, self._given = True, onlooker, [x, bound.arguments.get("validation_data")]
        self._code = self._read_call(sys._getframe(3), bound.arguments)
        onlooker.wait()
        self.watch_for_hang(onlooker)
        try:
            result = original(*bound.args, **bound.kwargs)
            onlooker.on_train_end()  # a trainer tells its callbacks later, if at all
            self._before = weakref.ref(model), fit_call.last_weights(model), onlooker.trained_on, time.monotonic()
            return result
        except _Enough:
            pass
        except AutopipeError as error:
            self._failed(error.message, error.hint)
        except Exception:
            self._unread = x
            raise
        finally:
            self._inside, self._given = False, []
            onlooker.leave()
            for note in self._notes if not onlooker.is_done else ():  # it failed, or had too few steps
                self._write({"status": "hint", "message": note})
        bound.arguments.clear()
        del x  # which may hold files and locks
        _end_here()

    def _trained_on(self, model: Any) -> Set[bytes]:
        """Return the samples that the `fit` before trained this model on, unless its weights were set back."""
        of_model, weights, before, ended = self._before
        self._pause = time.monotonic() - ended
        return before if of_model() is model and weights == fit_call.last_weights(model) else frozenset()

    def _checked(self, given: dict[str, Any]) -> tuple[str, ...]:
        """Return sentences about faults of the arguments of `fit`. The script ends if the validation never does."""
        if (said := fit_call.endless(given)) is not None:
            self._fail(*said)
        validation = given.get("validation_data")
        if inspect.isgenerator(validation) and given.get("validation_steps") is None:
            given["validation_data"] = self._limited(validation)
        from autopipe.extensions.diagnose.data import shared
        from autopipe.frameworks import tfdata

        for message in shared(given.get("x")):
            self._write({"status": "doubt", "message": message})  # in case that a signal ends the script
        shuffles = tfdata.shuffles_anew(validation)
        return (*fit_call.faults(given), *fit_call.predicted(validation, self._text(), shuffles=shuffles))

    def _limited(self, batches: Iterator[Any]) -> Iterator[Any]:
        until = math.inf
        for count, batch in enumerate(batches, start=1):
            if count == _PEEKED + 1:
                until = time.monotonic() + max(_PATIENCE_SECONDS, self.asked.seconds)
            if time.monotonic() > until:
                self._fail(
                    f"The validation has read {count} batches of a generator, and `fit` has no validation_steps.",
                    "If it goes on for ever, so does the validation after the first epoch; if not, there is nothing "
                    "left for the second. Give `fit` validation_steps=, and a generator that goes on for ever.",
                )
            yield batch

    def _kept(self, keras: Any, callbacks: Any) -> tuple[list[Any], tuple[str, ...]]:
        """Return the callbacks that write nothing, because a shortened training must not, and the names of others."""
        from autopipe.extensions.diagnose.run import Onlooker

        every = [] if callbacks is None else keras.tree.flatten(callbacks)
        if self.asked.callbacks:
            for each in every:
                if not isinstance(each, Onlooker):
                    self._time_hooks(each)
            return every, ()
        kinds = {Onlooker, *(getattr(keras.callbacks, name, None) for name in _COMPUTE)}
        kept = [each for each in every if type(each) in kinds]
        return kept, tuple(type(each).__name__ for each in every if type(each) not in kinds)

    def _time_hooks(self, callback: Any) -> None:
        if hasattr(callback, "autopipe_timed"):
            return
        callback.autopipe_timed, took = True, self._spent.setdefault(type(callback).__name__, [])
        for name in dir(callback):
            if name.startswith("on_") and not hasattr(getattr(callback, name), "_is_default"):  # of Keras's base class
                took.append(fit_call.timed(callback, name))

    def _read_call(self, frame: types.FrameType, given: dict[str, Any]) -> dict[str, Any]:
        from autopipe.extensions.diagnose import loop, paste

        x, place = given.get("x"), (frame.f_code.co_filename, frame.f_lineno)
        has_index = hasattr(x, "__getitem__") and not hasattr(x, "element_spec")
        code = paste.read(*place, kind=loop.kind_of_data(x), has_index=has_index, steps=given.get("steps_per_epoch"))
        policy = sys.modules["keras"].config.dtype_policy().name
        code = code.model_copy(update={"policy": None if policy == "float32" else policy})
        return {"code": code.model_dump(mode="json")}

    def see(self, module: Any) -> None:
        """Look at what a module does that the script has imported, also in processes that are forked."""
        name = module.__name__
        if name == "keras":
            self.patch(module)
            return
        if name == "tensorflow":  # functions whose random numbers tf.data draws once, as it traces them
            from autopipe.measure import randomness

            randomness.watch_maps(lambda said: self._note(f"{said}.", said), module)
            return
        from autopipe.extensions.diagnose import unpacked  # imports NumPy, which these have, but for Pillow

        if name == "grain":
            self._filtered = unpacked.Filtered(module)
        elif name in _DECODERS:
            unpacked.look_at_resizes(module, self._note)
            self._decoded = self._decoded or unpacked.Decoded()
            self._decoded.look_at(module)
            if name == "cv2":
                self._see_threads(module)
        else:
            unpacked.Unpacked(self._note).look_at(module)

    def _see_threads(self, cv2: Any) -> None:
        cores = len(os.sched_getaffinity(0))

        @hooks.around(cv2, "setNumThreads")
        def set_threads(original: Callable[[int], None], count: int) -> None:
            original(count)
            if count > cores:
                by = processes.line_of(sys._getframe(2))
                threads = f"sets OpenCV's threads to {count}, in each process that runs it, on {cores} cores"
                self._note(f"{by} {threads}. Remove it.", by)

    def _note(self, message: str, about: str) -> None:
        """Write a note, also from a process that is forked; the last one about a thing counts."""
        self._write({"status": "note", "message": message, "about": about})

    def _told(self, watched: Watched) -> None:
        from autopipe.reports import wording

        warnings = (*watched.warnings, *self._notes)
        validates = watched.epochs is not None and watched.epochs.validation_seconds > 0  # its images count, too
        if watched.data == "a generator" and self._decoded is not None and not validates:
            warnings += tuple(self._decoded.dropped(self._onlooker.images, watched.batch_size))
        in_loop = self._code["code"]["in_loop"] and watched.seconds < _SHORT * self.asked.seconds
        whole = watched.seconds if watched.epochs is None else watched.epochs.seconds
        pause = f", {wording.seconds(self._pause)} before this one," if self._pause >= _NOTED * whole else ""
        warnings += (_IN_LOOP.format(pause),) * in_loop
        if self._filtered is not None and watched.waits:
            warnings += tuple(self._filtered.said())
        if watched.verdict == "callbacks" and self._spent:
            took, longest = max((sum(map(sum, each)), kind) for kind, each in self._spent.items())
            whole = sum(sum(map(sum, each)) for each in self._spent.values())
            warnings += (f"Of the time of the callbacks, `{longest}` takes {took / max(1e-9, whole):.0%}.",)
        more = {"bound": self._binding.end(), "warnings": warnings}
        told = watched.model_dump(mode="json") | more | self._code
        if in_loop and not (self._first or self.asked.keep_running):
            self._first = [told]  # it opens its data for the first time, and builds what others find
            return
        self._first = []
        self._write(told)
        if not self.asked.keep_running:
            raise _Enough

    def _looped(self, watched: Watched) -> None:
        more = self._filtered.said() if self._filtered is not None and watched.waits else []
        said = {"bound": self._binding.end(), "warnings": [*watched.warnings, *more]}
        self._write(watched.model_dump(mode="json") | said)
        if not self.asked.keep_running:
            _end_here()

    def _write(self, told: dict[str, Any]) -> None:
        os.write(self.asked.fd, json.dumps(told).encode() + b"\n")


def _end_here() -> NoReturn:
    """End without the rest of the script, and without its exit handlers."""
    from autopipe.measure.trial.child import kill_others

    gc.collect()  # iterators give back files and locks that they hold
    sys.stdout.flush()
    sys.stderr.flush()
    kill_others()
    os._exit(0)


def _show(error: Exception) -> None:
    own = (str(Path(__file__).parents[2]), "<frozen runpy>", "<string>")
    every = [traceback.TracebackException.from_exception(error)]
    for each in every:
        frames = [frame for frame in each.stack if not frame.filename.startswith(own)]
        each.stack = traceback.StackSummary.from_list(frames)
        every += [other for other in (each.__cause__, each.__context__) if other is not None]
    ours = rf'  File "(?:{"|".join(map(re.escape, own))})[^\n]*\n+'  # that TensorFlow's texts hold
    sys.stderr.write(re.sub(ours, "", "".join(every[0].format())))


def _run(script: Path, module: str | None) -> None:
    """Run a script as `python SCRIPT` does; as `python -m` if it is named so, or imports relative to its package."""
    if module is not None:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109  as a text
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    path = script.resolve()
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):  # which running it raises, too
        body = []
    if not any(isinstance(each, ast.ImportFrom) and each.level for each in body):
        sys.path.insert(0, str(path.parent))
        runpy.run_path(str(script), run_name="__main__")
        return
    root = next((above for above in path.parents[1:] if not (above / "__init__.py").is_file()), path.parent)
    sys.path.insert(0, str(root))
    runpy.run_module(".".join(path.relative_to(root).with_suffix("").parts), run_name="__main__", alter_sys=True)


def main() -> None:
    """Run one script."""
    _, asked, script, *arguments = sys.argv
    watch = _Watch(types.SimpleNamespace(script=script, **json.loads(asked)))
    os.set_inheritable(watch.asked.fd, False)
    for module in ("keras", *_DECODERS, "h5py", "numpy", "rasterio", "tifffile", "zarr", "tensorflow", "grain"):
        hooks.after_import(module, watch.see)
    hooks.watch_loops(watch.read, watch.read_by_framework, watch.stepped, watch.trains)
    sys.argv = [script, *arguments]
    try:
        _run(Path(script), watch.asked.module)
    except Exception as error:  # noqa: BLE001  the script may raise anything
        _show(error)
        watch.explain(error)
        sys.exit(1)
    finally:
        watch.end()
