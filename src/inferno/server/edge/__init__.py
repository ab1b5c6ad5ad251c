"""The server's edge: what every request passes before an endpoint sees it, and how it is run."""

from inferno.server.edge.admission import Admission, Needs, admission_of
from inferno.server.edge.guard import Guard
from inferno.server.edge.pieces import Pieces, pieces_of
from inferno.server.edge.record import Record, record_of
from inferno.server.edge.refusal import DeadlineExceeded, Refusal, Unavailable, method_not_allowed
from inferno.server.edge.routing import EdgeRoute
from inferno.server.edge.run import serve
from inferno.server.edge.slot import Slot
from inferno.server.edge.views import View, Views

__all__ = [
    "Admission",
    "DeadlineExceeded",
    "EdgeRoute",
    "Guard",
    "Needs",
    "Pieces",
    "Record",
    "Refusal",
    "Slot",
    "Unavailable",
    "View",
    "Views",
    "admission_of",
    "method_not_allowed",
    "pieces_of",
    "record_of",
    "serve",
]
