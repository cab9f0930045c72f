"""The example's training, which is never further than a file says: what a test does beside it may take its time.

``HELD_AT`` names the file; in it is how many batches may be read by now.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from examples.vlm.documents import DigitDocuments  # noqa: E402 - the example as it is there

if TYPE_CHECKING:
    from examples.vlm.documents import DocumentBatch

HELD_AT = "HELD_AT"
_POLL_S = 0.02
_read = DigitDocuments.__getitem__


def read_when_allowed(documents: DigitDocuments, number: int) -> DocumentBatch:
    """Read a batch, once the file allows it."""
    while int(Path(os.environ[HELD_AT]).read_text() or 0) <= number:
        time.sleep(_POLL_S)
    return _read(documents, number)


if __name__ == "__main__":
    DigitDocuments.__getitem__ = read_when_allowed  # type: ignore[method-assign]
    runpy.run_path(str(ROOT / "examples" / "train_vlm.py"), run_name="__main__")
