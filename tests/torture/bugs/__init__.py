"""The deployed app with one planted mistake each; real implementations of this pattern make these mistakes."""
