"""Uploads over HTTP, jobs by a queue; relay, deadlines and operators' calls come with the app."""

import os

import azure.functions as func

from cosmos_outbox import functions
from cosmos_outbox.http import READING, Answer, Request, request
from examples.imports import http
from examples.imports.service import QUEUE, imports, jobs, service

app = functions.app(service)
answering = functions.answering(service)


@app.route(route="imports", methods=["POST"])
@answering.accepting(http.KEY)
async def post_import(req: Request) -> Answer:
    """Accept a file."""
    asked = http.upload(req)
    return http.accepted(req, await imports().accept(asked.name, asked.content, asked.origin, key=asked.key))


@app.route(route="imports/{id}", methods=READING)
@answering
async def get_import(req: Request) -> Answer:
    """Returns how far it is."""
    return http.shown(await imports().find(http.import_id(req), request.origin(req)))


@app.queue_trigger(arg_name="message", queue_name=QUEUE.resolve(os.environ), connection="STORAGEQUEUE")
async def run_import(message: func.QueueMessage) -> None:
    """Run the job that a message asks for; one that raises comes again."""
    await jobs().run_message(message.get_body())
