"""Plots that can happen in one world only: a dragon's fire goes out, a penguin's ice breaks."""

from __future__ import annotations

from demo_plot import Plot
from demo_plots_nature import NATURE_PLOTS
from demo_plots_places import PLACE_PLOTS

WORLD_PLOTS: dict[str, tuple[Plot, ...]] = {**NATURE_PLOTS, **PLACE_PLOTS}
