"""One function of each level."""

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)


def _answer(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(f"{req.headers.get('x-functions-key')} {req.params.get('code')}")


@app.route(route="open", auth_level=func.AuthLevel.ANONYMOUS)
async def open_to_all(req: func.HttpRequest) -> func.HttpResponse:
    return _answer(req)


@app.route(route="guarded")
async def guarded(req: func.HttpRequest) -> func.HttpResponse:
    return _answer(req)


@app.route(route="other")
async def other(req: func.HttpRequest) -> func.HttpResponse:
    return _answer(req)


@app.route(route="administrative", auth_level=func.AuthLevel.ADMIN)
async def administrative(req: func.HttpRequest) -> func.HttpResponse:
    return _answer(req)
