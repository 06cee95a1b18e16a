"""``python -m tools.repair`` gets a document of the app's container, and puts it back: docs/operate/recipes.md."""
