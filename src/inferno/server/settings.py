"""Define the settings of a server: its options, and its API keys."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from inferno.client.spawned import EngineLog
from inferno.options import ServerOptions
from inferno.server.api_keys import ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(ServerOptions):
    """The settings of a server: its options, with the keys and the log's format.

    api_keys        from api_keys.read_keys; without keys every route but /debug is open.
    """

    api_keys: tuple[ApiKey, ...] = ()

    @property
    def engine_log(self) -> EngineLog:
        """Return the format and level in which engines write their log, the server's own."""
        return EngineLog(self.log_format, self.log_level)

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can connect, so that a foreign Host is an attack."""
        if self.uds is not None:
            return False  # and no browser reaches it
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host.lower().rstrip(".") == "localhost"
