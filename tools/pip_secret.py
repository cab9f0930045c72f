"""Writes pip's effective settings as one file, for a build that sees none of them: `tools/check_containers.sh`.

    python tools/pip_secret.py FOLDER

`FOLDER/pip.conf` names local files and folders (certificates, wheels) as the build will see them, and each line printed
is one of these: where it is here, a colon, where it is there. Nothing of this belongs into an image or the repository.
"""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from pathlib import Path

INSIDE = "/run/pip"
_PATH = re.compile(r"(?:(?<=\s)|^)(file://)?(/[^\s]+)")


def main() -> int:
    """Write the file, and print what it needs."""
    folder = Path(sys.argv[1])
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    mounts: dict[str, str] = {}

    def there(match: re.Match[str]) -> str:
        # Pages of an index that is a folder point to files beside it.
        needed = str(Path(match[2]).parent) if match[1] else match[2]
        mounts[needed] = INSIDE + needed
        return f"{match[1] or ''}{INSIDE}{match[2]}"

    settings = configparser.RawConfigParser()
    settings["global"] = {}
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        target = "global" if section == ":env:" else section
        if not settings.has_section(target):
            settings.add_section(target)
        settings.set(target, option, _PATH.sub(there, str(ast.literal_eval(value))).replace("\n", "\n    "))
    with (folder / "pip.conf").open("w", encoding="utf-8") as file:
        settings.write(file)
    sys.stdout.writelines(f"{here}:{inside}\n" for here, inside in mounts.items() if Path(here).exists())
    return 0


if __name__ == "__main__":
    sys.exit(main())
