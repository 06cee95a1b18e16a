"""HTTP in, commands out; results and errors back as HTTP. Bad input gets no further than this package.

Every answer that is not a success is ``application/problem+json`` (RFC 9457) and names each field that is wrong.
"""
