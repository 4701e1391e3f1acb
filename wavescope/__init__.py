"""wavescope shows where every SM-nanosecond of a GPU matrix multiplication goes."""

__version__ = "0.1.0"
