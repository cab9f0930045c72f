"""Lines that gRPC writes of headers it cannot decode: left out.

Anybody who can connect causes them, one or more a call, each with a traceback, and they repeat the header: a token,
too, where a byte of it is wrong. What is wrong with such a call, its client is told.
"""

from __future__ import annotations

import logging
from typing import Final

_GRPC: Final = logging.getLogger("grpc._cython.cygrpc")
_BEGINNINGS: Final = ("Invalid encoding on ", "Unexpected [UnicodeDecodeError] raised by servicer method ")


class _OfHeaders(logging.Filter):
    """Lets no line about an undecodable header pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_BEGINNINGS)


_FILTER: Final = _OfHeaders()


def leave_out_headers() -> None:
    """Leave these lines out from now on; once is enough."""
    _GRPC.addFilter(_FILTER)
