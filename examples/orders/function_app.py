"""The calls on orders, gifts and the board; relay, subscribers, timers and operators' calls come with the app."""

from cosmos_outbox import functions
from cosmos_outbox.http import READING, Answer, Request, request
from examples.orders import http
from examples.orders.service import board, service

app = functions.app(service, resources=[http.orders, http.gifts])
answering = functions.answering(service)


@app.route(route="board", methods=READING)
@answering
async def get_board(req: Request) -> Answer:
    """GET /board?status=&pageSize=&continuationToken="""
    status, (size, token) = http.board_status(req), request.page_request(req, "status")
    return http.on_board(await board().page(status, size, token))
