"""Bad input gets no further than this package. A request becomes a call; a result or an error becomes an answer.

Every answer that is not a success is ``application/problem+json`` (RFC 9457) and names each field that is wrong.
"""
