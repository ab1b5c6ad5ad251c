"""Define every error that inferno raises on purpose.

    InfernoError
    ├── InvalidRequest          a value that a caller gave is refused; `param` names it
    │   └── NeverFits           the request is larger than the context or the whole block pool
    ├── ModelError              the model can't be used
    │   ├── ModelNotFound       no such folder, or no model in it
    │   │   └── HubUnreachable  a hub can't be asked: no network, or HF_HUB_OFFLINE
    │   ├── DownloadError       a download broke off, or what came is not what it must be
    │   ├── UnknownArchitecture config.json asks for a model that we don't have
    │   ├── ConfigError         config.json is damaged, contradictory, or has keys we don't know
    │   ├── CheckpointError     a weights file is damaged, hostile or missing; names the file
    │   ├── WeightsMismatch     the checkpoint's tensors are not the model's; lists them
    │   ├── TokenizerError      tokenizer.json is missing or damaged
    │   └── TemplateError       the chat template is missing, refused, or failed
    ├── DeviceUnavailable       a device was asked for that is not there
    ├── NotEnoughMemory         weights or cache don't fit
    ├── Overloaded              too much waits already; the same can succeed later
    └── EngineError             a step failed; the request ended with finish reason `error`
        └── EngineDied          the engine is gone; retry on a new one

Each message says what was given, what was expected and what to do.
"""


class InfernoError(Exception):
    """The root of all errors: catching it catches all that inferno raises on purpose."""


class InvalidRequest(InfernoError):
    """Raised when a value that the caller gave is refused.

    `param` is the name of the offending parameter, for error objects and command-line options.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class NeverFits(InvalidRequest):
    """Raised when a request is larger than the model's context or than the whole block pool."""


class ModelError(InfernoError):
    """Raised when the model can't be used."""


class ModelNotFound(ModelError):
    """Raised when there is no such folder, or no model in it."""


class HubUnreachable(ModelNotFound):
    """Raised when a hub can't be asked, as there is no network or HF_HUB_OFFLINE forbids it."""


class DownloadError(ModelError):
    """Raised when a download broke off, or when what came is not what it must be."""


class UnknownArchitecture(ModelError):
    """Raised when config.json asks for a model that inferno doesn't have."""


class ConfigError(ModelError):
    """Raised when config.json is damaged, contradictory, or has keys that inferno doesn't know."""


class CheckpointError(ModelError):
    """Raised when a weights file is damaged, hostile or missing; the message names the file."""


class WeightsMismatch(ModelError):
    """Raised when the checkpoint's tensors are not the model's; the message lists them."""


class TokenizerError(ModelError):
    """Raised when tokenizer.json is missing or damaged."""


class TemplateError(ModelError):
    """Raised when the chat template is missing, refused by the sandbox, or failed."""


class DeviceUnavailable(InfernoError):
    """Raised when a device was asked for that is not there."""


class NotEnoughMemory(InfernoError):
    """Raised when weights or cache don't fit into the device's memory.

    `cures` are lines of options with which a model would fit; str() ends with them, and `message`
    is the rest. `is_of_host` tells that the host's memory is short, and not that of its GPU.
    """

    def __init__(
        self, message: str, *, cures: tuple[str, ...] = (), is_of_host: bool = False
    ) -> None:
        super().__init__("\n".join([message, *cures]))
        self.message = message
        self.cures = cures
        self.is_of_host = is_of_host


class Overloaded(InfernoError):
    """Raised when too much waits, or the system has no room; the same can succeed later."""


class EngineError(InfernoError):
    """Raised when a step of the engine failed; the request ended with finish reason `error`."""


class EngineDied(EngineError):
    """Raised when the engine is gone; its open requests can be tried again on a new one."""
