"""The calls of the bookings, as a function app has them."""

import azure.functions as func

from cosmos_outbox import Origin, functions
from tests.testing.bookings import Booking, service

app = functions.app(service)
ORIGIN = Origin("request-1")


@app.route(route="bookings", methods=["POST"])
async def create_booking(req: func.HttpRequest) -> func.HttpResponse:
    receipt = await service().aggregates.create(Booking.create(req.get_json()["title"]), ORIGIN)
    return func.HttpResponse(receipt.aggregate.aggregate_id, status_code=201)


@app.route(route="bookings/{id}", methods=["GET"])
async def get_booking(req: func.HttpRequest) -> func.HttpResponse:
    found = await service().aggregates.read(Booking, str(req.route_params["id"]), ORIGIN)
    shown = [found.aggregate.state.title, req.params.get("wanted", ""), req.headers.get("x-trace", "")]
    return func.HttpResponse(" ".join(shown))
