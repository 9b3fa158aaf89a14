"""What hatchling asks for: the native library, in a wheel or for an editable install in the checkout; and README as a
package index shows it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_DEBIAN = "gcc libc6-dev libjpeg-dev libdeflate-dev"
_FLAGS = ("CC", "CFLAGS", "LDFLAGS")


class NativeLibrary(BuildHookInterface):  # type: ignore[type-arg]
    """Runs CMake, which says what is missing or fails."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build `autopipe/_native.so`; a wheel has it, and the digest of what it was built from."""
        root = Path(self.root)
        folder, library = root / "build" / "native", root / "autopipe" / "_native.so"
        for command in (
            ["cmake", "--fresh", "-S", str(root / "native"), "-B", str(folder), "-G", "Ninja"],
            ["cmake", "--build", str(folder)],
        ):
            if subprocess.run(command, check=False).returncode:
                flags = [f" {name} is {value!r}." for name, value in os.environ.items() if name in _FLAGS]
                self.app.abort(
                    "autopipe's native library was not built: above, CMake says why. It needs a C compiler, "
                    f"libjpeg-turbo and libdeflate (Debian, Ubuntu: sudo apt-get install {_DEBIAN}).{''.join(flags)}"
                )
        made = folder / library.name
        if version == "editable":
            library.unlink(missing_ok=True)  # a process that has loaded it goes on with what it has
            library.write_bytes(made.read_bytes())
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"], build_data["tag"] = False, f"py3-none-{platform}"
        for each in (made, made.with_suffix(".digest")):
            build_data["force_include"][str(each)] = f"autopipe/{each.name}"


class LongDescription(MetadataHookInterface):
    """Makes links of README absolute, which lead into the source: `REPOSITORY` has its address, as in `make release
    REPOSITORY=https://host/owner/name`. Without it a link is its text, and a picture what it shows.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        """Add `readme` and `urls`."""
        repository, version = os.environ.get("REPOSITORY", "").rstrip("/"), metadata["version"]

        def link(match: re.Match[str]) -> str:
            picture, text, path = match.groups()
            if repository:
                return f"{picture}[{text}]({repository}/{'raw' if picture else 'blob'}/v{version}/{path})"
            return f"*{text}* ({path} in the source distribution)" if picture else text

        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        told = re.sub(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)", link, readme)
        metadata["readme"] = {"content-type": "text/markdown", "text": told}
        places = {"Repository": "", "Changelog": f"/blob/v{version}/CHANGELOG.md", "Issues": "/issues"}
        metadata["urls"] = {name: repository + place for name, place in places.items() if repository}
