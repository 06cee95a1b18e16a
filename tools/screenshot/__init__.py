"""Takes the picture of the operations page that the README shows: ``python -m tools.screenshot``."""
