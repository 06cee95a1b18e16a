"""The import service: its events go to a queue, which the workers that run jobs read."""

from cosmos_outbox import Named, Names, Service
from examples.imports.accepting import Imports
from examples.imports.file import SourceFile
from examples.imports.files import BlobFiles
from examples.imports.jobs import Jobs
from examples.imports.task import ImportTask

QUEUE = Named("STORAGEQUEUE_QUEUES", "import-jobs")
FILES = BlobFiles()

service = Service(
    "imports",
    aggregates=[SourceFile, ImportTask],
    names=Names(database="imports", container="imports", topic="import-events"),
    transport="storagequeue",
)


def imports() -> Imports:
    """The calls of a client."""
    return Imports(service().aggregates, FILES)


def jobs() -> Jobs:
    """What runs the tasks."""
    return Jobs(service().aggregates, FILES)
