"""How a client of the planner connects, an agent or a command alike: addresses, TLS, tokens. Needs grpcio."""

from dip.connecting import forking as forking
from dip.connecting.credentials import Credentials, CredentialSource
from dip.connecting.endpoint import Endpoint, Endpoints
from dip.connecting.explaining import advice, explanation
from dip.connecting.files import ClientFiles, ClientFilesError
from dip.connecting.variables import VARIABLES, Variable

__all__ = [
    "VARIABLES",
    "ClientFiles",
    "ClientFilesError",
    "CredentialSource",
    "Credentials",
    "Endpoint",
    "Endpoints",
    "Variable",
    "advice",
    "explanation",
]
