"""Audit: the kernels of a whole program, read from a profile, ranked by the time they lose to waves."""
