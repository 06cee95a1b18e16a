"""The writes of a run, held against the models: each has to be a step that the model allows."""
