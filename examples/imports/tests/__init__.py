"""The import service: its tasks in memory, and jobs that are killed on a local Azure."""
