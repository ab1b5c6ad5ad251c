"""The server's edge: what every request passes before an endpoint sees it, and how it is run."""

from inferno.server.edge.admission import Admission, admission_of
from inferno.server.edge.deadline import in_time
from inferno.server.edge.guard import Guard
from inferno.server.edge.pieces import Pieces, pieces_of
from inferno.server.edge.record import Record, record_of
from inferno.server.edge.refusal import DeadlineExceeded, Refusal, Unavailable
from inferno.server.edge.run import serve
from inferno.server.edge.slot import Slot

__all__ = [
    "Admission",
    "DeadlineExceeded",
    "Guard",
    "Pieces",
    "Record",
    "Refusal",
    "Slot",
    "Unavailable",
    "admission_of",
    "in_time",
    "pieces_of",
    "record_of",
    "serve",
]
