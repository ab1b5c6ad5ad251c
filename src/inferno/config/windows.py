"""Read the layers and their windows, the numbers of tokens that each sees, from config.json."""

from __future__ import annotations

from inferno.config.reader import ConfigReader
from inferno.errors import ConfigError


def num_layers(config: ConfigReader) -> int:
    """Read the number of layers; more than a few hundred is a damaged file, not a model."""
    return config.integer("num_hidden_layers", high=1024)


def refuse_windows(config: ConfigReader) -> None:
    """Refuse keys that switch windows on, for families without them."""
    config.must_be("use_sliding_window", False)
    kinds = config.texts("layer_types") or ()
    if set(kinds) - {"full_attention"}:
        raise ConfigError(
            "config.json: layer_types must be full_attention throughout: this model has no windows"
        )


def read_layer_windows(config: ConfigReader) -> tuple[int | None, ...]:
    """Read windows by layer as Qwen writes them: layer_types, or all from max_window_layers on."""
    count = num_layers(config)
    first = config.integer("max_window_layers", 28, low=0)
    window = config.optional_integer("sliding_window", 4096)
    window = window if config.boolean("use_sliding_window", False) else None
    kinds = config.texts("layer_types")
    if kinds is None:
        return tuple(window if layer >= first else None for layer in range(count))
    return windows_of(kinds, count, window)


def windows_of(kinds: tuple[str, ...], count: int, window: int | None) -> tuple[int | None, ...]:
    """Return windows by layer_types, one for each of `count` layers."""
    if len(kinds) != count or not set(kinds) <= {"full_attention", "sliding_attention"}:
        raise ConfigError(
            f"config.json: layer_types must name full_attention or sliding_attention for each of "
            f"{count} layers"
        )
    if window is None and "sliding_attention" in kinds:
        raise ConfigError(
            "config.json: layer_types has sliding_attention, but sliding_window is null or "
            "use_sliding_window false"
        )
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
