"""Answers with the connection strings that the stack gave it."""

import json
import os

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="hello", methods=["GET"])
async def hello(req: func.HttpRequest) -> func.HttpResponse:
    settings = {name: os.environ[name] for name in ("COSMOS", "SERVICEBUS", "GREETING")}
    return func.HttpResponse(json.dumps(settings), mimetype="application/json")
