"""The only folder that knows the attribute and the noise; it imports nothing of ours outside itself."""
