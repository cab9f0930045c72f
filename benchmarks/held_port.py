"""A port of this machine that is nobody else's from the moment it is chosen, whenever one of ours listens there."""

from __future__ import annotations

import socket
import weakref


class HeldPort:
    """A free TCP port of 127.0.0.1, held by a socket that is bound and never listens.

    The kernel gives a port that is bound to nobody who asks for any free one, and to no connection as its own end. A
    server that names it, and sets SO_REUSEADDR as servers do, may listen there, end, and listen there again.

    Attributes
    ----------
    number
        The port.
    """

    def __init__(self) -> None:
        holder = socket.socket()
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        self.number: int = holder.getsockname()[1]
        self.release = weakref.finalize(self, holder.close)
        """Gives it back; so does the end of this object."""
