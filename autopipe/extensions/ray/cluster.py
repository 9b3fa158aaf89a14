"""The Ray cluster of this process: found or started, shared by all its users, left by the last of them.

A process is in one cluster at a time; that is Ray's rule. A cluster that the user's own code has joined is used as it
is, and not ended. What the nodes do is not known here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from autopipe import _version, again
from autopipe.errors import DataError, LoaderError, extra_module
from autopipe.extensions.ray.node import SHARED_DATA
from autopipe.hardware import machine

LOCAL = "local"  # the address of a cluster that is started on this machine, and ended with its last user
_REACH_SECONDS = 10.0
_LEAST_STORE_BYTES = 200 << 20  # Ray refuses less than 75 MiB
_TCP = "ray://"
_TRIES = 3
_LOST_BY_SERVER = ("Starting Ray client server failed", "psutil.ZombieProcess", "psutil.NoSuchProcess")  # of proxier.py
_AS_IMPORTANT = {"worker_niceness": 0}  # as the training that waits for them; Ray's own choice is 15


class Cluster:
    """A connection, from `join` to `leave`. `ray` is the package."""

    def __init__(self, address: str) -> None:
        self.ray = extra_module("ray", "ray")
        self.address = address
        self._left = False

    def nodes(self) -> dict[str, float]:
        """Return the living nodes with cores for any user, by their ids; all nodes if none has."""
        living = {node["NodeID"]: float(node["Resources"].get("CPU", 0)) for node in self.ray.nodes() if node["Alive"]}
        return {node: cores for node, cores in living.items() if cores} or living

    def on(self, node: str) -> dict[str, Any]:
        """Return the options of an actor on a node, or on another one if that has gone; it must wait for no core."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)}

    def leave(self) -> None:
        """Leave the cluster, once; the last user ends one that was started here."""
        if not self._left:
            self._left = True
            _MEMBERSHIP.leave()


class _Membership:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._address = ""
        self._members = 0
        self._ours = False
        self._users: weakref.WeakSet[Any] | None = None

    def join(self, address: str | None, *, store_bytes: int = 0) -> Cluster:
        """Connect this process to a cluster, for as many as join, with an object store of at least `store_bytes`."""
        wanted = address_of(address)
        ray = extra_module("ray", "ray")
        with self._lock:
            if self._pid != os.getpid():  # a forked child has no connection of its own
                self._pid, self._members, self._ours = os.getpid(), 0, False
            if not ray.is_initialized():
                _connect(ray, wanted, store_bytes)
                self._address, self._ours, self._members = wanted, True, 0
            elif self._ours and wanted != self._address and self._members:
                raise LoaderError(
                    f"A process can be in one Ray cluster only: this one is in `{self._address}`, but a loader asks "
                    f"for `{wanted}`.",
                    hint="Close the loaders of the first cluster before opening those of the second.",
                )
            self._members += 1
            return Cluster(self._address if self._ours else wanted)

    def leave(self) -> None:
        with self._lock:
            if self._pid != os.getpid():
                return
            self._members -= 1
            if self._members == 0 and self._ours:
                self._ours = False
                extra_module("ray", "ray").shutdown()
                is_rays = getattr(signal.getsignal(signal.SIGTERM), "__module__", "").startswith("ray.")
                if is_rays and threading.current_thread() is threading.main_thread():  # there was none before
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def ends_with_process(self, user: Any) -> None:
        """Close `user` before Ray ends at the interpreter's exit, unless it is closed by then."""
        if self._users is None:
            self._users = weakref.WeakSet()
            # Registered after Ray's own, so called before it.
            atexit.register(lambda: [each.close() for each in list(self._users or ())])
        self._users.add(user)


_MEMBERSHIP = _Membership()
join, ends_with_process = _MEMBERSHIP.join, _MEMBERSHIP.ends_with_process


def address_of(address: str | None) -> str:
    """Return the cluster's address; as in Ray, RAY_ADDRESS replaces None and "auto"."""
    named = os.environ.get("RAY_ADDRESS", "")
    if address is None:
        return named or LOCAL
    return named or address if address == "auto" else address


