"""Names that no job may have, for tests of everything that a name could reach."""

from __future__ import annotations

from typing import Final

from dip.validation.limits import MAX_JOB_ID_LENGTH

HOSTILE_NAMES: Final = {
    "empty": "",
    "one letter too long": "x" * (MAX_JOB_ID_LENGTH + 1),
    "a megabyte": "x" * 2**20,
    "NUL": "job\0",
    "line break, and a line of the log after it": "job\n2026-01-01 00:00:00,000 INFO planner_service: forged",
    "carriage return": "job\rforged",
    "line break at the end": "job\n",
    "colours of a terminal": "\x1b[31mjob",
    "control character of Latin-1": "job\x85",
    "line separator": "job\u2028forged",
    "space": "my job",
    "path": "../../etc/passwd",
    "slash": "team/job",
    "backslash": "team\\job",
    "dots in a row": "a..b",
    "dots alone": "..",
    "hidden file": ".job",
    "option": "-job",
    "every key": "*",
    "class of keys": "[a-z]*",
    "one key more": "job?",
    "braces": "{x}",
    "key of another job": "job:1}{",
    "percent-encoded": "%2e%2e%2fjob",
    "quote": 'job"',
    "format": "%s%n",
    "template": "${jndi:ldap}",
    "Cyrillic letter": "j\u043eb",
    "full-width letter": "\uff4aob",
    "digit of another script": "job\u0661",
    "accent": "\u00e9t\u00e9",
    "right to left": "job\u202egpj",
    "right-to-left mark": "job\u200f",
    "no width": "job\u200b",
    "byte order mark": "\ufeffjob",
    "emoji": "job\U0001f4a5",
}
"""By what is wrong with them."""

USUAL_NAMES: Final = (
    "job",
    "1",
    "vlm-7b.run_3",
    "a7c1f2f0-9d1e-4b1a-8f52-1f5a0c6f2f9e",
    "slurm:123456@cluster-a",
    "lr=3e-4+warmup",
    "Team.Model.v2",
    "x" * MAX_JOB_ID_LENGTH,
)
"""That jobs have."""
