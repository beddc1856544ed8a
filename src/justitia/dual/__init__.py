"""The Lagrangian dual of the paper: the loop, what the engines ask, what the plans cost."""
