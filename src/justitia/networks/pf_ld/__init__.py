"""The repaired PF-LD: noised violations and group gradients."""
