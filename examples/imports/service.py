"""The import service: its events go to a queue, and whoever runs jobs reads that queue."""

from cosmos_outbox import Names, Service
from examples.imports.file import SourceFile
from examples.imports.task import ImportTask

service = Service(
    "imports",
    aggregates=[SourceFile, ImportTask],
    names=Names(database="imports", container="imports", topic="import-events"),
    transport="storagequeue",
)
