"""What is declared for Azure, the emulators and CI is held against the code and the documents.

A test here compares two artefacts that nothing else compares. Whether a Bicep file by itself is right is decided by the
compiler, which runs in CI, and whether a deployment is right by ``python -m infra.preflight``.
"""
