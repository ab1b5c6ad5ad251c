"""Run steps on a device."""
