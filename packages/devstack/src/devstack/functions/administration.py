"""An administrator's call runs a timer at once, as ``POST /admin/functions/{name}`` of the real host does.

The call is answered when the run begins. Where keys are asked for it needs the master key.
"""

from collections.abc import Iterable

from aiohttp import web

from devstack.functions.keys import Keys, Level
from devstack.functions.timer_trigger import TimerTrigger


def administration(timers: Iterable[TimerTrigger], keys: Keys | None) -> list[web.RouteDef]:
    """The call. A name that is no timer's is 404: other triggers would need an input, which devstack does not read."""
    by_name = {timer.name.lower(): timer for timer in timers}

    async def run(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if keys is not None and keys.level(request, name) < Level.ADMIN:
            return web.Response(status=401)
        timer = by_name.get(name.lower())
        if timer is None:
            return web.Response(status=404)
        timer.run_now()
        return web.Response(status=202)

    return [web.post("/admin/functions/{name}", run)]
