"""The settings of a worker, beside those of every server."""

from __future__ import annotations

from dataclasses import dataclass

from inferno.errors import InvalidRequest
from inferno.http_post import Target, parse_target
from inferno.options import WorkerOptions
from inferno.server.settings import ServerSettings
from inferno.server.worker.messages import DeviceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """The address that the ready message goes to, and the number of tries.

    timeout         seconds of one attempt, from connecting to the answer.
    first_delay     before the second attempt, doubled after each, up to most_delay.
    """

    target: Target
    num_attempts: int = 10
    timeout: float = 10.0
    first_delay: float = 0.5
    most_delay: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker beside a server's: its id, its device, and where it reports.

    device          the device's kind and, except for the CPU, its number.
    uri             where others reach the worker; None: the address that it listens on.
    """

    worker_id: str
    device: DeviceKind
    device_index: int | None
    callback: Callback
    uri: str | None = None

    @property
    def engine_device(self) -> str:
        """Return the engine's name of the device, such as cuda:0."""
        match self.device:
            case DeviceKind.CPU:
                return "cpu"
            case DeviceKind.CUDA:
                return f"cuda:{self.device_index}"
            case DeviceKind.METAL:
                return "mps"


def worker_settings(server: ServerSettings, options: WorkerOptions) -> WorkerSettings:
    """Return a worker's settings by its options; InvalidRequest where nobody could reach it."""
    if options.uri is None and server.host.strip("[]") in ("0.0.0.0", "::"):
        raise InvalidRequest(
            f"--host {server.host} doesn't say where others reach this worker; add --uri, such as "
            "http://this.machine:8000",
            param="uri",
        )
    kind, _, number = options.device.partition(":")
    device = DeviceKind(kind)
    index = options.cuda_device or int(number or 0)
    return WorkerSettings(
        worker_id=options.worker_id,
        device=device,
        device_index=None if device is DeviceKind.CPU else index,
        callback=Callback(
            target=parse_target(options.callback_url, option="--callback-url"),
            num_attempts=options.callback_attempts,
            timeout=options.callback_timeout,
        ),
        uri=options.uri,
    )
