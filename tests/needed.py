"""Programs that tests run and no package of ours brings: tests without theirs are skipped, but never in CI."""

from __future__ import annotations

import os
import shutil

import pytest


def needs(program: str) -> pytest.MarkDecorator:
    """Skip where a program is not on the PATH; with CI=true that is no reason, and the test fails without it."""
    missing = shutil.which(program) is None and not os.environ.get("CI")
    return pytest.mark.skipif(missing, reason=f"no {program} on this machine")


needs_openssl = needs("openssl")
