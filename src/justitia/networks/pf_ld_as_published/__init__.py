"""PF-LD as published, for comparison; deleting this folder deletes it."""
