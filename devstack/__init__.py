"""The local Azure: loopback servers that speak what the real SDKs speak. Never deployed; imports only ``changefeed``."""
