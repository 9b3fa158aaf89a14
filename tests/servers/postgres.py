"""A PostgreSQL server for tests: started on a Unix socket in a folder of its own, and killed when the test wants it."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest


class Postgres:
    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        # The server refuses to be root's.
        self._user = "postgres" if os.getuid() == 0 else None
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "tuner", "--no-sync")
        self.start()
        self.url = f"postgresql+psycopg://tuner@/postgres?host={folder}"

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._folder}' -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-l", log, "-o", options, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "-w", "stop")

    def empty(self, name: str) -> str:
        """Create a database without tables, and return its URL."""
        with psycopg.connect(f"host={self._folder} user=tuner dbname=postgres", autocommit=True) as own:
            own.execute(f"CREATE DATABASE {name}".encode())
        return self.url.replace("/postgres?", f"/{name}?")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        subprocess.run(command, user=self._user, cwd=self._folder, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def started() -> Iterator[Postgres]:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if (program := shutil.which("initdb")) is not None:
        found.append(Path(program).parent)
    if not found:
        pytest.fail("PostgreSQL is missing: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="pg-") as made:  # a socket's path may have 107 characters at most
        folder = Path(made)
        if os.getuid() == 0:
            os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        server = Postgres(folder, found[-1])
        yield server
        server.stop()
