"""How a worker behaves: what its options say beside those of every server."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inferno.errors import InvalidRequest
from inferno.http_post import parse_target
from inferno.server.settings import ServerSettings
from inferno.server.worker.callback import Callback
from inferno.server.worker.messages import DeviceKind

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_MAX_ATTEMPTS = 1000
_MAX_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Who the worker is, and whom it tells; bad values raise InvalidRequest.

    device          its kind and, but for the CPU, its number.
    uri             where others reach it; None is where it listens.
    """

    worker_id: str
    device: DeviceKind
    device_index: int | None
    callback: Callback
    uri: str | None = None

    @property
    def engine_device(self) -> str:
        """What the engine calls the device."""
        match self.device:
            case DeviceKind.CPU:
                return "cpu"
            case DeviceKind.CUDA:
                return f"cuda:{self.device_index}"
            case DeviceKind.METAL:
                return "mps"


def worker_settings(
    server: ServerSettings,
    *,
    worker_id: str,
    device: str,
    cuda_device: int | None,
    metal_device: int | None,
    callback_url: str,
    callback_attempts: int,
    callback_timeout: float,
    uri: str | None,
) -> WorkerSettings:
    """From the options of the command line."""
    if not _ID.fullmatch(worker_id):
        raise _refuse("worker_id", worker_id, "1 to 128 letters, digits or ._:-")
    if not 1 <= callback_attempts <= _MAX_ATTEMPTS:
        raise _refuse(
            "callback_attempts", callback_attempts, f"an integer from 1 to {_MAX_ATTEMPTS}"
        )
    if not 0.01 <= callback_timeout <= _MAX_TIMEOUT:
        raise _refuse(
            "callback_timeout", callback_timeout, f"a number from 0.01 to {_MAX_TIMEOUT:g}"
        )
    if uri is not None:
        parse_target(uri, option="--uri")
    elif server.host.strip("[]") in ("0.0.0.0", "::"):
        raise InvalidRequest(
            f"--host {server.host} doesn't say where others reach this worker; add --uri, such as "
            "http://this.machine:8000",
            param="uri",
        )
    return WorkerSettings(
        worker_id=worker_id,
        device=DeviceKind(device),
        device_index=_device_index(DeviceKind(device), cuda_device, metal_device),
        callback=Callback(
            target=parse_target(callback_url, option="--callback-url"),
            num_attempts=callback_attempts,
            timeout=callback_timeout,
        ),
        uri=uri,
    )


def _device_index(
    device: DeviceKind, cuda_device: int | None, metal_device: int | None
) -> int | None:
    for kind, index in ((DeviceKind.CUDA, cuda_device), (DeviceKind.METAL, metal_device)):
        if index is not None and device != kind:
            raise InvalidRequest(
                f"--{kind}-device {index} goes with --device {kind}, not with --device {device}",
                param=f"{kind}_device",
            )
    if cuda_device is not None and not 0 <= cuda_device <= 999:
        raise _refuse("cuda_device", cuda_device, "an integer from 0 to 999")
    if metal_device:
        raise _refuse("metal_device", metal_device, "0, as PyTorch uses one Metal device")
    return None if device is DeviceKind.CPU else cuda_device or metal_device or 0


def _refuse(name: str, value: object, expected: str) -> InvalidRequest:
    option = "--" + name.replace("_", "-")
    return InvalidRequest(f"{option} must be {expected}, not {value!r}", param=name)
