"""HTTP functions of every kind."""

import json
import logging
import threading
import time

import azure.functions as func

_log = logging.getLogger(__name__)
app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)


def _described(req: func.HttpRequest, **more: object) -> func.HttpResponse:
    described = {
        "method": req.method,
        "url": req.url,
        "route": dict(req.route_params),
        "query": dict(req.params),
        "body": req.get_body().decode(),
        "thread": threading.current_thread().name,
        **more,
    }
    return func.HttpResponse(json.dumps(described), mimetype="application/json")


@app.route(route="echo/{name}")
async def echo(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    _log.info("echoing")
    return _described(req, function=context.function_name, trace=context.trace_context.trace_parent)


@app.route(route="in_thread", methods=["POST"])
def in_thread(req: func.HttpRequest) -> func.HttpResponse:
    return _described(req)


@app.route(route="by_id/{id:guid}", methods=["GET"])
async def by_id(req: func.HttpRequest) -> func.HttpResponse:
    return _described(req)


@app.function_name("zz_rest")
@app.route(route="by_id/{*rest}", methods=["GET"])
async def rest(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    return _described(req, function=context.function_name)


@app.route(route="")
async def named_by_its_function(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    return _described(req, function=context.function_name)


@app.route(route="raises/{name?}")
async def raises(req: func.HttpRequest) -> func.HttpResponse:
    raise ValueError("the function's own mistake")


@app.route(route="returns_nothing")
async def returns_nothing(req: func.HttpRequest) -> None:
    """No response: a mistake."""


@app.route(route="returns_text")
async def returns_text(req: func.HttpRequest) -> str:
    return "plain"


@app.route(route="cookies")
async def cookies(req: func.HttpRequest) -> func.HttpResponse:
    response = func.HttpResponse(b"\x00\x01", status_code=202, mimetype="application/octet-stream")
    response.headers.add("Set-Cookie", "a=1; Path=/")
    response.headers.add("Set-Cookie", "b=2; HttpOnly")
    response.headers.add("X-Other", "value")
    return response


@app.route(route="slow/{seconds}")
def slow(req: func.HttpRequest) -> str:
    print("slow has begun", flush=True)
    time.sleep(float(req.route_params["seconds"]))
    return "done"
