"""Uploads over HTTP, jobs by a queue; relay, deadlines and operators' calls come with the app."""

import azure.functions as func

from cosmos_outbox import functions
from cosmos_outbox.http import READING, Answer, Request
from examples.imports import http
from examples.imports.files import BlobFiles
from examples.imports.jobs import Jobs
from examples.imports.service import service

app = functions.app(service)
answering = functions.answering(service)
files = BlobFiles()
jobs = Jobs(files)


@app.route(route="imports", methods=["POST"])
@answering.honouring(http.KEY)
async def post_import(req: Request) -> Answer:
    """Accept a file."""
    return await http.upload(req, files)


@app.route(route="imports/{id}", methods=READING)
@answering
async def get_import(req: Request) -> Answer:
    """Tell how far it is."""
    return await http.status(req)


@app.queue_trigger(arg_name="message", queue_name="%STORAGEQUEUE_QUEUES%", connection="STORAGEQUEUE")
async def run_import(message: func.QueueMessage) -> None:
    """Run the job that a message asks for; one that raises comes again."""
    await jobs.run_message(message.get_body())
