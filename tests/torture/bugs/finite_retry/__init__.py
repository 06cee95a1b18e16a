"""The relay gives up after a while."""
