"""Functions that say in which process they run, hang there, or end it."""

import asyncio
import logging
import os

import azure.functions as func

_log = logging.getLogger(__name__)
app = func.FunctionApp()


@app.route(route="process")
async def process(req: func.HttpRequest) -> str:
    return str(os.getpid())


@app.route(route="hang")
async def hang(req: func.HttpRequest) -> str:
    _log.info("it hangs")
    await asyncio.Event().wait()
    return ""


@app.route(route="exit")
def end(req: func.HttpRequest) -> str:
    os._exit(1)
