"""Documents made from a WaveReport or a trace; nothing is computed here."""
