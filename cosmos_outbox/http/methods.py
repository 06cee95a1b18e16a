"""The methods with which functions are declared: who takes GET takes HEAD too (RFC 9110, 9.1)."""

READING = ("GET", "HEAD")
"""Of a function that reads. The host does not see to HEAD (azure-functions-host issue 11625): the function answers both
alike, and the server leaves the body out."""
