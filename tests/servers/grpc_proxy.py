"""Optuna's gRPC proxy of a storage, in a process of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def served(url: str) -> Iterator[str]:
    """Serve a storage; yield the URL of the proxy."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
    code = (
        "import sys, optuna; from autopipe.search.storage import open_storage;"
        "optuna.storages.run_grpc_proxy_server(open_storage(sys.argv[1]), host='127.0.0.1', port=int(sys.argv[2]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, url, str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            process.kill()
