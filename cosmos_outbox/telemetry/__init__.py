"""Metrics, traces and log correlation, without personal data; exported only if a setting asks for it, and cheap."""