def placed(nodes: Mapping[str, float], count: int, taken: Iterable[str] = (), avoid: str = "") -> list[str]:
    """Return a node for each of `count` more workers, by the nodes' cores; `avoid` only if there is no other."""
    usable = {node: cores for node, cores in nodes.items() if node != avoid} or dict(nodes)
    load = dict.fromkeys(usable, 0)
    for node in taken:
        if node in load:
            load[node] += 1
    found = []
    for _ in range(count):
        least = min(usable, key=lambda node: ((load[node] + 1) / max(usable[node], 0.01), node))
        load[least] += 1
        found.append(least)
    return found


# -------------------- answers of nodes


def require_data(missing: Sequence[tuple[str, str]]) -> None:
    """Refuse to begin if nodes lack files that are here, by the results of `node.lacking`."""
    here = [(node, file) for node, file in missing if os.path.exists(file)]  # noqa: PTH110  # as above
    if here:
        node, file = here[0]
        raise DataError(f"`{file}` is on this machine, but not on {node} of the Ray cluster.", hint=SHARED_DATA)


def node_failure(error: BaseException, what: str) -> LoaderError:
    """Return the error of a node that failed to do `what`, from Ray's message."""
    if "No module named 'autopipe" in str(error):
        return LoaderError(
            "A node of the Ray cluster lacks autopipe, or has another version of it.",
            hint=again.on_nodes("ray", _version.__version__),
        )
    last = str(error).strip().splitlines() or [type(error).__name__]
    return LoaderError(f"{what} on a node of the Ray cluster: {last[-1].strip()}")


def _connect(ray: Any, address: str, store_bytes: int) -> None:
    quiet = {"logging_level": "error", "log_to_driver": False}
    try:
        with _own_signals(but_default=address == LOCAL):
            if address == LOCAL:
                ray.init(
                    address=LOCAL,
                    num_cpus=machine.usable_cores(),
                    object_store_memory=max(_LEAST_STORE_BYTES, store_bytes),
                    include_dashboard=False,
                    _system_config=_AS_IMPORTANT,
                    **quiet,
                )
            else:
                _require_reachable(address)
                _join_existing(ray, address, quiet)
    except Exception as error:  # Ray raises whatever it met, and `Exception` itself
        what = "could not be started on this machine" if address == LOCAL else f"at `{address}` cannot be reached"
        told = str(error).strip().splitlines() or [type(error).__name__]
        reason = told[-1 if address.startswith(_TCP) else 0]  # a server of Ray answers with a traceback
        hint = "Give the address that `ray start --head` prints, or ray://HOST:10001 from outside of the cluster."
        raise LoaderError(f"The Ray cluster {what}: {reason}", hint=None if address == LOCAL else hint) from error


def _join_existing(ray: Any, address: str, quiet: Mapping[str, Any]) -> None:
    """Join a cluster; repeat it if its server for clients lost the process that it started for this one.

    That server forks while threads of gRPC run, and the child sometimes dies at once.
    """
    for left in reversed(range(_TRIES)):
        try:
            ray.init(address=address, **quiet)
            return
        except ConnectionAbortedError as error:
            if not left or not any(lost in str(error) for lost in _LOST_BY_SERVER):
                raise


def _require_reachable(address: str) -> None:
    """Connect once: an address without a server fails in seconds. Ray itself tries for half a minute, then aborts."""
    host, colon, port = address.removeprefix(_TCP).rpartition(":")
    if address == "auto" or not (colon and port.isdecimal()):
        return  # Ray looks for it, or names its fault
    socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()


@contextlib.contextmanager
def _own_signals(*, but_default: bool) -> Iterator[None]:
    """Keep the process's handler of SIGTERM; Ray's own stays with `but_default` if there was none before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and not (but_default and before is signal.SIG_DFL):  # None: Python did not set it
            signal.signal(signal.SIGTERM, before)
