"""The declarations for Azure, the emulators and CI agree with the code and the documents.

Each test compares two files that nothing else compares. The compiler, which runs in CI, decides whether a Bicep file is
right in itself; ``python -m cosmos_outbox preflight`` decides whether a deployment is right.
"""
